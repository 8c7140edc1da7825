"""What ``fcl train`` does at one value of C."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import messages
from fcl.cli.foreign import default_features
from fcl.cli.job import LearnSteps
from fcl.cli.progress import View, passes_view
from fcl.cli.signals import Stop
from fcl.errors import ConvergenceWarning, InputError
from fcl.facts import Fact
from fcl.options import TRAINING, options_of_command
from fcl.options.option import TRAIN
from fcl.run.events import Event, PassDone, Started

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.files.checkpoint import Checkpoint


class TrainSteps(LearnSteps):
    """A training at one value of C.

    resumed : the checkpoint to continue from.  Other parameters are as for :class:`LearnSteps`.
    """

    command, script = TRAIN, "fcl train"
    arrays = ("x", "y", "offset", "covariates")

    def __init__(
        self,
        options: dict[str, Any],
        given: Mapping[str, str],
        stop: Stop,
        resumed: Checkpoint | None,
    ) -> None:
        super().__init__(options, given, stop)
        self._resumed, self.resumes = resumed, resumed is not None
        if resumed is not None and "out" not in given and options["out"] is not None:
            from fcl.cli.resume import is_own_model

            # the better model may replace the one that this job wrote when it was stopped
            self.saves_own_model = is_own_model(options["out"], resumed, self.modules)

    @property
    def modules(self) -> list[str]:
        """Modules that the user names on the command line, so that files may import them."""
        typed = self.options["features"] if self.trusted is None else ""
        return [
            *self.options["imports"],
            *(part.partition(":")[0].strip() for part in typed.split(" + ")),
        ]

    # -- before the work

    def check(self) -> None:
        options, given = self.options, self.given
        if options["path"] is None:
            for name, option in options_of_command(TRAIN).items():
                if option.group == "path" and name in given:
                    raise click.UsageError(f"{option.spelled} needs --path N")
        if options["features"] is None and options["data"] is not None:
            options["features"] = default_features(options)
        super().check()
        if options["C"] is None and options["alpha"] is None and options["path"] is None:
            raise click.UsageError(
                "give --C or --alpha: the weight of the losses against the penalty"
            )
        self._check_driver()
        for name in ("scratch", "shared_files"):
            folder = options[name]
            if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
                raise InputError(
                    f"--{name.replace('_', '-')} {folder}: expected a writable folder; make it first"
                )

    def _check_driver(self) -> None:
        options, given = self.options, self.given
        driver = options["driver"]
        if options["dask"] is not None:
            if given.get("driver") and driver not in ("auto", "dask"):
                raise click.UsageError(f"the driver {driver} has no address of a cluster (dask)")
            driver = options["driver"] = "dask"
        if "writers" in given and driver not in ("auto", "processes"):
            raise click.UsageError(
                f"the driver {driver} has no writers; give --driver processes:writers=N"
            )
        if "threads" in given and ("writers" in given or driver not in ("auto", "inline")):
            raise click.UsageError(
                "--threads are those of one process; give --driver inline, or leave them out"
            )

    def more_outputs(self) -> Iterable[tuple[Any, ...]]:
        if self.options["report"] is not None:
            from fcl.report.figures import check_packages

            check_packages()
        yield "--report", self.options["report"], "report"

    def open(self) -> dict[str, Any]:
        options, rows = self.options, self.open_rows()
        options["loss"] = self._loss(rows["data"])  # a checkpoint keeps the loss in use
        return {name: options[name] for name in TRAINING} | rows | {"resume": self._resumed}

    def _loss(self, data: DataSet) -> str:
        """The loss that the user named; else softmax for more than two classes."""
        from fcl.data.outputs import count_classes

        found: str = self.options["loss"]
        if "loss" in self.given or self.resumes or data.target is None:
            return found
        n_classes = count_classes(data.target)
        if n_classes <= 2:
            return found
        messages.note(
            f"{data.target_name}: {n_classes:,} classes, so the loss is softmax; for one class against "
            "the rest, give a target of two labels and --loss logistic; for numbers, --loss squared"
        )
        return "softmax"

    def plan(self, arguments: dict[str, Any]) -> list[str]:
        from fcl.drivers.pass_time import measure_pass
        from fcl.drivers.train import planned_job

        lines, found = planned_job(**arguments).plan.lines(), measure_pass(**arguments)
        return lines if found is None else [*lines, found.text]

    # -- the work

    def make_view(self) -> View:
        return passes_view(lines=True)

    def listens(self, event: Event) -> bool:
        # the processes driver polls at all times; the inline driver only after its first pass, before
        # which it has nothing to save
        early = isinstance(event, Started) and event.options.get("driver") == "processes"
        return early or isinstance(event, PassDone)

    def run(self, arguments: dict[str, Any], progress: Callable[[Event], None]) -> Any:
        from fcl.cli.resume import command_options
        from fcl.drivers.train import run_training

        self.stop.checkpoints = self.options["checkpoint"] is not None
        # The command prints its own warning of an early stop, which names options of the command.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return run_training(
            **arguments,
            initial=self.initial,
            command=command_options(self.options),
            progress=progress,
            should_stop=self.stop.requested,
            should_checkpoint=self.stop.take_checkpoint_request,
        )

    # -- after the work

    def finish(self, result: Any) -> int:
        from fcl.cli.report import warning_line

        if warning := warning_line(result, self.options["tol"]):
            messages.say(warning)
        return super().finish(result)

    def save(self, result: Any) -> None:
        options, before = self.options, self.stop.signum
        hint = "no checkpoint holds it"
        if options["checkpoint"] is not None and not result.checkpoint_failed:
            hint = f"the checkpoint has its weights: write it with {self.resume_line} --out FILE"
        self.outputs.write(
            "--out",
            result.model.save,
            wait=options["disk_wait"],
            should_stop=lambda: self.stop.signum != before,
            hint=hint,
        )

    def summary(self, result: Any) -> list[str]:
        from fcl.cli.report import result_lines

        folder = self.options["checkpoint"]
        model = Fact("model", self.outputs["--out"].path)
        facts = [*result.facts(self.view.validation), model]
        if folder is not None and not result.checkpoint_failed:
            facts.append(Fact("checkpoint", f"{folder} (resume with: {self.resume_line})"))
        return result_lines(facts, result.model)

    def report(self) -> None:
        """Write the report of ``--report``; after a signal, say how to write it later."""
        if self.options["report"] is None:
            return
        from fcl.cli.report_command import report_on_training, say_how_to_report

        self.stop.listening = False  # the model is saved, so a signal may end the report at once
        written = self.outputs["--out"].path
        if self.stop.signum is None:
            report = self.outputs["--report"]
            report_on_training(written, report, self.rows, self.options, self.modules)
        else:
            say_how_to_report(written, self.options["report"])

    def was_interrupted(self, result: Any) -> bool:
        return result.reason == "interrupted"

    def is_unfinished(self, result: Any) -> bool:
        return not result.converged and not result.reason.is_chosen
