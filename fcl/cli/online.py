"""``fcl online``: learners that read rows once or a few times."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from fcl import kernels
from fcl.cli.common import EXIT_UNFINISHED, EXIT_USAGE, messages
from fcl.cli.config import effective_options
from fcl.cli.job import LearnSteps, learn
from fcl.cli.online_stream import STDIN, check_stream, stream_arguments
from fcl.cli.options import TableCommand
from fcl.cli.progress import OnlineLines
from fcl.clock import Clock
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.options import Resume, options_of_command
from fcl.options.online import ONLINE_OPTIONS
from fcl.options.option import ONLINE
from fcl.run.events import Event, OnlineProgress

#: Spellings of 16-bit weights, which are an option of another name here.
_GRID = re.compile(r"q[0-9]+\.[0-9]+")
EPILOG = """\
\b
Examples:
  fcl online train.zarr --features kmers:d=6 --alpha 1e-6 --out model.fcl
  fcl online train.zarr --features columns --C 0.1 --passes 3 --valid-fraction 0.1 --out model.fcl
  fcl online train.zarr --resume model.fcl --passes 5 --out model5.fcl
  cat rows.svm | fcl online - --columns 5000 --features columns --alpha 1e-4 --out model.fcl

Progress comes after 1,000 rows, 2,000, 4,000, ...: the mean loss of the rows of this pass, each predicted
before it was learnt ("seen" from the second pass on); the same since the line before; the loss of the
best constant; features with a weight; the sum of |w_j|.

fcl predict, fcl inspect, fcl report and fcl.load_model read the model; --initial and, in Python,
fcl.train(initial=model) start from it.

\b
Exit codes: 0 success, also if --max-time ended learning; 1 the machine failed, or --out was taken (the
model is beside it); 2 wrong option or input, or learning diverged (the model before the row that is named
was written); 3 --memory had no room for more weights (the model so far was written); 129, 130 and 143
signals (the model so far was written).
"""


#: Options that a resumed run takes from its file.
_FIXED = {
    name for name, option in options_of_command(ONLINE).items() if option.resume is Resume.FIXED
}


@click.command("fcl online", cls=TableCommand, epilog=EPILOG)
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Learn a sparse linear model from DATA row by row, in one pass or a few.

    DATA is as for fcl train, of which this is the first look: the problem is the same, and a last pass
    says how far the model is from its optimum. Or it is "-": svmlight lines from standard input, which
    are learnt in their order until they end, or a signal comes. They cannot be read again, so that the
    model has no certificate.
    """
    return learn(OnlineSteps(*effective_options(ctx), ctx.obj))


class OnlineSteps(LearnSteps):
    """A learner that reads rows once or a few times, from DATA or from standard input."""

    command, needs = ONLINE, ("data",)
    make_view, listens_from = OnlineLines, (OnlineProgress,)

    def __init__(self, options: dict[str, Any], *more: Any) -> None:
        super().__init__(options, *more)
        self._is_stream = options["data"] == STDIN
        self.saves_own_model = options["out"] is not None and options["out"] == options["resume"]
        self.inputs = ("valid", "config", "initial", *(() if self._is_stream else ("data",)))
        self._clock = Clock()

    def check(self) -> None:
        options, given = self.options, self.given
        super().check()
        check_stream(options, given)
        if options["resume"] is not None:
            wrong = sorted(given.keys() & _FIXED)
            if wrong:
                raise InputError(
                    f"{given[wrong[0]]}: a resumed run keeps the options of its file; leave it out, or "
                    "start over"
                )
        elif options["features"] is None:
            self.require("features")
        elif options["alpha"] is None and options["C"] is None:
            raise click.UsageError(
                "give --alpha or --C: the weight of the penalty, or of the losses"
            )
        if _GRID.fullmatch(options["weights"] or ""):
            raise InputError(
                f"--weights: expected an array of sample weights in DATA, got {options['weights']}; for "
                f"a table of such numbers give --method ogd --table {options['weights']}"
            )

    def open(self) -> dict[str, Any]:
        options = self.options
        if self._is_stream:
            arguments = stream_arguments(options, self.stop, self._should_stop)
        else:
            arguments = {name: options[o.parameter] for name, o in ONLINE_OPTIONS.items()}
        started = {"resume": options["resume"], "initial": self.initial}
        return arguments | self.open_rows(self._is_stream) | started

    def _should_stop(self) -> bool:
        self._clock.start()  # asked first when the first pass begins
        limit = self.options["max_time"]
        return self.stop.requested() or (limit is not None and self._clock.seconds >= limit)

    def plan(self, arguments: dict[str, Any]) -> list[str]:
        from fcl.drivers.online.train import plan_online

        return plan_online(**arguments).lines()

    def run(self, arguments: dict[str, Any], progress: Callable[[Event], None]) -> Any:
        from fcl.drivers.online.stream import learn_stream
        from fcl.drivers.online.train import run_online

        bare, output = self.options["bare"], self.outputs["--out"]
        if self._is_stream:
            arguments |= {"save": output, "bare": bare}
            self.stop.listening = True  # the rows that came before a signal are learnt
        else:
            arguments["certify"] = not self.options["no_certify"]
            arguments["save"] = None if bare else output
        run = learn_stream if self._is_stream else run_online
        with kernels.compilation.Compilation(lambda: None, self._clock):
            return run(**arguments, progress=progress, should_stop=self._should_stop)

    def save(self, result: Any) -> None:
        bare = self.options["bare"]
        self.outputs.write("--out", lambda path, replace: result.save(path, replace, bare=bare))
        # it may have been taken while the run saved what it had learnt
        self.outputs.moved |= self.outputs["--out"].path != self.options["out"]

    def failure(self, result: Any) -> int | None:
        from fcl.run.reasons import StopReason

        path = self.outputs["--out"].path
        if result.reason is StopReason.DIVERGED:
            messages.say(f"error: {result.message}; the model before this row is in {path}")
            return EXIT_USAGE
        if result.reason is StopReason.MEMORY:
            messages.say(f"error: {result.message}; the model so far is in {path}")
            return EXIT_UNFINISHED
        return None

    def summary(self, result: Any) -> list[str]:
        from fcl.cli.report import result_lines

        model = Fact("model", self.outputs["--out"].path)
        return result_lines([*result.facts(self.options["memory"]), model], result.model)
