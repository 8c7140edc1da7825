"""``fcl convert``: from FASTA, BED, tables, svmlight and PLINK files to a Zarr group."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import messages, refuse_same, show
from fcl.cli.compact import compact_file, is_compaction
from fcl.cli.foreign import progress_bar
from fcl.cli.options import EXIT_CODES, FILE, TableCommand
from fcl.errors import InputError
from fcl.options.convert import READING
from fcl.units import counted, format_seconds

if TYPE_CHECKING:
    from fcl.convert.contract import OutputLayout
    from fcl.convert.run import Summary

EPILOG = """\
\b
Examples:
  fcl convert pos.fa.gz neg.fa.gz train.zarr --length 300
  fcl convert seqs.fa train.zarr --label 'header:label=(\\S+)'
  fcl convert sites.bed train.zarr --genome hg38.fa.gz --window -70:+71 --label 5 --groups chrom
  fcl convert peaks.narrowPeak train.zarr --genome hg38.fa --length 500 --anchor summit \\
              --negatives other.bed
  fcl convert seqs.tsv train.zarr --x sequence --y score
  fcl convert table.csv train.zarr --y income --groups patient --missing mean
  fcl convert test.csv test.zarr --y income --like train.zarr --missing mean
  fcl convert a9a.svm.bz2 train.zarr
  fcl convert genotypes.bed train.zarr --y phenotypes.tsv:height
  fcl convert model.fcl small.fcl --max-loss 1e-4 --data valid.zarr

\b
Extras: CSV, TSV and Parquet need pip install 'fcl[tables]', PLINK files pip install 'fcl[plink]'.

"""


#: Suffixes of HDF5 files, as :mod:`fcl.data.hdf5` has them.
_HDF5 = (".h5", ".hdf5", ".hdf", ".he5", ".h5ad")


@click.command("fcl convert", cls=TableCommand, epilog=EPILOG + EXIT_CODES)
@click.argument("inputs", nargs=-1, required=True, metavar="IN...", type=FILE)
@click.argument("out", metavar="OUT", type=FILE)
def command(inputs: tuple[str, ...], out: str, **options: Any) -> int:
    """Convert the files IN into the Zarr group OUT, from which fcl train reads.

    IN is a FASTA file, or one of positive and one of negative sequences; BED, narrowPeak or a table of
    sites, with --genome; a table with a column of sequences; a table of numbers and categories (CSV, TSV,
    Parquet); an svmlight file; or a PLINK .bed beside its .bim and .fam. Files may be compressed (gzip,
    bzip2); - is standard input. Rows keep their order, and those that are dropped are counted by reason.

    If IN is an HDF5 file, its arrays are copied, so that they can be put into an object store. If IN is a
    model, OUT is a compact model: its weights are rounded, and take a few bits each.
    """
    if is_compaction(inputs, options):
        return compact_file(inputs[0], out, options)
    if len(inputs) == 1 and inputs[0].partition("::")[0].endswith(_HDF5):
        _copy_hdf5(inputs[0], out, options)
        return 0
    files = {f"input {number}": path for number, path in enumerate(inputs, 1) if path != "-"}
    refuse_same(out, "OUT", **files, **_other_inputs(options))
    quiet = options.pop("quiet")
    options = {name: value for name, value in options.items() if name in READING}
    messages.note(f"reading {', '.join(inputs)}")
    from fcl.convert.run import convert

    with progress_bar() as progress:
        summary = convert(inputs, out, progress=progress, **options)
    if not quiet:
        show([*_summary_lines(summary, out), _next_line(summary, out, options)])
    return 0


def _copy_hdf5(source: str, out: str, options: Mapping[str, Any]) -> None:
    """Copy the arrays of an HDF5 file, for object stores."""
    from fcl.convert.hdf5 import copy_hdf5

    for name, value in options.items():
        if (
            name in READING
            and name not in ("overwrite", "memory", "quiet")
            and value not in (None, False)
        ):
            raise InputError(
                f"{READING[name].spelled} is not an option for HDF5 files, whose arrays are copied as "
                "they are; leave it out"
            )
    refuse_same(out, "OUT", input=source)
    messages.note(f"reading {source}")
    lines = copy_hdf5(source, out, options["overwrite"])
    if not options["quiet"]:
        show([f"{name:12} {text}" for name, text in lines])


def _summary_lines(summary: Summary, out: str) -> list[str]:
    """What was read, dropped and written, and the command that comes next."""
    layout = summary.layout
    unit = "letter" if layout.kind == "codes" else "column"
    rate = summary.rows / max(summary.seconds, 1e-9)
    lines = [f"read         {counted(summary.rows_in, 'record')} ({summary.format})"]
    lines += [f"dropped      {count:,} {why}" for why, count in summary.dropped.most_common()]
    lines += [f"note         {note}" for note in summary.notes]
    lines += [
        f"written      {counted(summary.rows, 'row')} of {counted(layout.width, unit)} in "
        f"{format_seconds(summary.seconds)}, {rate:,.0f} rows/s"
    ]
    if summary.classes is not None:
        counts = (f"{_label(label)}: {n:,}" for label, n in sorted(summary.classes.items()))
        lines.append(f"classes      {', '.join(counts)}")
    return lines


def _label(label: Any) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label)


def _next_line(summary: Summary, out: str, options: Mapping[str, Any]) -> str:
    """The command that comes next: training, or prediction for rows that cannot be trained on.

    These are test data, rows without a target, and svmlight files whose labels are all 0 for want of
    better ones.
    """
    one_class = summary.classes is not None and len(summary.classes) == 1
    if options["like"] is not None or not summary.has_target or one_class:
        return f"next         fcl predict model.fcl {shlex.quote(out)} --out scores.tsv"
    features = _features(summary.layout, options)
    loss = " --loss squared" if _is_regression(summary) else ""
    weights = " --weights weights" if summary.has_weights else ""
    return (
        f"next         fcl train {shlex.quote(out)} --features {features}{loss} --C 0.1 "
        f"--out model.fcl{weights}"
    )


def _features(layout: OutputLayout, options: Mapping[str, Any]) -> str:
    """The family for rows of this layout; positions mean little in rows that are filled up."""
    if layout.kind != "codes":
        return "columns"
    if options["pad"]:
        return f"bag:d={min(6, layout.width)}"
    before = -int((options["window"] or "0").partition(":")[0])
    origin = f",origin={before}" if 0 < before < layout.width else ""
    return f"kmers:d={min(8, layout.width)}{origin}"


def _is_regression(summary: Summary) -> bool:
    """Whether the target has many values, or more than two of which one is no whole number."""
    values = summary.classes
    if values is None:
        return True
    fractions = (isinstance(value, float) and not value.is_integer() for value in values)
    return len(values) > 2 and any(fractions)


def _other_inputs(options: Mapping[str, Any]) -> dict[str, str | None]:
    """The inputs that are options."""
    return {name: options[name] for name in ("genome", "negatives", "like", "names", "keep")}
