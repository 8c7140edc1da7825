"""The options of ``fcl convert``, each declared once; a reader takes those that its ``Options`` name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from fcl import checks
from fcl.numerals import read_number
from fcl.options import FLAG, FROM_1, PATH, SIZE, TEXT, Kind, Option, one_of

#: The groups of options in ``--help``, in order.
GROUPS = ("input", "columns", "tables", "sequences", "genome", "running", "output")

DEFAULT_MEMORY = "512MiB"


def _share(name: str, value: Any) -> float:
    """A share from 0 to 1, given as a number or its text."""
    number = read_number(value) if isinstance(value, str) else value
    return 0.0 if number == 0 else checks.up_to_one(name, value if number is None else number)


SHARE = Kind("share", _share, "", (float,))
_input = partial(Option, group="input")
_column = partial(Option, TEXT, "columns", metavar="COLUMN")
_sequence = partial(Option, group="sequences")
_genome = partial(Option, group="genome")
_table = partial(Option, group="tables")
_flag = partial(Option, FLAG, default=False)

_OPTIONS = {
    "format": _input(
        TEXT, help="Format of the inputs; default: by name and content.", metavar="NAME"
    ),
    "x": _column(help="Columns of X, separated by commas; * stands for any text, and ! excludes."),
    "y": _column(help="Column of the target; for PLINK TABLE.tsv:COLUMN (default: .fam)."),
    "label": _column(
        help="Labels. BED: a column. FASTA: header:REGEX, whose first group is the label, or "
        "TABLE.tsv:COLUMN, by the name of the record.",
        metavar="WHERE",
    ),
    "weights": _column(help="Column of the sample weights."),
    "groups": _column(
        help="Groups, which folds do not split: a column, such as chrom; for FASTA as --label.",
        metavar="WHERE",
    ),
    "name": _column(help="Column of the names of the rows."),
    "categorical": _column(help="Columns of numbers that are categories, as --x names columns."),
    "dates": _table(
        TEXT,
        help="What dates become: days since 1970, year (numbers), month, weekday, hour (categories), "
        "separated by commas (default: days).",
        metavar="PARTS",
    ),
    "max_categories": _table(
        FROM_1, help="Most categories of a column (default: 1000).", metavar="N"
    ),
    "missing": _table(
        one_of("error", "drop", "mean"),
        help="Missing values: refuse them, drop such rows, or take the mean of the column and a "
        "category of their own (default: error; PLINK: mean).",
    ),
    "na": _table(TEXT, help="More texts that mean a missing value, such as ?.", metavar="TEXT,..."),
    "delimiter": _table(
        TEXT, help="Delimiter of CSV (default: found in the first line).", metavar="CHARACTER"
    ),
    "decimal": _table(
        one_of(".", ","), help="Mark before decimals (default: found in the first lines)."
    ),
    "no_header": _flag(group="tables", help="The first line holds values; columns are 1, 2, ..."),
    "no_quotes": _flag(group="tables", help="Quotation marks are part of the text."),
    "like": _table(
        PATH,
        help="Make the columns of this output, for test data (tables, svmlight, PLINK).",
        metavar="TRAIN.zarr",
    ),
    "layout": _table(
        one_of("auto", "dense", "sparse"), help="How to store X (default: by the share of zeros)."
    ),
    "dtype": _table(
        one_of("auto", "float32", "float64"),
        help="Type of stored numbers (default: float32 if it keeps the values of each column apart).",
    ),
    "zero_based": _table(
        one_of("auto", "yes", "no"), help="svmlight: whether ids begin at 0 (default: auto)."
    ),
    "columns": _table(
        FROM_1, help="svmlight: number of columns (default: largest id).", metavar="N"
    ),
    "names": _table(
        PATH, help="svmlight: file with the name of a column in each line.", metavar="FILE"
    ),
    "keep": _table(PATH, help="PLINK: file with the names of the samples to keep.", metavar="FILE"),
    "remove": _table(
        PATH, help="PLINK: file with the names of samples to leave out.", metavar="FILE"
    ),
    "covariates": _table(
        PATH,
        help="PLINK: table of covariates by FID and IID, or by one column of names, as plink --covar "
        "reads it.",
        metavar="FILE",
    ),
    "length": _sequence(FROM_1, help="Cut sequences or windows to this length.", metavar="L"),
    "anchor": _sequence(
        one_of("center", "start", "end", "summit"),
        help="Which part of a longer sequence to keep, or where to centre a window (default: center).",
    ),
    "pad": _flag(
        group="sequences",
        help="Fill up shorter sequences with unknown letters, for the family bag.",
    ),
    "max_unknown": _sequence(
        SHARE,
        help="Drop rows with a larger share of unknown letters, apart from those that --pad or "
        "--edges pad adds (default: keep all).",
    ),
    "genome": _genome(PATH, help="FASTA file of the genome, for intervals.", metavar="FILE"),
    "window": _genome(
        TEXT, help="First and last base around the start of each interval.", metavar="-70:+71"
    ),
    "negatives": _genome(
        PATH, help="Intervals of the class -1; intervals of the input are then 1.", metavar="FILE"
    ),
    "no_strand": _flag(group="genome", help="Ignore the strand in column 6."),
    "both_strands": _flag(
        group="genome", help="Add the reverse complement of each row, in the same group."
    ),
    "edges": _genome(
        one_of("drop", "pad", "error"),
        help="What to do with windows beyond the end of a contig (default: drop).",
    ),
    "rename": _genome(
        TEXT, help="Names in the intervals and in the genome: chr= removes chr.", metavar="OLD=NEW"
    ),
    "skip_contigs": _flag(
        group="genome", help="Skip and count records on contigs that the genome lacks."
    ),
    "memory": Option(SIZE, "running", "Memory budget.", DEFAULT_MEMORY),
    "overwrite": _flag(group="output", help="Replace an existing output."),
    "quiet": _flag(group="output", help="Show only warnings and errors."),
}

#: All options of ``fcl convert``, by name.
TABLE = {name: replace(option, name=name) for name, option in _OPTIONS.items()}
