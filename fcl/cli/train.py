"""``fcl-train``: from a data set to a certified model."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import (
    EXIT_CHECKPOINT,
    EXIT_FAILED,
    EXIT_UNFINISHED,
    Command,
    Interrupted,
    messages,
    refuse_same,
    show,
)
from fcl.cli.options import (
    ClassWeight,
    Duration,
    Loss,
    Positive,
    RowView,
    Size,
    import_option,
    overwrite_option,
    version_option,
    x_option,
)
from fcl.cli.process import run
from fcl.cli.signals import Stop, stop_on_signals
from fcl.errors import (
    ConvergenceWarning,
    FclError,
    GeneratorError,
    InputError,
    RepeatedDeaths,
    ScaleWarning,
    reason,
)

if TYPE_CHECKING:
    from fcl.cli.progress import View
    from fcl.drivers.train import TrainResult
    from fcl.model.checkpoint import Checkpoint

__all__ = ["command", "main"]

EPILOG = """\
\b
Exit codes:
  0    done; also if --max-time or --max-passes ended the run (a warning names the gap reached)
  1    the machine failed: a disk full, memory exhausted
  2    a wrong option or input, nothing was written; or a class of features returned wrong values
       during the run: there is a checkpoint, but no model
  3    the gap is above --tol and no limit of yours ended the run: the model is written, a message
       says why
  5    a process of the training died again and again; there is a checkpoint, but no model
  6    the last checkpoint could not be written; the model was, unless a message says otherwise
  130  SIGINT, 143 SIGTERM, 129 SIGHUP: a checkpoint and the best model so far were written; a
       second SIGINT or SIGTERM quits immediately

\b
Signals: SIGINT, SIGTERM and SIGHUP (not under nohup) as above; SIGUSR1 saves a checkpoint and the
run continues.

Sizes: 768MiB, 4GiB, 2G. Times: 90s, 5m, 2h. The TOML of --config has the long names of the
options as keys. The command line overrides the TOML, and both override the checkpoint of --resume.

--resume DIR continues from the last checkpoint in DIR. DATA is needed only if it was moved. Tolerance,
limits, memory, driver, row view and outputs may change, nothing else.
"""

#: reasons to stop that the user chose: a gap above the tolerance is no failure then
LIMITS = ("max-passes", "max-time", "interrupted")

#: options that are passed on to the driver unchanged
_SHARED_ARGUMENTS = (
    "C",
    "alpha",
    "l1_ratio",
    "standardize",
    "loss",
    "class_weight",
    "intercept",
    "tol",
    "memory",
    "max_time",
    "max_passes",
    "seed",
    "block_rows",
    "scratch",
    "driver",
    "writers",
    "row_view",
    "checkpoint",
    "checkpoint_every",
    "shared_files",
)


@click.command("fcl-train", cls=Command, epilog=EPILOG)
@click.argument("data", required=False)
@click.option(
    "--features",
    metavar="SPEC",
    help="Family of features: kmers:d=8,origin=70, columns, products:degree=2, module:Class:option=1 of "
    "your own; or several: 'kmers:d=6 + bag:d=8 * 2'.",
)
@click.option("--C", "C", type=Positive(), help="Weight of the losses; or --alpha.")
@click.option("--alpha", type=Positive(), help="Weight of the penalty: C = 1 / (alpha sum s_i).")
@click.option(
    "--l1-ratio",
    type=Positive(most=1),
    default=1.0,
    show_default=True,
    help="Share rho of |w| in the penalty; the rest goes to w^2 / 2 (elastic net).",
)
@click.option(
    "--standardize/--no-standardize",
    default=False,
    help="Penalise each weight in units of its feature's standard deviation, as glmnet does.",
)
@click.option(
    "--loss",
    type=Loss(),
    metavar="LOSS",
    default="logistic",
    show_default=True,
    help="Of labels: logistic, squared_hinge. Of numbers: squared, huber:delta=1 (outliers beyond delta "
    "count linearly), poisson (counts, log link).",
)
@click.option(
    "--class-weight",
    type=ClassWeight(),
    help="Multiplies the weights of the rows of each class; balanced: both weigh as much.",
)
@click.option("--intercept/--no-intercept", default=True, help="An unpenalised constant (default).")
@x_option()
@click.option("--y", default="y", show_default=True, help="Array of the target in DATA.")
@click.option("--weights", metavar="NAME", help="Array of the sample weights in DATA.")
@click.option(
    "--offset", metavar="NAME", help="Array in DATA and DATA2 that is added to the margins."
)
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
@click.option(
    "--driver",
    type=click.Choice(["processes", "inline"]),
    default="processes",
    show_default=True,
    help="Many processes, or one that is the same to the last bit each time.",
)
@click.option("--writers", type=click.IntRange(min=1), help="Of processes; default: the cores.")
@click.option(
    "--row-view",
    type=RowView(),
    default="auto",
    show_default=True,
    help="Rows of the trainer: a sample where that pays, or of about N. Sets speed and memory alone.",
)
@click.option("--checkpoint", metavar="DIR", help="Default: the name of the model + .checkpoint.")
@click.option("--no-checkpoint", is_flag=True, help="Save no checkpoints.")
@click.option(
    "--checkpoint-every", type=Duration(), default="5m", show_default=True, help="And at the end."
)
@click.option("--resume", metavar="DIR", help="Continue from the last checkpoint in DIR.")
@click.option("--no-help", is_flag=True, hidden=True, help="Writers and trainer share no cores.")
@click.option("--shared-files", metavar="DIR", hidden=True, help="Shared memory in files there.")
@click.option("--plan", is_flag=True, help="Print the memory plan and exit.")
@click.option("--log-json", metavar="FILE", help="Every event as a line of JSON.")
@click.option(
    "--disk-wait",
    type=Duration(),
    default="60s",
    show_default=True,
    help="How long to retry if the disk is full at the end.",
)
@overwrite_option()
@import_option()
@click.option(
    "--warmup",
    is_flag=True,
    help="Compile all kernels now, or those for --features, and exit; needs no DATA.",
)
@click.option("--quiet", is_flag=True, help="Warnings and errors only.")
@click.option("--verbose", is_flag=True, help="Show the effective options and more messages.")
@version_option()
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Train a sparse linear model on DATA, and prove how far it is from the optimum.

    DATA is a Zarr folder or zip, an HDF5 file (file.h5::/group), a folder of .npy files or one
    X.npy. Minimises sum (rho |w_j| + (1 - rho) w_j^2 / 2) + C sum s_i loss(y_i, m_i) over all features
    of the family and stops when (objective - lower bound) <= tol * objective.
    """
    with stop_on_signals() as stop:
        if params["warmup"]:
            return _warm_up(params["features"], quiet=params["quiet"])
        request = _request(ctx, params)
        _check(request)
        if request.options["verbose"]:
            import logging

            logging.getLogger("fcl").setLevel(logging.INFO)
        return _plan(request) if params["plan"] else _train(request, stop)


def _trusted(options: dict[str, Any], given: dict[str, str]) -> list[str]:
    """Modules that the user names in this command, so that files may import them."""
    typed = options["features"] if given.get("features") == "--features" else ""
    return [*options["imports"], *(part.partition(":")[0].strip() for part in typed.split(" + "))]


@dataclass(frozen=True)
class _Request:
    """The effective options, and where they come from."""

    options: dict[str, Any]
    given: dict[str, str]  #: spelling of those that were given now, on the command line or in TOML
    resumed: Checkpoint | None
    replaces_model: bool


def _request(ctx: click.Context, params: dict[str, Any]) -> _Request:
    from fcl.cli.config import given_options, merge_config

    options, given = params, given_options(ctx)
    if params["config"] is not None:
        options, given = merge_config(ctx, params["config"])
    folder = options["resume"]
    if folder is None:
        if options["no_checkpoint"]:
            if "checkpoint" in given:
                raise click.UsageError("give --checkpoint or --no-checkpoint, not both")
        elif options["checkpoint"] is None and options["out"] is not None:
            options = options | {"checkpoint": f"{options['out']}.checkpoint"}
        return _Request(options, given, None, options["overwrite"])
    from fcl.cli.resume import check_command, is_own_model, resume_options
    from fcl.model.checkpoint import CheckpointFolder

    resumed = CheckpointFolder(folder).load()
    check_command(ctx, resumed, folder)
    options = resume_options(options, given, resumed, folder)
    # the model that the job wrote when it was stopped makes way for the better one
    own = (
        "out" not in given
        and options["out"] is not None
        and is_own_model(options["out"], resumed, _trusted(options, given))
    )
    return _Request(options, given, resumed, options["overwrite"] or own)


def _check(request: _Request) -> None:
    """All that can be refused before the data are opened; raises InputError or UsageError."""
    options, given = request.options, request.given
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
    if "writers" in given and options["driver"] == "inline":
        raise click.UsageError(
            "--writers: the inline driver has no writers; give --driver processes"
        )
    for option in ("scratch", "shared_files"):
        folder = options[option]
        if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise InputError(
                f"--{option.replace('_', '-')} {folder}: is not a folder that can be written; "
                "make it first"
            )
    if not options["plan"]:
        _check_outputs(request)


def _check_outputs(request: _Request) -> None:
    options = request.options
    if options["out"] is None:
        raise click.UsageError("--out is missing: where the model goes")
    from fcl.model.atomic import check_output

    inputs = {name: options[name] for name in ("data", "valid", "config")}
    outputs = [("--out", options["out"], request.replaces_model)]
    if options["log_json"] is not None:
        outputs.append(("--log-json", options["log_json"], options["overwrite"]))
    for option, path, replace in outputs:
        refuse_same(path, option, **inputs)
        check_output(path, replace)
    if options["log_json"] is not None:
        refuse_same(options["log_json"], "--log-json", model=options["out"])
        if os.path.exists(options["log_json"]) and not os.access(options["log_json"], os.W_OK):
            raise InputError(f"--log-json {options['log_json']}: is not writable; write elsewhere")
    folder = options["checkpoint"]
    if folder is None:
        return
    from fcl.model.checkpoint import CheckpointFolder

    refuse_same(folder, "--checkpoint", **inputs)
    for option, path, _ in outputs:
        refuse_same(path, option, checkpoint=folder)
    place = CheckpointFolder(folder)
    place.check()
    if request.resumed is None and not options["overwrite"] and place.numbers():
        raise InputError(
            f"{folder}: holds the checkpoint of an earlier job; resume it (--resume {folder}), "
            "choose another folder (--checkpoint), or start anew (--overwrite)"
        )


def _arguments(request: _Request) -> dict[str, Any]:
    """Open what is to be read; the arguments that train and plan_training share."""
    options = request.options
    if not options["quiet"]:
        # before numba, zarr and the like are imported: the user sees at once that it runs
        messages.say(f"reading {options['data']}")
    from fcl.data import open_data
    from fcl.features import parse_features

    # a checkpoint or a TOML file may come from a stranger; the user types the command line
    typed = request.given.get("features") == "--features"
    features = parse_features(options["features"], None if typed else options["imports"])
    arrays = {name: options[name] for name in ("x", "y", "offset")}
    arguments: dict[str, Any] = {
        "data": open_data(options["data"], weights=options["weights"], **arrays),
        "features": features,
        "valid": None if options["valid"] is None else open_data(options["valid"], **arrays),
    }
    for name in _SHARED_ARGUMENTS:
        arguments[name] = options[name]
    if options["valid_fraction"] is not None:
        arguments["valid_fraction"] = options["valid_fraction"]
    return arguments | {"resume": request.resumed, "share_cores": not options["no_help"]}


def _plan(request: _Request) -> int:
    from fcl.cli.report import plan_lines
    from fcl.drivers.train import plan_training

    show(plan_lines(plan_training(**_arguments(request))))
    return 0


def _train(request: _Request, stop: Stop) -> int:
    from fcl.cli.report import result_lines, warning_line

    options = request.options
    if options["verbose"]:
        import json

        from fcl.plain import plain

        messages.write(json.dumps(plain(_effective(options))))
    stop.checkpoints = options["checkpoint"] is not None
    result, view = _run(request, stop)
    if warning := warning_line(result, options["tol"]):
        messages.say(warning)
    if result.checkpoint_failed:
        messages.say("error: the last checkpoint could not be written")
    written, failed = _save(result, request, stop)
    if not options["quiet"]:
        folder = None if result.checkpoint_failed else options["checkpoint"]
        show(result_lines(result, written, options["memory"], view.validation, folder))
    if failed:
        return EXIT_FAILED
    if result.checkpoint_failed:
        return EXIT_CHECKPOINT
    if result.reason == "interrupted" and stop.signum is not None:
        return 128 + stop.signum
    if not result.converged and result.reason not in LIMITS:
        return EXIT_UNFINISHED
    return 0


def _effective(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("plan", "warmup")}


def _run(request: _Request, stop: Stop) -> tuple[TrainResult, View]:
    options = request.options
    arguments = _arguments(request)
    from fcl.cli.progress import JsonLog, LineView, LiveView, View
    from fcl.cli.resume import command_options
    from fcl.drivers.events import PassDone, Started
    from fcl.drivers.train import train

    # the supervisor of processes polls at all times; the inline driver is busy until its first pass is
    # done, and has nothing to save before that
    listening_from = Started if options["driver"] == "processes" else PassDone
    with ExitStack() as stack:
        view: View = View() if options["quiet"] else LineView()
        if not options["quiet"] and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            view = LiveView()
        stack.enter_context(view)
        log = None
        if options["log_json"] is not None:
            log = stack.enter_context(JsonLog(options["log_json"], _effective(options)))

        def progress(event: Any) -> None:
            if isinstance(event, listening_from):
                stop.listening = True
            view(event)
            if log is not None:
                log(event)

        # the command words these warnings itself
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("always", ScaleWarning)
        warnings.showwarning = _say_warning  # type: ignore[assignment]
        try:
            result = train(
                **arguments,
                command=command_options(options),
                progress=progress,
                should_stop=stop.requested,
                should_checkpoint=stop.take_checkpoint_request,
            )
        except (RepeatedDeaths, GeneratorError):
            _say_how_to_resume(options["checkpoint"])
            raise
        except KeyboardInterrupt:
            if stop.signum is None:
                raise
            raise Interrupted(stop.signum) from None
    return result, view


def _say_warning(message: Warning | str, category: type[Warning], *where: Any) -> None:
    messages.say(f"warning: {message}")


def _say_how_to_resume(folder: str | None) -> None:
    from fcl.model.checkpoint import CheckpointFolder

    if folder is not None and CheckpointFolder(folder).numbers():
        messages.say(f"progress is saved; resume with: fcl-train --resume {folder}")


def _save(result: TrainResult, request: _Request, stop: Stop) -> tuple[str, bool]:
    """Write the model, or write it elsewhere if that fails: hours of work went into it.

    Returns its path, and whether that differs from the one of ``--out``.
    """
    from fcl.model.atomic import retry_while_full

    options = request.options
    out, before = options["out"], stop.signum
    try:
        retry_while_full(
            lambda: result.model.save(out, overwrite=request.replaces_model),
            options["disk_wait"],
            lambda text: messages.say(f"the model cannot be written to {out} yet: {text}"),
            lambda: stop.signum != before,
        )
        return out, False
    except Exception as error:  # a bug of fcl must not lose the model either
        why = reason(error) if isinstance(error, OSError) else error
        messages.say(f"error: the model could not be written: {why}")
    for place in (tempfile.gettempdir(), ".", os.path.expanduser("~")):
        try:
            rescue = tempfile.mkdtemp(prefix="fcl-model-", dir=place)
        except OSError:
            continue
        try:
            path = os.path.join(rescue, os.path.basename(out)[-60:])  # it may have been too long
            result.model.save(path)
        except Exception:
            shutil.rmtree(rescue, ignore_errors=True)
            continue
        messages.say(f"it was written to {path} instead; move it from there")
        return path, True
    folder = None if result.checkpoint_failed else options["checkpoint"]
    hint = "no checkpoint holds it"
    if folder is not None:
        hint = (
            f"the checkpoint has its weights: write it with fcl-train --resume {folder} --out FILE"
        )
    raise FclError(f"the model could not be written anywhere; {hint}")


def _warm_up(features: str | None, quiet: bool) -> int:
    if not quiet:
        messages.say("compiling the kernels, once")
    since = time.perf_counter()
    from fcl.drivers.kinds import kinds_named
    from fcl.drivers.warmup import warmup

    warmup(None if features is None else kinds_named(features))
    show([f"kernels are ready after {time.perf_counter() - since:.1f} s"])
    return 0


def main() -> None:
    """Entry point of the script ``fcl-train``."""
    run(command)


if __name__ == "__main__":
    main()
