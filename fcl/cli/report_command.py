"""``fcl report``: a model as an HTML page."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import messages, refuse_same
from fcl.cli.job import OutputFiles
from fcl.cli.options import FILE, TableCommand
from fcl.cli.process import run
from fcl.errors import InputError, OutputExistsError

if TYPE_CHECKING:
    import numpy as np

    from fcl.files.result_file import Output
    from fcl.report.make import Report

EPILOG = """\
\b
Exit codes: 0 success, 1 the machine failed or an output was taken (the result is beside it),
2 wrong option or input (nothing was written), 129, 130 and 143 signals.

The report needs the extra: pip install 'fcl[report]'
"""

#: Characters of a file of names that are read.
MOST_NAMES = 1 << 28


@click.command("fcl report", cls=TableCommand, epilog=EPILOG)
@click.argument("model", type=FILE)
@click.pass_context
def command(ctx: click.Context, /, model: str, out: str, **options: Any) -> int:
    """Report on the file MODEL: certificate, convergence, scores, features and effects.

    The page is one file, which opens without a network. Rows are streamed. The same model and data give
    the same page, byte for byte. DATA is a Zarr group, HDF5 or npy; or a file that fcl convert reads,
    with its options: the rows that a training converted beside MODEL are used again, and other rows are
    converted in a temporary folder beside OUT, which is removed.
    """
    from fcl.report.export import write_files
    from fcl.report.figures import check_packages

    check_packages()
    overwrite = options["overwrite"]
    inputs = {"model": model, "data": options["data"], "names": options["names"]}
    outputs = OutputFiles(overwrite, **inputs)
    outputs.add("--out", out, "page")
    for option in ("--save-plots", "--save-data"):
        if (folder := options[option[2:].replace("-", "_")]) is not None:
            refuse_same(folder, option, **inputs)
            if os.path.realpath(folder) == os.path.realpath(out):
                raise InputError(f"{option} {folder}: is the file of --out; choose another name")
            _check_folder(option, folder, overwrite)
    if options["data"] is not None:
        messages.note(f"reading {model} and {options['data']}")
    given = {
        name
        for name in options
        if ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    named = options["data"], options["negatives"]
    report = _report(model, {**options, "out": out}, named, given)
    for folder, files in (
        (options["save_plots"], report.plots),
        (options["save_data"], report.data),
    ):
        if folder is not None:
            try:
                write_files(folder, files, overwrite)
            except OutputExistsError as error:
                messages.say(f"error: {error}")
                outputs.moved = True
    page = report.html.encode()
    outputs.write("--out", page)
    messages.note(f"{outputs['--out'].path}: {len(page) / 1024:,.0f} KiB")
    return outputs.exit_code


def _check_folder(option: str, folder: str, overwrite: bool) -> None:
    """Raise InputError unless a folder can be made, or is empty, or may be filled again."""
    if os.path.isdir(folder):
        if os.listdir(folder) and not overwrite:
            raise InputError(f"{option} {folder}: is not empty; choose another, or add --overwrite")
    elif os.path.lexists(folder) or not os.path.isdir(os.path.dirname(os.path.abspath(folder))):
        raise InputError(f"{option} {folder}: expected a folder, or a new name in a folder")


def _report(
    model: str,
    options: Mapping[str, Any],
    files: Sequence[str | None],
    given: Set[str] | None = None,
) -> Report:
    """The report; ``given`` : options from the command line, if DATA may be one of the user's files."""
    from fcl.cli.foreign import rows_of_report
    from fcl.cli.opening import call_by_files, open_rows
    from fcl.model import load_model
    from fcl.report.make import make_report

    names = None if options["names"] is None else _names(options["names"])
    shown = {name: options[name] for name in ("title", "note")} | {"trusted": options["imports"]}
    if options["data"] is None:
        for name in ("groups", "weights", "offset"):
            if options[name] is not None:
                raise click.UsageError(f"--{name} names an array of --data, which is missing")
        return make_report(model, names=names, **shown)
    trained = load_model(model, options["imports"])
    converted: AbstractContextManager[Mapping[str, Any]] = nullcontext(options)
    if given is not None:
        converted = rows_of_report(model, trained, options, given)
    with converted as rows:
        arrays = {name: rows[name] for name in ("x", "y", "weights", "offset")}
        arrays["covariates"] = trained.covariate_names or None
        data = open_rows(rows["data"], **arrays)
        if rows["data"] != files[0]:
            call_by_files(data, *files)
        return make_report(model, data, groups=_groups(rows), names=names, **shown)


def _groups(options: Mapping[str, Any]) -> np.ndarray | None:
    from fcl.data import open_data

    if options["groups"] is None:
        return None
    # opened as a target, which may be categorical
    return open_data(options["data"], x=options["x"], y=options["groups"]).target


def _names(path: str) -> list[str]:
    from fcl.checks import file_kind

    file_kind(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MOST_NAMES).splitlines()
    except OSError as error:
        raise InputError(f"--names {path}: cannot be read ({error.strerror})") from error


def report_on_training(
    model: str,
    output: Output,
    options: Mapping[str, Any],
    given: Mapping[str, Any],
    trusted: Collection[str],
) -> None:
    """Write the report of ``fcl train --report``; a failure is reported, but does not end the command.

    options : with the rows in a format of fcl.  given : with the user's files.
    """
    from fcl.errors import reason
    from fcl.files.result_file import saved_bytes

    out = output.path
    rows = {**options, "names": None, "groups": None, "title": "", "note": "", "imports": trusted}
    files = [given["data"], given["negatives"]]
    if options["valid"] is not None:
        rows |= {"data": options["valid"], "weights": None}
        files = [given["valid"]]
    try:
        report = _report(model, rows, files)
        output.write(saved_bytes(report.html.encode()))
    except OutputExistsError as error:
        messages.say(f"error: {error}")
        return
    except Exception as error:  # the model is safe, and a report can be made later
        why = reason(error) if isinstance(error, OSError) else error
        messages.say(f"error: the report could not be written: {why}; the model is not affected")
        say_how_to_report(model, out)
        return
    messages.note(f"report in {out}")


def say_how_to_report(model: str, out: str) -> None:
    """Name the command that makes the report of a training that did not make it."""
    messages.say(f"no report; make it with: fcl report {model} --data DATA --out {out}")


def main() -> None:
    """Entry point of the script ``fcl report``."""
    run(command)


if __name__ == "__main__":
    main()
