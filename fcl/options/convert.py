"""The options of ``fcl convert``; other commands that read files have most of them, and a reader some."""

from __future__ import annotations

from functools import partial

from fcl.options.commands import COMMON
from fcl.options.kinds import (
    FLAG,
    FROM_0,
    FROM_0_TO_1,
    FROM_1,
    PATH,
    POSITIVE,
    SIZE,
    TEXT,
    WHOLE,
    one_of,
)
from fcl.options.option import CONVERT, PREDICT, REPORT, STAGEWISE, TRAIN, Option, Resume

#: The formats of sequences that may have several lengths.
OF_SEQUENCES = ("fasta", "sequences")
DEFAULT_MEMORY = "512MiB"
_option = partial(
    Option,
    commands=(CONVERT, PREDICT, TRAIN, STAGEWISE, REPORT),
    resume=Resume.FIXED,
    from_file=True,
)
#: Commands that learn from files have options of these names, which also mean arrays of DATA.
_ALONE = (CONVERT, PREDICT)
#: A report has options of these names, too, or the columns of its model.
_BUT_REPORT = (*_ALONE, TRAIN, STAGEWISE)
_input = partial(_option, group="input")
_column = partial(_option, kind=TEXT, group="columns", metavar="COLUMN")
_sequence = partial(_option, group="sequences")
_genome = partial(_option, group="genome")
_table = partial(_option, group="tables")
_flag = partial(_option, kind=FLAG, default=False)
_model = partial(Option, commands=(CONVERT,), group="models")

_INPUTS = (
    _input("format", TEXT, "Format of the inputs; default: by name and content.", metavar="NAME"),
    _column(
        "x",
        commands=_ALONE,
        help="Columns of X, separated by commas; * stands for any text, and ! excludes.",
        variants={
            PREDICT: (
                "Array of the rows in DATA (default: X); or columns of a table, as in fcl convert."
            )
        },
    ),
    _column(
        "y",
        commands=_ALONE,
        help="Column of the target; for PLINK TABLE.tsv:COLUMN (default: .fam).",
        variants={
            PREDICT: (
                "Target to compare the scores with: array in DATA (default: y, if present), or "
                "column."
            )
        },
    ),
    _column(
        "label",
        help="Labels. BED: a column. FASTA: header:REGEX, whose first group is the label, or "
        "TABLE.tsv:COLUMN, by the name of the record.",
        metavar="WHERE",
    ),
    _column(
        "weights",
        commands=_ALONE,
        help="Column of the sample weights.",
        variants={
            PREDICT: "Sample weights for the comparison: array in DATA, or column of a table."
        },
    ),
    _column(
        "groups",
        commands=_BUT_REPORT,
        help="Groups, which folds do not split: a column, such as chrom; for FASTA as --label.",
        metavar="WHERE",
    ),
    _column("name", help="Column of the names of the rows."),
    _column("categorical", help="Columns of numbers that are categories, as --x names columns."),
    _table(
        "dates",
        TEXT,
        "What dates become: days since 1970, year (numbers), month, weekday, hour (categories), "
        "separated by commas (default: days).",
        metavar="PARTS",
    ),
    _table("max_categories", FROM_1, "Most categories of a column (default: 1000).", metavar="N"),
    _table(
        "missing",
        one_of("error", "drop", "mean"),
        "Missing values: refuse them, drop such rows, or take the mean of the column and a "
        "category of their own (default: error; PLINK: mean).",
    ),
    _table(
        "missing_target",
        one_of("error", "drop"),
        "Rows without a target: refuse them, or drop them, whatever --missing does (default: error).",
    ),
    _table("na", TEXT, "More texts that mean a missing value, such as ?.", metavar="TEXT,..."),
    _table(
        "delimiter",
        TEXT,
        "Delimiter of CSV (default: found in the first line).",
        metavar="CHARACTER",
    ),
    _table(
        "decimal", one_of(".", ","), "Mark before decimals (default: found in the first lines)."
    ),
    _table(
        "thousands",
        one_of(".", ",", "'", "space"),
        "Mark between thousands, as in 1.234,56 (default: none).",
    ),
    _table(
        "date_order",
        one_of("dmy", "mdy"),
        "Read dates such as 03/04/2021: day, month, year (dmy), or month, day, year (mdy).",
    ),
    _flag("no_header", group="tables", help="The first line holds values; columns are 1, 2, ..."),
    _flag("no_quotes", group="tables", help="Quotation marks are part of the text."),
    _table(
        "like",
        PATH,
        "Make the columns of this output, for test data (tables, svmlight, PLINK).",
        metavar="TRAIN.zarr",
        commands=_BUT_REPORT,
    ),
    _table(
        "layout",
        one_of("auto", "dense", "sparse"),
        "How to store X (default: by the share of zeros).",
    ),
    _table(
        "dtype",
        one_of("auto", "float32", "float64"),
        "Type of stored numbers (default: float32 if it keeps the values of each column apart).",
    ),
    _table(
        "zero_based",
        one_of("auto", "yes", "no"),
        "svmlight: whether ids begin at 0 (default: auto).",
    ),
    _table(
        "columns",
        FROM_1,
        "svmlight: number of columns (default: largest id).",
        metavar="N",
        commands=_BUT_REPORT,
    ),
    _table(
        "names",
        PATH,
        "svmlight: file with the name of a column in each line.",
        metavar="FILE",
        commands=_BUT_REPORT,
    ),
    _table("keep", PATH, "PLINK: file with the names of the samples to keep.", metavar="FILE"),
    _table("remove", PATH, "PLINK: file with the names of samples to leave out.", metavar="FILE"),
    _table(
        "covariates",
        PATH,
        "PLINK: table of covariates by FID and IID, or by one column of names, as plink --covar reads "
        "it.",
        metavar="FILE",
        commands=(*_ALONE, REPORT),
    ),
    _sequence("length", FROM_1, "Cut sequences or windows to this length.", metavar="L"),
    _sequence(
        "anchor",
        one_of("center", "start", "end", "summit"),
        "Which part of a longer sequence to keep, or where to centre a window (default: center).",
    ),
    _flag(
        "pad",
        group="sequences",
        help="Fill up shorter sequences with unknown letters, for the family bag: to --length, or to "
        "the longest one.",
    ),
    _sequence(
        "max_unknown",
        FROM_0_TO_1,
        "Drop rows with a larger share of unknown letters, apart from those that --pad or "
        "--edges pad adds (default: keep all).",
        metavar="SHARE",
    ),
    _genome("genome", PATH, "FASTA file of the genome, for intervals.", metavar="FILE"),
    _genome(
        "window", TEXT, "First and last base around the start of each interval.", metavar="-70:+71"
    ),
    _genome(
        "negatives",
        PATH,
        "Intervals of the class -1; intervals of the input are then 1.",
        metavar="FILE",
        variants=dict.fromkeys(
            (TRAIN, STAGEWISE),
            "Sequences or intervals of the class -1; those of DATA are then 1.",
        ),
    ),
    _flag("no_strand", group="genome", help="Ignore the strand in column 6."),
    _flag(
        "both_strands",
        group="genome",
        help="Add the reverse complement of each row, in the same group.",
        variants={
            PREDICT: "Also score the reverse complement of each row, or sites of both strands."
        },
    ),
    _genome(
        "edges",
        one_of("drop", "pad", "error"),
        "What to do with windows beyond the end of a contig (default: drop).",
    ),
    _genome(
        "rename",
        TEXT,
        "Names in the intervals and in the genome: chr= removes chr.",
        metavar="OLD=NEW",
    ),
    _flag(
        "skip_contigs",
        group="genome",
        help="Skip and count records on contigs that the genome lacks.",
    ),
    _option(
        "memory",
        SIZE,
        "Memory budget.",
        commands=(*_ALONE, REPORT),
        group="running",
        default=DEFAULT_MEMORY,
        variants={REPORT: {"help": "Memory budget of a conversion of DATA.", "group": "input"}},
    ),
)

_MODELS = (
    _model("bits", WHOLE, "Round the weights of a model to multiples of 2^-M.", metavar="M"),
    _model(
        "max_loss",
        POSITIVE,
        "Choose the fewest bits that raise the mean loss on DATA by at most this share.",
        metavar="SHARE",
    ),
    _model("data", PATH, "Rows with a target, to measure losses on.", metavar="DATA"),
    _model(
        "rounding",
        one_of("nearest", "random"),
        "How to round (default: the better one on DATA; without DATA nearest, or random for stagewise "
        "models).",
    ),
    _model("seed", FROM_0, "Seed of random rounding (default: 0)."),
    _model("offset", TEXT, "Array in DATA that is added to the margins.", metavar="NAME"),
)

#: The options of the inputs, by name; ``fcl predict`` has all but ``overwrite``.
READING = {
    **{option.name: option for option in _INPUTS},
    **{option.name: option for option in COMMON if option.name in ("overwrite", "quiet")},
}
#: The options of ``fcl convert MODEL``, by name.
ROUNDING = {option.name: option for option in _MODELS}
#: The options about files that commands have which learn from arrays, too.
FILE_OPTIONS = tuple(option.name for option in _INPUTS if TRAIN in option.commands)
#: The options that the readers of formats take.
FORMAT_OPTIONS = tuple(option.name for option in _INPUTS if option.name not in ("format", "memory"))
