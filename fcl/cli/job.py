"""What all commands do in one order: check, open, plan, run, write, say what was written."""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import (
    EXIT_CHECKPOINT,
    EXIT_FAILED,
    EXIT_UNFINISHED,
    Interrupted,
    messages,
    refuse_same,
    show,
)
from fcl.cli.foreign import foreign_format, native_rows
from fcl.cli.opening import call_by_files, initial_model, open_rows, open_valid
from fcl.cli.saving import KeptState, save_result
from fcl.errors import FclError, InputError
from fcl.options import options_of_command
from fcl.plain import plain
from fcl.store import local_path

if TYPE_CHECKING:
    from fcl.cli.progress import View
    from fcl.cli.signals import Stop
    from fcl.features import Spec
    from fcl.files.result_file import Output, Save
    from fcl.model import Model
    from fcl.run.events import Event


#: Options that name further files to read.
_FILES = ("genome", "negatives", "like", "names", "keep", "remove")
#: Options that do not describe a run.
NOT_SHOWN = ("plan", "warmup")


class OutputFiles:
    """The files that a command writes: checked before the work, written after it, and never lost.

    overwrite : whether they may replace existing files.
    inputs : files that no output may replace, by what they are.
    """

    def __init__(self, overwrite: bool, **inputs: str | None) -> None:
        self.moved = False  #: whether a result is elsewhere than wanted
        self.written: list[tuple[str, str]] = []  #: what was written, and where it is
        self._overwrite = overwrite
        self._inputs = inputs
        self._outputs: dict[str, tuple[str, Output]] = {}

    def add(self, option: str, path: str | None, what: str, own: bool = False) -> None:
        """Check an output, unless its path is None; raises InputError for a name that it cannot have.

        own : whether the job wrote the file that is there, and may replace it.
        """
        if path is None:
            return
        if path == "-":
            raise InputError(
                f"{option} -: expected a file; only fcl predict writes to standard output"
            )
        from fcl.files.atomic import check_output
        from fcl.files.result_file import Output

        before = {name: output.path for name, output in self._outputs.values()}
        refuse_same(path, option, **self._inputs)
        refuse_same(path, option, **before)
        check_output(path, self._overwrite or own)
        self._outputs[option] = what, Output(path, self._overwrite, own)

    def add_folder(self, path: str) -> Any:
        """Check the folder of ``--checkpoint``, in which no other output may be, and return it."""
        from fcl.files.folder import CheckpointFolder

        folder = CheckpointFolder(path)
        if not folder.numbers():  # else the folder is no part of the data, even if it lies there
            refuse_same(path, "--checkpoint", **self._inputs)
        for option, (_, output) in self._outputs.items():
            refuse_same(output.path, option, checkpoint=path)
        folder.check()
        return folder

    def write(self, option: str, save: Save | bytes, words: str = "", **more: Any) -> None:
        """Write the output of an option, if the command has it.

        words : what to call it in messages.  more : further arguments of :func:`save_result`.
        """
        from fcl.files.result_file import saved_bytes

        if option in self._outputs:
            what, output = self._outputs[option]
            save = saved_bytes(save) if isinstance(save, bytes) else save
            self.moved |= save_result(output, save, words or f"the {what}", **more)
            self.written.append((what, output.path))

    def __getitem__(self, option: str) -> Output:
        return self._outputs[option][1]

    @property
    def exit_code(self) -> int:
        """The exit code of a command that wrote its outputs."""
        return EXIT_FAILED if self.moved else 0


class LearnSteps(ABC):
    """What a command that learns a model does at each step of :func:`learn`.

    options : effective ones.
    given : options given now -> where, on the command line or in a TOML file.
    """

    command = ""  #: the name in the table of options
    script = ""  #: the command to resume a job with
    needs: tuple[str, ...] = ("data", "features")
    arrays: tuple[str, ...] = ("x", "y", "offset")  #: beside weights
    inputs: tuple[str, ...] = ("data", "valid", "config")  #: options that name files to keep
    saves_own_model = False  #: whether the file of ``--out`` is one that this job wrote
    resumes = False  #: whether this is a job that continues from its folder of checkpoints
    make_view: Callable[[], View]  #: of the events of the run, unless the user asked for quiet
    listens_from: tuple[type[Event], ...]  #: events from which on a signal only asks for a stop

    def __init__(self, options: dict[str, Any], given: Mapping[str, str], stop: Stop) -> None:
        self.options, self.given, self.stop = options, given, stop
        #: the options, with arrays of converted files in place of the files
        self.rows: Mapping[str, Any] = options
        self.features: Spec | None = None
        self.initial: Model | None = None
        self.view: View
        self.outputs = OutputFiles(options["overwrite"])

    @property
    def lost(self) -> str:
        """What a failed checkpoint means."""
        return "the last checkpoint could not be written"

    @property
    def trusted(self) -> Any:
        """Modules that the name of the features may import; None: any.

        A checkpoint or a TOML file may come from a stranger, so only a typed name is trusted.
        """
        return None if self.given.get("features") == "--features" else self.options["imports"]

    @property
    def resume_line(self) -> str:
        """The command that continues from the checkpoints, with the user's modules that it imports."""
        parts = [part.split(":") for part in (self.options["features"] or "").split(" + ")]
        own = [part[0].strip() for part in parts if part[1:] and "=" not in part[1]]
        modules = [f" --import {name}" for name in dict.fromkeys([*self.options["imports"], *own])]
        return f"{self.script} --resume {self.options['checkpoint']}{''.join(modules)}"

    def check(self) -> None:
        """Validate all that needs no data; raises InputError or UsageError."""
        from fcl.cli.config import RIVALS

        options, table = self.options, options_of_command(self.command)
        for name in self.needs:
            self.require(name)
        usual = (None, False)
        for pair in RIVALS:
            if all(
                options.get(name) not in usual
                and (name in self.given or options[name] != table[name].default_of_command)
                for name in pair
            ):
                words = " or ".join(table[name].spelled for name in pair)
                raise click.UsageError(f"give {words}, not both")

    def require(self, name: str) -> None:
        """Raise UsageError if an option is missing, or before an InputError of DATA."""
        options, data = self.options, self.options["data"]
        if options[name] is not None:
            return
        is_foreign = "format" in options and foreign_format(data, options) is not None
        if name == "features" and data is not None and not is_foreign:
            open_rows(data, options["y"])
        what = "DATA" if name == "data" else options_of_command(self.command)[name].spelled
        raise click.UsageError(f"{what} is missing")

    def more_outputs(self) -> Iterable[tuple[Any, ...]]:
        """Arguments of :meth:`OutputFiles.add` for each output beside the model."""
        return ()

    def check_outputs(self) -> None:
        """Check the names of all that the command writes."""
        options = self.options
        if options["out"] is None:
            raise click.UsageError("--out is missing: the file to write the model to")
        inputs = {name: options.get(name) for name in (*self.inputs, *_FILES)}
        self.outputs = OutputFiles(options["overwrite"], **inputs)
        self.outputs.add("--out", options["out"], "model", self.saves_own_model)
        for output in self.more_outputs():
            self.outputs.add(*output)
        log = options["log_json"]
        if log is not None:
            local_path(log, "logs")
            self.outputs.add("--log-json", log, "log")
            if os.path.exists(log) and not os.access(log, os.W_OK):
                raise InputError(f"--log-json {log}: is not writable; write elsewhere")
        if (path := options.get("checkpoint")) is not None:
            self._check_folder(path)

    def _check_folder(self, path: str) -> None:
        folder = self.outputs.add_folder(path)
        if self.resumes or self.options["overwrite"] or not folder.numbers():
            return
        if not folder.is_complete:
            raise InputError(
                f"{path}: holds the checkpoint of an earlier job; resume it (--resume {path}), choose "
                "another folder (--checkpoint), or start over (--overwrite)"
            )
        messages.note(
            f"{path}: the job there has reached its tolerance, and this job will replace its "
            f"checkpoints; to continue that job instead: {self.script} --resume {path} --tol SMALLER"
        )

    def read_small_inputs(self) -> None:
        """Import and validate the features and the initial model that the options name."""
        from fcl.features import parse_features

        if (text := self.options["features"]) is not None:
            self.features = parse_features(text, self.trusted)
        if self.options.get("initial") is not None:
            self.initial = initial_model(self.options)

    @abstractmethod
    def open(self) -> dict[str, Any]:
        """Open the data; returns the arguments of the learner."""

    def open_rows(self, is_stream: bool = False) -> dict[str, Any]:
        """The features and rows among the arguments; DATA is not opened if it is a stream."""
        rows = self.rows
        arrays = {name: rows[name] for name in self.arrays}
        found: dict[str, Any] = {"features": self.features}
        if not is_stream:
            found["data"] = open_rows(rows["data"], weights=rows["weights"], **arrays)
        found["valid"] = open_valid(rows, arrays)
        for role, more in ("data", self.options.get("negatives")), ("valid", None):
            if found.get(role) is not None and rows[role] != self.options[role]:
                call_by_files(found[role], self.options[role], more)
        return found

    @abstractmethod
    def plan(self, arguments: dict[str, Any]) -> list[str]:
        """The memory plan, as lines."""

    def listens(self, event: Event) -> bool:
        """Whether from this event on a signal only asks the run to stop."""
        return isinstance(event, self.listens_from)

    @abstractmethod
    def run(self, arguments: dict[str, Any], progress: Callable[[Event], None]) -> Any:
        """Learn; returns a result with the model, and perhaps ``checkpoint_failed``."""

    def left(self, kept: KeptState) -> str:
        """What a run that failed has left, and how to continue; empty if it left nothing."""
        return f"progress is saved; resume with: {self.resume_line}" if kept.is_newer else ""

    def finish(self, result: Any) -> int:
        """Write the results, show the summary, and return the exit code."""
        failed = getattr(result, "checkpoint_failed", False)
        if failed:
            messages.say(f"error: {self.lost}")
        self.save(result)
        if (ended := self.failure(result)) is not None:
            return ended
        if not messages.quiet:
            show(self.summary(result))
        self.report()
        if self.outputs.moved:
            return EXIT_FAILED
        if failed:
            return EXIT_CHECKPOINT
        if self.stop.signum is not None and self.was_interrupted(result):
            return 128 + self.stop.signum
        return EXIT_UNFINISHED if self.is_unfinished(result) else 0

    def save(self, result: Any) -> None:
        """Write the outputs."""
        self.outputs.write("--out", result.model.save)

    def failure(self, result: Any) -> int | None:
        """Say why the model is not the wanted one, and return the exit code; None if it is."""
        return None

    @abstractmethod
    def summary(self, result: Any) -> list[str]:
        """The summary, as lines."""

    def report(self) -> None:
        """Write the report, if the command writes one."""
        return

    def was_interrupted(self, result: Any) -> bool:
        """Whether a signal ended the run."""
        return True

    def is_unfinished(self, result: Any) -> bool:
        """Whether the run ended before its tolerance, without a limit of the user."""
        return False


def learn(learner: LearnSteps) -> int:
    """Run a command that learns a model, from its options to its exit code."""
    options, stop = learner.options, learner.stop
    learner.check()
    if not options["plan"]:
        learner.check_outputs()
    shown = {name: value for name, value in options.items() if name not in NOT_SHOWN}
    if options.get("verbose"):
        logging.getLogger("fcl").setLevel(logging.INFO)
        messages.write(json.dumps(plain(shown)))
    # before slow imports such as numba and zarr, so that the user sees at once that it runs
    messages.note(f"reading {'standard input' if options['data'] == '-' else options['data']}")
    learner.read_small_inputs()  # before a conversion, which may take long
    if "format" in options:  # the command takes files that are no arrays
        learner.rows = native_rows(options, learner.given)
    arguments = learner.open()
    if options["plan"]:
        show(learner.plan(arguments))
        return 0
    from fcl.cli.progress import View, watched

    kept = KeptState(options.get("checkpoint"))
    learner.view = View() if messages.quiet else learner.make_view()
    with watched(shown, stop, learner.view, learner.listens) as progress:
        try:
            result = learner.run(arguments, progress)
        except FclError:
            if left := learner.left(kept):
                messages.say(left)
            raise
        except KeyboardInterrupt:
            if stop.signum is None:
                raise
            raise Interrupted(stop.signum, learner.left(kept) or "nothing was written") from None
    return learner.finish(result)
