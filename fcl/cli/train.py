"""``fcl-train``: from a data set to a certified model."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import EXIT_FAILED, Command, messages, refuse_same
from fcl.cli.options import Duration, Positive, Size, overwrite_option, version_option, x_option
from fcl.cli.signals import Stop, stop_on_signals
from fcl.errors import ConvergenceWarning, InputError

if TYPE_CHECKING:
    from fcl.cli.progress import View
    from fcl.drivers.inline import TrainResult

__all__ = ["command", "main"]

EPILOG = """\
\b
Exit codes:
  0    done; also when --max-time or --max-passes ended it (a warning names the gap reached)
  1    the machine failed: a disk full, memory exhausted
  2    a wrong option or input; nothing was written
  130  SIGINT, 143 SIGTERM: the best model so far was written; a second signal leaves at once

Sizes: 768MiB, 4GiB, 2G. Times: 90s, 5m, 2h. The TOML of --config has the long names of the
options as keys; the command line goes before it.
"""


@click.command("fcl-train", cls=Command, epilog=EPILOG)
@click.argument("data", required=False)
@click.option("--features", metavar="SPEC", help="Family of features, such as kmers:d=8,origin=70.")
@click.option("--C", "C", type=Positive(), help="Weight of the losses; or --alpha.")
@click.option("--alpha", type=Positive(), help="Weight of the penalty: C = 1 / (alpha sum s_i).")
@click.option(
    "--loss",
    type=click.Choice(["logistic", "squared", "squared_hinge"]),
    default="logistic",
    show_default=True,
)
@click.option("--intercept/--no-intercept", default=True, help="An unpenalised constant (default).")
@x_option()
@click.option("--y", default="y", show_default=True, help="Array of the target in DATA.")
@click.option("--weights", metavar="NAME", help="Array of the sample weights in DATA.")
@click.option("--memory", type=Size(), default="4GiB", show_default=True, help="For everything.")
@click.option("--out", metavar="FILE", help="Where the model goes.")
@click.option("--valid", metavar="DATA2", help="Data to validate on after each pass.")
@click.option("--valid-fraction", type=Positive(below=1), help="Or this share of the rows of DATA.")
@click.option("--config", metavar="FILE", help="TOML file of options.")
@click.option("--tol", type=Positive(), default=1e-3, show_default=True, help="Relative gap.")
@click.option("--max-time", type=Duration(), help="Stop after this time.")
@click.option(
    "--max-passes",
    type=click.IntRange(min=1),
    help="Stop after so many passes (besides the first, of the null model).",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--block-rows", type=click.IntRange(64, 65_536), default=65_536, show_default=True)
@click.option("--scratch", metavar="DIR", help="Folder for prepared rows that memory cannot hold.")
@click.option("--driver", type=click.Choice(["inline"]), default="inline", show_default=True)
@click.option("--plan", is_flag=True, help="Print the memory plan and leave.")
@click.option("--log-json", metavar="FILE", help="Every event as a line of JSON.")
@overwrite_option()
@click.option("--warmup", is_flag=True, help="Compile all kernels now and leave; needs no DATA.")
@click.option("--quiet", is_flag=True, help="Warnings and errors only.")
@click.option("--verbose", is_flag=True, help="Show the effective options and more messages.")
@version_option()
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Train a sparse L1 model on DATA, and prove how far it is from the optimum.

    DATA is a Zarr folder or zip, an HDF5 file (file.h5::/group), a folder of .npy files or one
    X.npy. Minimises sum |w_j| + C sum s_i loss(y_i, m_i) over all features of the family and stops
    when (objective - lower bound) <= tol * objective.
    """
    if params["warmup"]:
        return _warm_up(quiet=params["quiet"])
    options = params
    if params["config"] is not None:
        from fcl.cli.config import merge_config

        options = merge_config(ctx, params["config"])
    _check(options)
    if options["verbose"]:
        import logging

        logging.getLogger("fcl").setLevel(logging.INFO)
    with stop_on_signals() as stop:
        return _plan(options) if options["plan"] else _train(options, stop)


def _check(options: dict[str, Any]) -> None:
    """All that can be refused before the data are opened; raises InputError or UsageError."""
    for name in ("data", "features"):
        if options[name] is None:
            what = "DATA" if name == "data" else "--features"
            raise click.UsageError(f"{what} is missing")
    if options["C"] is not None and options["alpha"] is not None:
        raise click.UsageError(
            "give --C or --alpha, not both: they are one number in two spellings"
        )
    if options["C"] is None and options["alpha"] is None:
        raise click.UsageError("give --C or --alpha: how much the losses weigh against the penalty")
    if options["valid"] is not None and options["valid_fraction"] is not None:
        raise click.UsageError("give --valid or --valid-fraction, not both")
    scratch = options["scratch"]
    if scratch is not None and not (os.path.isdir(scratch) and os.access(scratch, os.W_OK)):
        raise InputError(f"--scratch {scratch}: is not a folder that can be written; make it first")
    if options["plan"]:
        return
    if options["out"] is None:
        raise click.UsageError("--out is missing: where the model goes")
    from fcl.model.atomic import check_output

    inputs = {name: options[name] for name in ("data", "valid", "config")}
    for name, option in (("out", "--out"), ("log_json", "--log-json")):
        if options[name] is not None:
            refuse_same(options[name], option, **inputs)
            check_output(options[name], options["overwrite"])
    if options["log_json"] is not None:
        refuse_same(options["log_json"], "--log-json", model=options["out"])


def _arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Open what is to be read; the arguments that train and plan_training share."""
    if not options["quiet"]:
        # before numba, zarr and the like are imported: the user sees at once that it runs
        messages.say(f"reading {options['data']}")
    from fcl.data import open_data
    from fcl.features import parse_features

    features = parse_features(options["features"])
    arrays = {"x": options["x"], "y": options["y"]}
    arguments = {
        "data": open_data(options["data"], weights=options["weights"], **arrays),
        "features": features,
        "valid": None if options["valid"] is None else open_data(options["valid"], **arrays),
    }
    for name in ("C", "alpha", "loss", "intercept", "tol", "memory", "max_time", "max_passes"):
        arguments[name] = options[name]
    for name in ("seed", "block_rows", "scratch"):
        arguments[name] = options[name]
    if options["valid_fraction"] is not None:
        arguments["valid_fraction"] = options["valid_fraction"]
    return arguments


def _plan(options: dict[str, Any]) -> int:
    from fcl.cli.report import plan_lines
    from fcl.drivers.inline import plan_training

    arguments = _arguments(options)
    del arguments["scratch"]  # where scratch files lie does not change the plan
    click.echo("\n".join(plan_lines(plan_training(**arguments))))
    return 0


def _train(options: dict[str, Any], stop: Stop) -> int:
    from fcl.cli.report import result_lines, warning_line

    effective = {name: value for name, value in options.items() if name not in ("plan", "warmup")}
    if options["verbose"]:
        import json

        from fcl.plain import plain

        messages.write(json.dumps(plain(effective)))
    arguments = _arguments(options)
    result, view = _run(arguments, options, effective, stop)
    if warning := warning_line(result, options["tol"]):
        messages.say(warning)
    written, failed = _save(result, options["out"], options["overwrite"])
    if not options["quiet"]:
        click.echo("\n".join(result_lines(result, written, options["memory"], view.validation)))
    if failed:
        return EXIT_FAILED
    if result.reason == "interrupted" and stop.signum is not None:
        return 128 + stop.signum
    return 0


def _run(
    arguments: dict[str, Any], options: dict[str, Any], effective: dict[str, Any], stop: Stop
) -> tuple[TrainResult, View]:
    from fcl.cli.progress import JsonLog, LineView, LiveView, View
    from fcl.drivers.events import PassDone
    from fcl.drivers.inline import train

    with ExitStack() as stack:
        view: View = View() if options["quiet"] else LineView()
        if not options["quiet"] and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            view = LiveView()
        stack.enter_context(view)
        log = None
        if options["log_json"] is not None:
            log = stack.enter_context(JsonLog(options["log_json"], effective))

        def progress(event: Any) -> None:
            if isinstance(event, PassDone):
                stop.worth_saving = True  # from now on there is a model
            view(event)
            if log is not None:
                log(event)

        # the command has its own words for it
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = train(**arguments, progress=progress, should_stop=stop.requested)
    return result, view


def _save(result: TrainResult, out: str, overwrite: bool) -> tuple[str, bool]:
    """Write the model; where that fails, beside the temporary files: hours of work are in it.

    Returns where it is, and whether that is not where it was wanted.
    """
    try:
        result.model.save(out, overwrite=overwrite)
        return out, False
    except (OSError, InputError) as error:
        messages.say(f"error: the model could not be written: {error}")
    rescue = Path(tempfile.mkdtemp(prefix="fcl-model-")) / Path(out).name
    result.model.save(rescue)
    messages.say(f"it was written to {rescue} instead")
    return os.fspath(rescue), True


def _warm_up(quiet: bool) -> int:
    if not quiet:
        messages.say("compiling the kernels, which is done once")
    since = time.perf_counter()
    from fcl.drivers.warmup import warmup

    warmup()
    click.echo(f"kernels are ready after {time.perf_counter() - since:.1f} s")
    return 0


def main() -> None:
    """Entry point of the script ``fcl-train``."""
    command.main()


if __name__ == "__main__":
    main()
