"""DATA in a format that ``fcl convert`` reads: converted once, beside the model."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import messages
from fcl.errors import InputError
from fcl.options.convert import FILE_OPTIONS, OF_SEQUENCES, READING
from fcl.options.option import REPORT
from fcl.store import is_remote, kind_of, local_neighbour, locate
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.convert.run import Progress, Summary
    from fcl.model.predictor import Predictor

#: Options that name arrays of DATA, with their defaults; of a file they name columns.
_ARRAYS = {"x": "X", "y": "y", "weights": None, "covariates": None}
#: Formats whose target is a column, by default y.
_WITH_TARGET = ("table", "parquet", "sequences")
#: The options of ``fcl report`` for files that it converts; its groups name an array or a column.
_OPTIONS_OF_REPORT = tuple(
    option.name
    for option in READING.values()
    if REPORT in option.commands and option.group not in ("running", "output")
)
#: Options of formats whose columns another file decides.
_OF_COLUMNS = ("x", "names", "columns")


def foreign_format(path: str | None, options: Mapping[str, Any]) -> str | None:
    """The format of a file that must be converted; None for data in a format of fcl, and for nothing."""
    if path is None or is_remote(path) or kind_of(locate(path.partition("::")[0])) != "file":
        return None
    # late: NumPy
    from fcl.convert.files import InputFile
    from fcl.convert.registry import format_of
    from fcl.data.foreign import find_format
    from fcl.data.open import is_native
    from fcl.data.table_head import TableHead

    if is_native(path):
        return None
    if options["format"] is not None:
        return str(options["format"])
    file = InputFile(path)
    if path.endswith((".bim", ".fam")):
        raise InputError(f"{path} belongs to a file of PLINK; give {path[:-4]}.bed")
    if find_format(file.path, file.head) is None and options["genome"] is None:
        if (table := TableHead.of(file.head)) is None:
            return None  # opening it says what is wrong
        name = "table" if table.sequences is None else "sequences"
        raise InputError(
            f"{path} looks like a table; if it is one, give --format {name} {table.options()}"
        )
    return format_of([file], _reading("", options, {}))


def default_features(options: Mapping[str, Any]) -> str | None:
    """The features of files whose columns have names or ids; None for others."""
    from fcl.convert.registry import WITH_COLUMNS

    return "columns" if foreign_format(options["data"], options) in WITH_COLUMNS else None


def native_rows(options: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The options of a command, with conversions beside the model in place of files in other formats."""
    rows = dict(options)
    format = foreign_format(options["data"], options)
    valid_format = foreign_format(options["valid"], options)
    if format is None and valid_format is None:
        _refuse_file_options(given.keys() & set(FILE_OPTIONS), options["data"])
        return rows
    if options["out"] is None:
        raise click.UsageError("--out is missing: the model, beside which the rows are kept")
    if options["offset"] is not None:
        raise InputError(
            "--offset: expected DATA with an array of this name, got a file to convert; convert it first "
            "to Zarr (fcl convert), and add the array"
        )
    if format is not None:
        rows |= _converted_data(format, options, given)
    if valid_format is not None:
        from fcl.convert.registry import WITH_COLUMNS

        named = _reading(valid_format, options, given)
        named.pop("negatives", None)
        fits_train = not _any_length(valid_format, options)
        if fits_train and named.get("pad") and "length" not in named:
            named["length"] = int(_group(rows["data"])["X"].shape[1])
        if valid_format in WITH_COLUMNS:
            named |= dict.fromkeys(_OF_COLUMNS) | {"like": rows["data"]}
        rows["valid"] = _convert([options["valid"]], ".valid.zarr", named, options)
    return rows


@contextmanager
def rows_of_report(
    path: str, model: Predictor, options: Mapping[str, Any], given: Set[str]
) -> Iterator[dict[str, Any]]:
    """Yield the options of ``fcl report`` for rows in a format of fcl.

    The rows that a training converted beside the model are used again. Other rows get the columns of the
    model, in a temporary folder beside the page.
    """
    from fcl.convert.registry import WITH_COLUMNS

    data, names = options["data"], _OPTIONS_OF_REPORT
    format = foreign_format(data, options)
    if format is None:
        _refuse_file_options(given & {*names, "memory"}, data)
        yield dict(options)
        return
    target = model.column_record.reading.get("y", options["y"])
    if format in _WITH_TARGET and "y" not in given and target != options["y"]:
        messages.note(f"{data}: the target is the column {target}, as in training (--y)")
        options = {**options, "y": target}
    named = _reading(format, options, given, names)
    if options["groups"] is not None:
        named["groups"] = options["groups"]
    if format in OF_SEQUENCES and model.family.any_width and not named.keys() & {"length", "pad"}:
        named |= {"pad": True, "anchor": named.get("anchor", "start")}
    inputs = [data, *filter(None, [named.pop("negatives", None)])]
    as_trained = None if not given & {*names, *_ARRAYS, "groups"} else named
    rows = {**options, "x": "X", "y": "y", "data": _kept_by_training(path, inputs, as_trained)}
    if options["weights"] is not None:
        rows["weights"] = "weights"
    if options["groups"] is not None:
        rows["groups"] = "obs/group"
    if rows["data"] is not None:
        yield rows
        return
    _refuse_no_target(data, format, options)
    from fcl.convert.reference import Reference
    from fcl.convert.run import convert

    kept = local_neighbour(path, ".data.zarr")
    like = kept if format in WITH_COLUMNS and kind_of(locate(kept)) else None
    columns = Reference.of_model(model, like, "fcl convert with --like TRAIN.zarr")
    beside = os.path.dirname(os.path.abspath(local_neighbour(options["out"], "")))
    with TemporaryDirectory(prefix=".fcl-report-", dir=beside) as folder:
        out = os.path.join(folder, "rows.zarr")
        with progress_bar() as progress:
            summary = convert(
                inputs,
                out,
                memory=options["memory"],
                progress=progress,
                model=columns,
                like=like,
                **named,
            )
        _note_conversion(" and ".join(inputs), summary, "with the columns of the model")
        yield {**rows, "data": out}


def _refuse_no_target(data: str, format: str, options: Mapping[str, Any]) -> None:
    if format in ("fasta", "bed") and options["label"] is options["negatives"] is None:
        raise InputError(
            f"{data} has no target; give --label, or a file of the other class (--negatives)"
        )


def _kept_by_training(
    path: str, inputs: Sequence[str], named: Mapping[str, Any] | None
) -> str | None:
    """The rows of the training of a model, if these files were converted to them."""
    from fcl.convert.cache import is_conversion_of

    kept = local_neighbour(path, ".data.zarr")
    if not is_conversion_of(kept, inputs, named):
        return None
    messages.note(f"{' and '.join(inputs)}: {kept} has its rows, which were converted before")
    return kept


def _refuse_file_options(names: Iterable[str], data: str) -> None:
    for name in sorted(names):
        raise InputError(
            f"{READING[name].spelled} is an option for tables and other files, but {data} is read as it "
            "is; leave it out"
        )


def _converted_data(
    format: str, options: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, Any]:
    """Convert DATA; returns the options that change."""
    _refuse_no_target(options["data"], format, options)
    named = _reading(format, options, given)
    if format == "table" and "x" not in named:
        _refuse_sequences(options["data"])
    changed: dict[str, Any] = {"x": "X", "y": "y"}
    for name in ("cv", "outer"):  # a column of groups must not be a feature
        kind, _, column = (options.get(name) or "").partition(":")
        if kind in ("groups", "folds") and named.get("groups") in (None, column):
            named["groups"] = column
            changed[name] = f"{kind}:obs/group"
    if str(named.get("covariates")).startswith("obs/"):  # arrays of the converted rows, not a table
        del named["covariates"]
    inputs = [options["data"], *filter(None, [named.pop("negatives", None)])]
    changed["data"] = _convert(inputs, ".data.zarr", named, options)
    if "y" not in (group := _group(changed["data"])):
        raise InputError(f"{options['data']} has no target; give --y TABLE.tsv:COLUMN")
    if options["weights"] is not None:
        changed["weights"] = "weights"
    if "covariates" in named:
        known = group.attrs["fcl"]
        changed["covariates"] = ",".join(f"obs/{name}" for name in known["covariates"])
    return changed


def _refuse_sequences(path: str) -> None:
    """Raise InputError for a table with a column of sequences, which would become categories."""
    from fcl.convert.files import InputFile
    from fcl.data.table_head import TableHead

    table = TableHead.of(InputFile(path).head)
    if table is not None and table.sequences is not None:
        raise InputError(
            f"{path} has a column of sequences; give {table.options()}, or name the columns of X with --x"
        )


def _reading(
    format: str,
    options: Mapping[str, Any],
    given: Collection[str],
    names: Iterable[str] = FILE_OPTIONS,
) -> dict[str, Any]:
    """The options of ``fcl convert`` that a command was given."""
    named = {name: options.get(name) for name in names}
    named = {name: value for name, value in named.items() if not (value is None or value is False)}
    for name, usual in _ARRAYS.items():
        if name in given or options.get(name, usual) != usual:
            named[name] = options[name]
    if format in _WITH_TARGET:
        named["y"] = options["y"]
    if _any_length(format, options) and not named.keys() & {"length", "pad"}:
        named |= {"pad": True, "anchor": named.get("anchor", "start")}
    return named


def _any_length(format: str, options: Mapping[str, Any]) -> bool:
    """Whether the features are of sequences of any length, as the rows of a format may be."""
    from fcl.features.spec import parse_features, takes_any_length

    if format not in OF_SEQUENCES or options.get("features") is None:
        return False
    return takes_any_length(parse_features(options["features"]))


def _group(path: str) -> Any:
    import zarr

    return zarr.open_group(path, mode="r")


def _convert(
    inputs: list[str], suffix: str, named: Mapping[str, Any], options: Mapping[str, Any]
) -> str:
    """Convert files unless it was done before, and say so; returns where the rows are."""
    from fcl.convert.cache import convert_cached

    out, data = local_neighbour(options["out"], suffix), " and ".join(inputs)
    with progress_bar() as progress:
        summary, changed = convert_cached(
            inputs, out, memory=options["memory"], progress=progress, **named
        )
    if summary is None:
        messages.note(f"{data}: {out} has its rows, which were converted before")
        return out
    for text in changed:
        messages.note(f"{data}: converted again, since {text}")
    kept = f"to {out}, which later jobs use again while the file and the options are the same"
    _note_conversion(data, summary, kept)
    return out


def _note_conversion(data: str, summary: Summary, how: str) -> None:
    """Say how many rows were converted and dropped, and what was noticed."""
    messages.note(f"{data}: {counted(summary.rows, 'row')} converted {how}")
    for reason, count in summary.dropped.most_common():
        messages.note(f"dropped: {count:,} {reason}")
    for note in summary.notes:
        messages.note(note)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A bar on a terminal: share of the bytes read, rows, time left."""
    if messages.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = BarColumn(), TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.fields[rows]}")
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rows="")
        yield lambda done, total, rows: bar.update(
            task, completed=done, total=total, rows=f"{counted(rows, 'row')}"
        )
