"""``fcl train --path``: train at many values of C, and write the chosen model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from fcl.cli.common import messages, printable
from fcl.cli.job import LearnSteps
from fcl.cli.progress import PathView, View, passes_view
from fcl.cli.report import path_lines
from fcl.cli.saving import KeptState
from fcl.cli.signals import Stop
from fcl.cli.training import TrainSteps
from fcl.errors import InputError
from fcl.numerals import read_whole
from fcl.options import options_of_command
from fcl.options.option import TRAIN
from fcl.options.path import OF_SCORES, PATH_OPTIONS
from fcl.run.events import Event, Jobs, PassDone
from fcl.run.reasons import StopReason
from fcl.store import local_neighbour
from fcl.units import counted

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


class PathSteps(TrainSteps):
    """A training along a path, whose jobs run inline by default."""

    def __init__(self, options: dict[str, Any], given: Mapping[str, str], stop: Stop) -> None:
        driver = options["driver"] if "driver" in given else "inline"
        super().__init__({**options, "driver": driver, "checkpoint": None}, given, stop, None)
        # it keeps the points, and may replace what the path wrote
        self.saves_own_model = options["resume"] is not None

    @property
    def folder(self) -> str:
        """The folder of the points."""
        return local_neighbour(self.options["out"], ".path")

    def check(self) -> None:
        """Raise UsageError for options that do not go with ``--path``, or that need others."""
        options, given = self.options, self.given
        for name, why in _NOT_OF_PATHS.items():
            if name in given:
                raise click.UsageError(f"{_TABLE[name].spelled} does not go with --path: {why}")
        if self.saves_own_model and options["out"] is not None:
            self._check_points(options["resume"])
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
        super().check()

    def _check_points(self, given: str) -> None:
        """Raise InputError unless ``--resume`` names the folder of points beside ``--out``."""
        if os.path.realpath(given) != os.path.realpath(self.folder):
            raise InputError(
                f"--resume {given}: expected the folder of points of --out, {self.folder}"
            )
        if not os.path.isfile(os.path.join(self.folder, "path.json")):
            raise InputError(f"--resume {given}: holds no points of a path; leave --resume out")

    def more_outputs(self) -> Iterable[tuple[Any, ...]]:
        own = self.saves_own_model
        yield "--save-oof", self.options["save_oof"], "out of fold", own
        refit = f"{self.options['out'].removesuffix('.fcl')}.refit.fcl"
        yield "--refit", refit if self.options["refit"] else None, "refit model", own
        for output in super().more_outputs():
            yield *output, own

    def plan(self, arguments: dict[str, Any]) -> list[str]:
        # the plan is the same at every C; patience counts points there
        arguments |= {"alpha": 1.0, "patience": None}
        if self.options["dask"] is not None:  # of each job that a worker runs
            arguments |= {"driver": "inline", "dask": None}
        return super().plan(arguments)

    def make_view(self) -> View:
        return PathView(passes_view(lines=self.options["verbose"]))

    def listens(self, event: Event) -> bool:
        return isinstance(event, PassDone | Jobs)

    def run(self, arguments: dict[str, Any], progress: Callable[[Event], None]) -> Any:
        from fcl.path.train import run_path

        options = self.options
        for name in _NOT_ARGUMENTS:
            del arguments[name]
        self._data = arguments["data"]
        arguments |= {name: options[option.parameter] for name, option in PATH_OPTIONS.items()}
        if options["patience"] is None:  # the default of a path
            del arguments["patience"]
        arguments |= _all_folds(self.rows, self._data)
        if options["overwrite"] and options["resume"] is None:
            _remove(self.folder)
        return run_path(
            **arguments,
            folder=self.folder,
            trusted=self.modules,
            progress=progress,
            should_stop=self.stop.requested,
        )

    def left(self, kept: KeptState) -> str:
        if not any("path.json" in files for _, _, files in os.walk(self.folder)):
            return ""
        return f"{self.folder} holds points; {self._how_to_continue()}"

    def _how_to_continue(self) -> str:
        """How to continue an interrupted path: ``--overwrite`` would remove its points."""
        if not self.options["overwrite"]:
            return "the same command continues"
        return f"the same command with --resume {self.folder} continues"

    @property
    def lost(self) -> str:
        """What a failed checkpoint means."""
        return f"{self.folder} lacks the last points, which could not be written"

    def finish(self, result: Any) -> int:
        if self.stop.signum is None or result.reason is not StopReason.INTERRUPTED:
            return LearnSteps.finish(self, result)
        points = counted(len(result.points), "point")
        messages.say(f"{self.folder} holds {points}; {self._how_to_continue()}")
        return 128 + self.stop.signum

    def save(self, result: Any) -> None:
        self.outputs.write("--out", result.chosen.model.save)
        if result.refit is not None:
            self.outputs.write("--refit", result.refit.model.save)
        elif self.options["refit"]:
            messages.say("warning: the chosen model has no features, so there is no refit")
        if self.options["save_oof"] is not None and result.oof is not None:
            from fcl.path.held_out import file_of_margins

            path = self.options["save_oof"]
            self.outputs.write("--save-oof", file_of_margins(path, result, self._data, printable))

    def summary(self, result: Any) -> list[str]:
        return path_lines(result, self.outputs.written, self.folder)

    def is_unfinished(self, result: Any) -> bool:
        return super().is_unfinished(result.chosen)


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
