"""``fcl-train``: from a data set to a certified model."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, replace
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
from fcl.cli.opening import initial_model
from fcl.cli.options import MAY_CHANGE, TrainCommand
from fcl.cli.path import check_path_options, path_options, path_outputs
from fcl.cli.process import run
from fcl.cli.saving import KeptState, save_result
from fcl.cli.signals import Stop, stop_on_signals
from fcl.errors import (
    ConvergenceWarning,
    FclError,
    InputError,
)
from fcl.facts import Fact
from fcl.options import TRAINING, options_of_command
from fcl.options.option import TRAIN
from fcl.store import kind_of, local_neighbour, local_path, locate

if TYPE_CHECKING:
    from fcl.cli.progress import View
    from fcl.data import DataSet
    from fcl.drivers.result import TrainResult
    from fcl.files.checkpoint import Checkpoint
    from fcl.files.result_file import Output

EPILOG = f"""\
\b
Exit codes:
  0    success; also if --max-time, --max-passes (a warning names the gap reached) or --patience ended
       the run
  1    the machine failed: full disk, out of memory; or another process took the name of an output, and
       a message names the file beside it
  2    wrong option or input: nothing was written, unless a message names the checkpoint of the passes
       before, as after a feature class returned wrong values during the run
  3    the gap is above --tol and none of your limits ended the run: the model is written, a message
       gives the reason
  5    a process of the training died repeatedly; there is a checkpoint, but no model
  6    the last checkpoint could not be written; the model was, unless a message says otherwise
  130  SIGINT, 143 SIGTERM, 129 SIGHUP: a checkpoint and the best model so far were written; a
       second SIGINT or SIGTERM quits immediately

\b
Signals: SIGINT, SIGTERM and SIGHUP (not under nohup) as above; SIGUSR1 saves a checkpoint, and the
run continues.

Sizes: 768MiB, 4GiB, 2G. Times: 90s, 5m, 2h. Keys in the TOML file of --config are the long names of
the options that say what is learnt; outputs, URLs and the like are given on the command line, since a
file may come from a stranger. The command line overrides the TOML, and both override the checkpoint
of --resume.

--resume DIR continues from the last checkpoint in DIR. DATA is needed only if it has moved. The resumed
job may change only {MAY_CHANGE}.
"""


@click.command("fcl-train", cls=TrainCommand, epilog=EPILOG)
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Train a sparse linear model on DATA, with a proven bound on its distance from the optimum.

    DATA is a Zarr folder or zip, an HDF5 file (file.h5::/group), a folder of .npy files or one
    X.npy; or the URL of a Zarr folder, such as s3://bucket/train.zarr. Minimises
    sum (rho |w_j| + (1 - rho) w_j^2 / 2) + C sum s_i loss(y_i, m_i) over all features of the family and
    stops when (objective - lower bound) <= tol * objective.
    """
    with stop_on_signals() as stop:
        if params["warmup"]:
            return _warm_up(params["features"], quiet=params["quiet"])
        request = _request(ctx, params)
        check_path_options(request.options, request.given)
        if request.options["path"] is not None:
            request = replace(request, options=path_options(request.options, request.given))
        _check(request)
        if request.options["verbose"]:
            import logging

            logging.getLogger("fcl").setLevel(logging.INFO)
        if params["plan"]:
            return _plan(request)
        return _train_path(request, stop) if request.options["path"] else _train(request, stop)


def _trusted(options: dict[str, Any], given: dict[str, str]) -> list[str]:
    """Modules that the user names on the command line, so that files may import them."""
    typed = options["features"] if given.get("features") == "--features" else ""
    return [*options["imports"], *(part.partition(":")[0].strip() for part in typed.split(" + "))]


@dataclass(frozen=True)
class _Request:
    """The effective options, and where they come from."""

    options: dict[str, Any]
    given: dict[str, str]  #: options given now -> where, on the command line or in a TOML file
    resumed: Checkpoint | None
    output: Output  #: the file of the model
    own_model: bool = False  #: whether that file holds a model that this job wrote earlier


def _request(ctx: click.Context, params: dict[str, Any]) -> _Request:
    from fcl.cli.config import given_options, merge_config
    from fcl.files.result_file import Output

    options, given = params, given_options(ctx)
    if params["config"] is not None:
        options, given = merge_config(ctx, params["config"])
    folder = options["resume"]
    if options["path"] is not None:  # --resume keeps its points, and may replace what it wrote
        own = folder is not None
        output = Output(options["out"] or "", options["overwrite"], own)
        return _Request(options, given, None, output, own)
    if folder is None:
        implied = options["checkpoint"] is None and not options["no_checkpoint"]
        if implied and options["out"] is not None:
            options = options | {"checkpoint": local_neighbour(options["out"], ".checkpoint")}
        return _Request(options, given, None, Output(options["out"] or "", options["overwrite"]))
    from fcl.cli.resume import check_command, is_own_model, resume_options
    from fcl.files.folder import CheckpointFolder

    resumed = CheckpointFolder(folder).load()
    check_command(resumed, folder)
    options = resume_options(options, given, resumed, folder)
    # the better model may replace the one that this job wrote when it was stopped
    own = (
        "out" not in given
        and options["out"] is not None
        and is_own_model(options["out"], resumed, _trusted(options, given))
    )
    output = Output(options["out"] or "", options["overwrite"], own)
    return _Request(options, given, resumed, output, own)


def _check(request: _Request) -> None:
    """Validate all that needs no data; raises InputError or UsageError."""
    from fcl.cli.config import RIVALS

    options, given, table = request.options, request.given, options_of_command(TRAIN)
    for name in ("data", "features"):
        if options[name] is None:
            if options["data"] is not None:
                _refuse_data(options["data"])
            what = "DATA" if name == "data" else "--features"
            raise click.UsageError(f"{what} is missing")
    for pair in RIVALS:
        if all(options[name] not in (None, False) for name in pair):
            words = " or ".join(table[name].spelled for name in pair)
            raise click.UsageError(f"give {words}, not both")
    if options["C"] is None and options["alpha"] is None and options["path"] is None:
        raise click.UsageError("give --C or --alpha: the weight of the losses against the penalty")
    if options["dask"] is not None:
        if given.get("driver") == "--driver" and options["driver"] != "dask":
            raise click.UsageError(f"give --dask or --driver {options['driver']}, not both")
        options["driver"] = "dask"
    if "threads" in given and "writers" in given:
        raise click.UsageError("give --threads, of one process, or --writers, not both")
    if "writers" in given and options["driver"] not in ("auto", "processes"):
        raise click.UsageError(
            f"--writers: the driver {options['driver']} has no writers; give --driver processes"
        )
    if "threads" in given and options["driver"] not in ("auto", "inline"):
        raise click.UsageError(
            f"--threads: the driver {options['driver']} has processes; give --driver inline"
            + ", or --writers" * (options["driver"] == "processes")
        )
    for option in ("scratch", "shared_files"):
        folder = options[option]
        if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise InputError(
                f"--{option.replace('_', '-')} {folder}: expected a writable folder; make it first"
            )
    if not options["plan"]:
        _check_outputs(request)


def _refuse_data(path: str) -> None:
    """Raise InputError for DATA that does not exist, or must be converted first."""
    from fcl.data.foreign import refuse_foreign

    file = path.partition("::")[0]
    if not kind_of(locate(file)):
        raise InputError(f"{file} does not exist; check the name and the folder")
    refuse_foreign(file)


def _check_outputs(request: _Request) -> None:
    options = request.options
    if options["out"] is None:
        raise click.UsageError("--out is missing: the file to write the model to")
    from fcl.files.atomic import check_output

    inputs = {name: options[name] for name in ("data", "valid", "config")}
    outputs = [("--out", options["out"], options["overwrite"] or request.own_model)]
    outputs += [(option, path, outputs[0][2]) for option, path in path_outputs(options)]
    if options["log_json"] is not None:
        outputs.append(("--log-json", options["log_json"], options["overwrite"]))
    if options["report"] is not None:
        from fcl.report.extras import check_extras

        check_extras()
        refuse_same(options["report"], "--report", model=options["out"], log=options["log_json"])
        outputs.append(("--report", options["report"], options["overwrite"]))
    for option, path, overwrite in outputs:
        refuse_same(path, option, **inputs)
        check_output(path, overwrite)
    if options["log_json"] is not None:
        local_path(options["log_json"], "logs")
        refuse_same(options["log_json"], "--log-json", model=options["out"])
        if os.path.exists(options["log_json"]) and not os.access(options["log_json"], os.W_OK):
            raise InputError(f"--log-json {options['log_json']}: is not writable; write elsewhere")
    folder = options["checkpoint"]
    if folder is None:
        return
    from fcl.files.folder import CheckpointFolder

    place = CheckpointFolder(folder)
    if (
        not place.numbers()
    ):  # a folder with checkpoints is no part of the data, even if it lies there
        refuse_same(folder, "--checkpoint", **inputs)
    for option, path, _ in outputs:
        refuse_same(path, option, checkpoint=folder)
    place.check()
    if request.resumed is not None or options["overwrite"] or not place.numbers():
        return
    if not place.is_complete:
        raise InputError(
            f"{folder}: holds the checkpoint of an earlier job; resume it (--resume {folder}), "
            "choose another folder (--checkpoint), or start over (--overwrite)"
        )
    if not options["quiet"]:
        messages.say(
            f"{folder}: the job there has reached its tolerance, and this job will replace its "
            f"checkpoints; to continue that job instead: fcl-train --resume {folder} --tol SMALLER"
        )


def _arguments(request: _Request) -> dict[str, Any]:
    """Open the data; returns the arguments that train and plan_training share."""
    options = request.options
    if not options["quiet"]:
        # before slow imports such as numba and zarr, so that the user sees at once that it runs
        messages.say(f"reading {options['data']}")
    from fcl.cli.opening import open_rows, open_valid
    from fcl.features import parse_features

    # a checkpoint or a TOML file may come from a stranger, so only the command line is trusted
    typed = request.given.get("features") == "--features"
    features = parse_features(options["features"], None if typed else options["imports"])
    arrays = {name: options[name] for name in ("x", "y", "offset", "covariates")}
    data = open_rows(options["data"], weights=options["weights"], **arrays)
    options["loss"] = _loss(request, data)  # a checkpoint keeps the loss in use
    return {name: options[name] for name in TRAINING} | {
        "data": data,
        "features": features,
        "valid": open_valid(options, arrays),
        "resume": request.resumed,
    }


def _loss(request: _Request, data: DataSet) -> str:
    """The loss that the user named; else softmax for more than two classes."""
    from fcl.data.outputs import count_classes

    options = request.options
    found: str = options["loss"]
    if "loss" in request.given or request.resumed is not None or data.target is None:
        return found
    n_classes = count_classes(data.target)
    if n_classes <= 2:
        return found
    if not options["quiet"]:
        messages.say(
            f"{data.target_name}: {n_classes:,} classes, so the loss is softmax; for one class against "
            "the rest, give a target of two labels and --loss logistic; for numbers, --loss squared"
        )
    return "softmax"


def _plan(request: _Request) -> int:
    from fcl.drivers.pass_time import measure_pass
    from fcl.drivers.train import plan_training

    arguments = _arguments(request)
    if request.options["path"] is not None:
        # the plan is the same at every C; patience counts points there
        arguments |= {"alpha": 1.0, "patience": None}
        if request.options["dask"] is not None:  # of each job that a worker runs
            arguments |= {"driver": "inline", "dask": None}
    lines = plan_training(**arguments).lines()
    found = measure_pass(**arguments)
    show(lines if found is None else [*lines, found.text])
    return 0


def _train_path(request: _Request, stop: Stop) -> int:
    from fcl.cli.path import run_path

    trusted = _trusted(request.options, request.given)
    code = run_path(request.options, lambda: _arguments(request), request.output, trusted, stop)
    if code in (0, EXIT_UNFINISHED):  # else there is no model at --out
        _report(request.output.path, request, stop)
    return code


def _train(request: _Request, stop: Stop) -> int:
    from fcl.cli.report import result_lines, warning_line
    from fcl.run.reasons import StopReason

    options = request.options
    if options["verbose"]:
        import json

        from fcl.cli.watched import effective
        from fcl.plain import plain

        messages.write(json.dumps(plain(effective(options))))
    stop.checkpoints = options["checkpoint"] is not None
    result, view = _run(request, stop)
    if warning := warning_line(result, options["tol"]):
        messages.say(warning)
    if result.checkpoint_failed:
        messages.say("error: the last checkpoint could not be written")
    written, failed = _save(result, request, stop)
    if not options["quiet"]:
        facts = [*result.facts(view.validation), Fact("model", written)]
        if options["checkpoint"] is not None and not result.checkpoint_failed:
            how = f"resume with: fcl-train --resume {options['checkpoint']}"
            facts.append(Fact("checkpoint", f"{options['checkpoint']} ({how})"))
        show(result_lines(facts, result.model))
    _report(written, request, stop)
    if failed:
        return EXIT_FAILED
    if result.checkpoint_failed:
        return EXIT_CHECKPOINT
    if result.reason == StopReason.INTERRUPTED and stop.signum is not None:
        return 128 + stop.signum
    if not result.converged and not result.reason.is_chosen:
        return EXIT_UNFINISHED
    return 0


def _report(written: str, request: _Request, stop: Stop) -> None:
    """Write the report of ``--report``; after a signal, say how to write it later."""
    options = request.options
    if options["report"] is None:
        return
    from fcl.cli.report_command import report_on_training, say_how_to_report

    stop.listening = False  # the model is saved, so a signal may end the report at once
    if stop.signum is None:
        report_on_training(written, options, _trusted(options, request.given))
    else:
        say_how_to_report(written, options["report"])


def _run(request: _Request, stop: Stop) -> tuple[TrainResult, View]:
    options = request.options
    arguments = _arguments(request)
    from fcl.cli.resume import command_options
    from fcl.cli.watched import passes_view, watched
    from fcl.drivers.train import train
    from fcl.run.events import Event, PassDone, Started

    view, kept = passes_view(options, lines=True), KeptState(options["checkpoint"])
    with watched(options, stop, view, PassDone) as watcher:

        def progress(event: Event) -> None:
            # the processes driver polls at all times; the inline driver only after its first pass,
            # before which it has nothing to save
            stop.listening |= (
                isinstance(event, Started) and event.options.get("driver") == "processes"
            )
            watcher(event)

        # The command prints its own warning of an early stop, which names options of the command.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            result = train(
                **arguments,
                initial=initial_model(options),
                command=command_options(options),
                progress=progress,
                should_stop=stop.requested,
                should_checkpoint=stop.take_checkpoint_request,
            )
        except FclError:
            if kept.is_newer:
                messages.say(kept.how_to_resume("fcl-train"))
            raise
        except KeyboardInterrupt:
            if stop.signum is None:
                raise
            left = kept.how_to_resume("fcl-train") if kept.is_newer else "nothing was written"
            raise Interrupted(stop.signum, left) from None
    return result, view


def _save(result: TrainResult, request: _Request, stop: Stop) -> tuple[str, bool]:
    """Write the model; returns its path, and whether it differs from ``--out``."""
    options, before = request.options, stop.signum
    folder = None if result.checkpoint_failed else options["checkpoint"]
    hint = "no checkpoint holds it"
    if folder is not None:
        hint = (
            f"the checkpoint has its weights: write it with fcl-train --resume {folder} --out FILE"
        )
    moved = save_result(
        request.output,
        result.model.save,
        wait=options["disk_wait"],
        should_stop=lambda: stop.signum != before,
        hint=hint,
    )
    return request.output.path, moved


def _warm_up(features: str | None, quiet: bool) -> int:
    if not quiet:
        messages.say("compiling the kernels, once")
    since = time.perf_counter()
    from fcl.drivers.kinds import OUTPUTS, kinds_named
    from fcl.drivers.warmup import warmup

    warmup(None if features is None else {*kinds_named(features), OUTPUTS})
    show([f"kernels are ready after {time.perf_counter() - since:.1f} s"])
    return 0


def main() -> None:
    """Entry point of the script ``fcl-train``."""
    run(command)


if __name__ == "__main__":
    main()
