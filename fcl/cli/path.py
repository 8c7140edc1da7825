"""``fcl-train --path``: train at many values of C, and write the chosen model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import (
    EXIT_CHECKPOINT,
    EXIT_FAILED,
    EXIT_UNFINISHED,
    Interrupted,
    messages,
    printable,
    show,
)
from fcl.cli.saving import save_result
from fcl.errors import FclError, InputError
from fcl.numerals import read_whole
from fcl.options import options_of_command
from fcl.options.option import TRAIN
from fcl.options.path import OF_SCORES, PATH_OPTIONS
from fcl.store import local_neighbour
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.cli.signals import Stop
    from fcl.data import DataSet
    from fcl.files.result_file import Output, Save
    from fcl.path.result import PathResult

_TABLE = options_of_command(TRAIN)
#: Options that a path does not take, and why.
_NOT_OF_PATHS = {
    "C": "a path finds its own values; give --C-max",
    "alpha": "a path finds its own values; give --C-max",
    "checkpoint": "a path keeps its points in the folder OUT.path",
    "checkpoint_every": "a path keeps each finished point in the folder OUT.path",
    "no_checkpoint": "a path keeps its points in the folder OUT.path",
    "initial": "each point starts from the model before",
    "disk_wait": "the points are in the folder OUT.path before the model is written",
}
#: Arguments of :func:`fcl.train` that :func:`fcl.train_path` does not have.
_NOT_ARGUMENTS = ("C", "alpha", "checkpoint", "checkpoint_every", "resume")
#: Folds of ``--cv groups:NAME``, or the number of groups if that is smaller.
GROUP_FOLDS = 5


def check_path_options(options: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Raise UsageError for options that do not go with ``--path``, or that need it."""
    if options["path"] is None:
        for name, option in _TABLE.items():
            if option.group == "path" and name in given:
                raise click.UsageError(f"{option.spelled} needs --path N")
        return
    for name, why in _NOT_OF_PATHS.items():
        if name in given:
            raise click.UsageError(f"{_TABLE[name].spelled} does not go with --path: {why}")
    if options["resume"] is not None and options["out"] is not None:
        _check_folder(options["resume"], local_neighbour(options["out"], ".path"))
    if options["outer"] is not None and options["cv"] is None:
        raise click.UsageError("--outer needs --cv, which chooses C in each outer fold")
    if "refit_alpha" in given and not options["refit"]:
        raise click.UsageError("--refit-alpha needs --refit")
    validates = options["valid"] or options["valid_fraction"]
    if options["cv"] is not None and validates:
        raise click.UsageError("give --cv, --valid or --valid-fraction, not two of them")
    for name in () if options["cv"] is not None or validates else OF_SCORES:
        if name in given:
            raise click.UsageError(
                f"{_TABLE[name].spelled} needs scores of held-out rows: give --cv, --valid "
                "or --valid-fraction"
            )
    if options["save_oof"] is not None:
        if options["cv"] is None:
            raise click.UsageError("--save-oof needs --cv: only folds hold every row out once")
        if not options["save_oof"].endswith((".npy", ".tsv")):
            raise click.UsageError(
                f"--save-oof: expected FILE.tsv, a table, or FILE.npy, got {options['save_oof']}"
            )


def _check_folder(given: str, folder: str) -> None:
    """Raise InputError unless ``--resume`` names the folder of points beside ``--out``."""
    if os.path.realpath(given) != os.path.realpath(folder):
        raise InputError(f"--resume {given}: expected the folder of points of --out, {folder}")
    if not os.path.isfile(os.path.join(folder, "path.json")):
        raise InputError(f"--resume {given}: holds no points of a path; leave --resume out")


def path_options(options: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The effective options of a command with ``--path``, whose jobs run inline by default."""
    driver = options["driver"] if "driver" in given else "inline"
    return {**options, "driver": driver, "checkpoint": None}


def path_outputs(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The files that ``--path`` writes besides the model, each with its option."""
    oof = options["save_oof"]
    found = [] if oof is None else [("--save-oof", oof)]
    return [*found, ("--refit", _refit_name(options["out"]))] if options["refit"] else found


def _refit_name(out: str) -> str:
    """The file of the refit: model.refit.fcl for model.fcl."""
    return f"{out.removesuffix('.fcl')}.refit.fcl"


def run_path(
    options: Mapping[str, Any],
    arguments: Callable[[], dict[str, Any]],
    output: Output,
    trusted: Collection[str],
    stop: Stop,
) -> int:
    """Train the path, write its files, and print its table; returns the exit code.

    Parameters
    ----------
    options : mapping
        Effective options of the command.
    arguments : callable
        Opens the data, and returns the arguments of :func:`fcl.train`.
    output : Output
        The file of the chosen model.
    trusted : collection of str
        Modules that models may import.
    stop : Stop
        Whether a signal asks for an end.
    """
    from fcl.run.reasons import StopReason

    folder = local_neighbour(options["out"], ".path")
    given = arguments()
    for name in _NOT_ARGUMENTS:
        del given[name]
    given |= {name: options[name] for name in PATH_OPTIONS if name != "points"}
    if options["patience"] is None:  # the default of a path
        del given["patience"]
    given |= _all_folds(options, given["data"])
    if options["overwrite"] and options["resume"] is None:
        _remove(folder)
    path = _train(options, given | {"folder": folder, "trusted": trusted}, stop)
    if stop.signum is not None and path.reason == StopReason.INTERRUPTED:
        messages.say(
            f"{folder} holds {counted(len(path.points), 'point')}; {_how_to_continue(options, folder)}"
        )
        return 128 + stop.signum
    if path.checkpoint_failed:
        messages.say(f"error: {folder} lacks the last points, which could not be written")
    written, moved = _write(options, path, given["data"], output)
    if not options["quiet"]:
        from fcl.cli.path_report import path_lines

        show(path_lines(path, written, folder))
    if moved:
        return EXIT_FAILED
    if path.checkpoint_failed:
        return EXIT_CHECKPOINT
    unfinished = not path.chosen.converged and not path.chosen.reason.is_chosen
    return EXIT_UNFINISHED if unfinished else 0


def _how_to_continue(options: Mapping[str, Any], folder: str) -> str:
    """How to continue an interrupted path: ``--overwrite`` would remove its points."""
    if not options["overwrite"]:
        return "the same command continues"
    return f"the same command with --resume {folder} continues"


def _remove(folder: str) -> None:
    """Remove the folder of an earlier path; raises InputError if it is not the folder of a path."""
    if not os.path.isdir(folder):
        return
    if not os.path.isfile(os.path.join(folder, "path.json")) and os.listdir(folder):
        raise InputError(f"{folder}: is not the folder of a path, and is never replaced; move it")
    from fcl.files.folder import CheckpointFolder

    with CheckpointFolder(folder):  # InputError if another job is writing its points there
        shutil.rmtree(folder)


def _all_folds(options: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """The arguments ``cv``, ``outer`` and ``groups`` for the texts of ``--cv`` and ``--outer``."""
    found, named = {}, set()
    for option in ("cv", "outer"):
        if (text := options[option]) is None:
            continue
        found[option], groups = _folds(f"--{option}", text, options, data)
        if groups is not None:
            named.add(text)
            found["groups"] = groups
    if len(named) > 1:
        raise InputError(
            f"--outer {options['outer']}: expected the groups of --cv {options['cv']}, since rows of one "
            "group are held out together everywhere; name the same groups"
        )
    return found


def _folds(option: str, text: str, options: Mapping[str, Any], data: Any) -> tuple[Any, Any]:
    """The folds that a text names: a number or the label of each row; and groups or None."""
    if (number := read_whole(text)) is not None:
        return number, None
    kind, _, name = text.partition(":")
    if kind not in ("groups", "folds") or not name:
        raise InputError(
            f"{option}: expected a number of folds, groups:NAME or folds:NAME, got {text}; NAME is an "
            "array of DATA, such as obs/chromosome"
        )
    from fcl.data import open_data
    from fcl.path.folds import encode_groups

    labels = open_data(options["data"], x=options["x"], y=None, groups=name).groups
    if kind == "folds":
        return labels, None
    groups = encode_groups(f"{option} {text}", labels, data.n_rows)
    return min(GROUP_FOLDS, int(groups.max()) + 1), groups


def _train(options: Mapping[str, Any], given: dict[str, Any], stop: Stop) -> PathResult:
    from fcl.cli.path_report import PathView
    from fcl.cli.watched import passes_view, watched
    from fcl.path.train import train_path
    from fcl.run.events import Jobs, PassDone

    view = PathView(passes_view(options, lines=options["verbose"]), options["quiet"])
    with watched(options, stop, view, (PassDone, Jobs)) as progress:
        try:
            return train_path(
                **given, points=options["path"], progress=progress, should_stop=stop.requested
            )
        except FclError:
            if left := _left(options, given["folder"]):
                messages.say(left)
            raise
        except KeyboardInterrupt:
            if stop.signum is None:
                raise
            left = _left(options, given["folder"]) or "nothing was written"
            raise Interrupted(stop.signum, left) from None


def _left(options: Mapping[str, Any], folder: str) -> str:
    """What a path that ended early has left behind; empty if there is nothing."""
    if not any("path.json" in files for _, _, files in os.walk(folder)):
        return ""
    return f"{folder} holds points; {_how_to_continue(options, folder)}"


def _write(
    options: Mapping[str, Any], path: PathResult, data: DataSet, output: Output
) -> tuple[list[tuple[str, str]], bool]:
    """Write the chosen model and the other outputs.

    Returns the name and the file of each, and whether one is elsewhere than wanted.
    """
    from fcl.files.result_file import Output, saved_bytes

    overwrite = options["overwrite"] or options["resume"] is not None
    written, moved = [], False

    def write(name: str, place: Output, save: Save) -> None:
        nonlocal moved
        moved |= save_result(place, save, f"the {name}")
        written.append((name, place.path))

    write("model", output, path.chosen.model.save)
    if path.refit is not None:
        place = Output(_refit_name(options["out"]), overwrite)
        write("refit model", place, path.refit.model.save)
    elif options["refit"]:
        messages.say("warning: the chosen model has no features, so there is no refit")
    if options["save_oof"] is not None and path.oof is not None:
        from fcl.path.held_out import file_of_margins

        content = file_of_margins(options["save_oof"], path, data, printable)
        write("out of fold", Output(options["save_oof"], overwrite), saved_bytes(content))
    return written, moved
