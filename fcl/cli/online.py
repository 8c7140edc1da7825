"""``fcl online``: learners that read rows once or a few times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from fcl import kernels
from fcl.cli.common import (
    EXIT_FAILED,
    EXIT_UNFINISHED,
    EXIT_USAGE,
    Interrupted,
    messages,
    refuse_same,
    show,
)
from fcl.cli.config import given_options, merge_config
from fcl.cli.online_stream import STDIN, check_stream, stream_arguments
from fcl.cli.options import TableCommand
from fcl.cli.process import run
from fcl.cli.saving import save_result
from fcl.cli.signals import Stop, stop_on_signals
from fcl.clock import Clock
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.options import Resume, options_of_command
from fcl.options.online import ONLINE_OPTIONS
from fcl.options.option import ONLINE

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
    given = given_options(ctx)
    if params["config"] is not None:
        params, given = merge_config(ctx, params["config"])
    _check(params, given)
    # a TOML file may come from a stranger, so only a typed name is trusted
    trusted = None if given.get("features") == "--features" else params["imports"]
    with stop_on_signals() as stop:
        return _learn(params, trusted, stop)


def _check(options: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Validate all that needs no data."""
    resumed = options["resume"] is not None
    if options["data"] is None:
        raise click.UsageError("DATA is missing")
    check_stream(options, given)
    if resumed:
        wrong = sorted(given.keys() & _FIXED)
        if wrong:
            raise InputError(
                f"{given[wrong[0]]}: a resumed run keeps the options of its file; leave it out, or "
                "start over"
            )
    elif options["features"] is None:
        raise click.UsageError("--features is missing")
    elif (options["alpha"] is None) == (options["C"] is None):
        raise click.UsageError("give --alpha or --C: the weight of the penalty, or of the losses")
    if _GRID.fullmatch(options["weights"] or ""):
        raise InputError(
            f"--weights: expected an array of sample weights in DATA, got {options['weights']}; for a "
            f"table of such numbers give --method ogd --table {options['weights']}"
        )
    if options["valid"] is not None and options["valid_fraction"] is not None:
        raise click.UsageError("give --valid or --valid-fraction, not both")
    if options["plan"]:
        return
    if options["out"] is None:
        raise click.UsageError("--out is missing: the file to write the model to")
    from fcl.files.atomic import check_output

    inputs = {name: options[name] for name in ("data", "valid", "config", "initial")}
    if options["data"] == STDIN:
        del inputs["data"]
    refuse_same(options["out"], "--out", **inputs)
    check_output(options["out"], options["overwrite"] or options["out"] == options["resume"])
    if options["log_json"] is not None:
        refuse_same(options["log_json"], "--log-json", model=options["out"], **inputs)
        check_output(options["log_json"], options["overwrite"])


def _arguments(options: Mapping[str, Any], trusted: Any) -> dict[str, Any]:
    """Open the data; returns the arguments of ``train_online``."""
    from fcl.cli.opening import initial_model, open_rows, open_valid
    from fcl.features import parse_features

    arrays = {name: options[name] for name in ("x", "y", "offset")}
    data = open_rows(options["data"], weights=options["weights"], **arrays)
    features = options["features"]
    return {
        **{name: options[option.parameter] for name, option in ONLINE_OPTIONS.items()},
        "data": data,
        "features": None if features is None else parse_features(features, trusted),
        "valid": open_valid(options, arrays),
        "resume": options["resume"],
        "initial": initial_model(options),
    }


def _learn(options: Mapping[str, Any], trusted: Any, stop: Stop) -> int:
    is_stream = options["data"] == STDIN
    if not options["quiet"]:
        messages.say(f"reading {'standard input' if is_stream else options['data']}")
    from fcl.cli.online_report import OnlineLines
    from fcl.cli.progress import View
    from fcl.cli.report import result_lines
    from fcl.cli.watched import watched
    from fcl.drivers.online.stream import learn_stream
    from fcl.drivers.online.train import plan_online, train_online
    from fcl.files.result_file import Output
    from fcl.run import OnlineProgress, StopReason

    clock, limit = Clock(), options["max_time"]

    def should_stop() -> bool:
        clock.start()  # asked first when the first pass begins
        return stop.requested() or (limit is not None and clock.seconds >= limit)

    overwrite, resumed = options["overwrite"], options["resume"]
    output = Output(options["out"] or "", overwrite, own=options["out"] == resumed is not None)
    if is_stream:
        arguments = stream_arguments(options, trusted, stop, should_stop)
        arguments |= {"save": output, "bare": options["bare"]}
        stop.listening = True  # the rows that came before a signal are learnt
    else:
        arguments = _arguments(options, trusted)
        if options["plan"]:
            show(plan_online(**arguments).lines())
            return 0
        arguments["certify"] = not options["no_certify"]
        arguments["save"] = None if options["bare"] else output
    learn = learn_stream if is_stream else train_online
    view = View() if options["quiet"] else OnlineLines()
    with (
        kernels.compilation.Compilation(lambda: None, clock),
        watched(options, stop, view, OnlineProgress) as progress,
    ):
        try:
            result = learn(**arguments, progress=progress, should_stop=should_stop)
        except KeyboardInterrupt:
            if stop.signum is None:
                raise
            raise Interrupted(stop.signum) from None
    moved = save_result(
        output, lambda path, replace: result.save(path, replace, bare=options["bare"])
    )
    moved |= output.path != options["out"]  # perhaps while it learnt
    if result.reason is StopReason.DIVERGED:
        messages.say(f"error: {result.message}; the model before this row is in {output.path}")
        return EXIT_USAGE
    if result.reason is StopReason.MEMORY:
        messages.say(f"error: {result.message}; the model so far is in {output.path}")
        return EXIT_UNFINISHED
    if not options["quiet"]:
        facts = [*result.facts(options["memory"]), Fact("model", output.path)]
        show(result_lines(facts, result.model))
    if moved:
        return EXIT_FAILED
    return 128 + stop.signum if stop.signum is not None else 0


def main() -> None:
    """Run ``fcl online`` as a process."""
    run(command)


if __name__ == "__main__":
    main()
