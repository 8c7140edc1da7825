"""``fcl stagewise``: ridge models over blocks of generated features."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import EXIT_CHECKPOINT, EXIT_FAILED, messages, refuse_same, show
from fcl.cli.config import given_options, merge_config
from fcl.cli.options import TableCommand
from fcl.cli.process import run
from fcl.cli.saving import KeptState, save_result
from fcl.cli.signals import Stop, stop_on_signals
from fcl.errors import FclError, InputError
from fcl.facts import Fact, aligned
from fcl.options import options_of_command
from fcl.options.option import STAGEWISE
from fcl.options.stagewise import SETTINGS
from fcl.store import absolute, kind_of, local_neighbour, locate

if TYPE_CHECKING:
    from fcl.stagewise.checkpoint import SavedState
    from fcl.stagewise.settings import Settings
    from fcl.stagewise.train import StagewiseRunOptions

EPILOG = """\
\b
Examples:
  fcl stagewise train.zarr --features fourier:n=24576 --out model.fcl
  fcl stagewise train.zarr --features fourier:n=8192 --loss softmax --certify --out model.fcl
  fcl stagewise --resume model.fcl.checkpoint

fcl predict, fcl inspect, fcl report and fcl.load_model read the model. Keys in the TOML file of --config
are the long names of the options that say what is learnt; the command line overrides them.

\b
Exit codes: 0 success, also if --max-time or a signal ended the training (the best model so far is
written), 1 the machine failed or --out was taken (the model is beside it), 2 wrong option or input
(nothing was written, unless a message names a checkpoint), 6 the last checkpoint could not be written
(the model was).
"""

#: Options that a checkpoint keeps for the command, besides those of ``Settings``.
_KEPT = ("data", "x", "y", "weights", "offset", "valid", "regression", "features", "out")


#: Options of fcl train that belong to its L1 penalty.
_PENALTY = ("--C", "--C-max", "--penalty", "--l1", "--l1-ratio", "--group", "--path")


class _StagewiseCommand(TableCommand):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an option of another penalty is an error that names the command for it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in _PENALTY:
                raise
            raise InputError(
                f"{error.option_name}: stagewise models have a ridge penalty, --alpha; for an L1 penalty "
                "use fcl train"
            ) from error


@click.command("fcl stagewise", cls=_StagewiseCommand, epilog=EPILOG)
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Train a ridge model of several classes on DATA, block by block of generated features.

    DATA is as for fcl train. Features are made from their ids, used and forgotten: memory holds margins,
    weights and one block. After each block the model is validated, and the best one is written.
    """
    from fcl.stagewise.checkpoint import StateFolder

    given = given_options(ctx)
    if params["config"] is not None:
        params, given = merge_config(ctx, params["config"])
    folder = params["resume"]
    saved = None if folder is None else StateFolder(folder).load()
    options = params if saved is None else _resumed(params, given, saved)
    for name in ("data", "features", *(() if params["plan"] else ("out",))):
        if options[name] is None:
            raise click.UsageError(
                f"{'DATA' if name == 'data' else options_of_command(STAGEWISE)[name].spelled} is missing"
            )
    settings = _settings(options) if saved is None else _settings_of(saved, params, given)
    if options["valid"] is not None and "valid_fraction" in given:
        raise click.UsageError("give --valid or --valid-fraction, not both")
    checkpoint = _checkpoint(options)
    if not params["plan"]:
        if saved is not None:
            _check_unfinished(options, saved, settings)
        _check_outputs(options, checkpoint, saved)
    # a checkpoint or a TOML file may come from a stranger, so only a typed name is trusted
    trusted = None if given.get("features") == "--features" else options["imports"]
    with stop_on_signals() as stop:
        return _train(_Job(options, settings, saved, checkpoint, trusted), stop)


@dataclass(frozen=True)
class _Job:
    """What a command was asked to do.

    options : effective options.
    saved : the checkpoint to resume from, if any.
    checkpoint : folder of checkpoints, or None.
    trusted : modules that the name of the features may import; None: any.
    """

    options: Mapping[str, Any]
    settings: Settings
    saved: SavedState | None
    checkpoint: Any
    trusted: Collection[str] | None


def _settings(options: Mapping[str, Any]) -> Settings:
    from fcl.stagewise.settings import Settings

    values = {name: options[name] for name in SETTINGS}
    if values["update"] is None:
        values["update"] = "ls" if values["loss"] in (None, "squared") else "gls"
    return Settings(**values).checked()


def _settings_of(
    saved: SavedState, params: Mapping[str, Any], given: Mapping[str, str]
) -> Settings:
    """The settings of a resumed job."""
    changed = {name: params[name] for name in saved.settings.ends if name in given}
    return replace(saved.settings, **changed, memory=params["memory"]).checked()


def _resumed(params: dict[str, Any], given: Mapping[str, str], saved: SavedState) -> dict[str, Any]:
    """The options of the checkpoint; raises InputError for options that would change its job."""
    ends = saved.settings.ends
    wrong = sorted(given.keys() & ({*SETTINGS, *_KEPT} - {*ends, "memory", "out", "data"}))
    if wrong:
        raise InputError(
            f"{given[wrong[0]]}: a resumed job of {saved.settings.update} keeps the options of its "
            f"checkpoint, except --{ends[0]}, --{ends[1]}, limits and memory; leave it out, or start over"
        )
    from fcl.files.signature import check_places

    hosts = params["allowed_hosts"]
    check_places(params["resume"], "stagewise", saved.command, saved.signature, given, hosts)
    if "features" not in saved.command:
        raise InputError(
            f"{params['resume']}: the job of this checkpoint was started from Python; resume it there "
            "(StagewiseRunOptions(resume=...))"
        )
    kept = {name: value for name, value in saved.command.items() if name in _KEPT}
    more = {name: params[name] for name in ("data", "out") if params[name] is not None}
    return params | kept | more


def _checkpoint(options: Mapping[str, Any]) -> Any:
    """The folder of checkpoints, or None."""
    from fcl.stagewise.checkpoint import StateFolder

    if options["no_checkpoint"] or options["plan"]:
        return None
    return StateFolder(
        options["resume"] or options["checkpoint"] or local_neighbour(options["out"], ".checkpoint")
    )


def _check_unfinished(options: Mapping[str, Any], saved: SavedState, settings: Settings) -> None:
    """Raise InputError for a finished job whose model would be written once more."""
    end = saved.state.end(settings)
    if end is None or options["overwrite"] or not kind_of(locate(options["out"])):
        return
    noun, most = "visits", settings.n_visits
    if settings.calibrates:
        noun, most = "rounds", settings.n_rounds
    why, more = {
        "done": (f"all {noun} are done", f"--{noun} above {most}"),
        "patience": ("its patience ran out", f"--patience above {settings.most_waits}"),
    }[end]
    raise InputError(
        f"{options['resume']}: the job of this checkpoint has finished ({why}), and {options['out']} "
        f"exists already; to continue give {more} and --overwrite, or to write the model once more, "
        "such as with --certify, --overwrite alone"
    )


def _check_outputs(options: Mapping[str, Any], checkpoint: Any, saved: SavedState | None) -> None:
    from fcl.files.atomic import check_output

    inputs = {name: options[name] for name in ("data", "valid", "config")}
    refuse_same(options["out"], "--out", **inputs)
    check_output(options["out"], options["overwrite"])
    if options["log_json"] is not None:
        refuse_same(options["log_json"], "--log-json", model=options["out"], **inputs)
        check_output(options["log_json"], options["overwrite"])
    if checkpoint is None:
        return
    refuse_same(checkpoint.path, "--checkpoint", **inputs)
    checkpoint.lock.check()
    if checkpoint.lock.numbers() and saved is None and not options["overwrite"]:
        raise InputError(
            f"{checkpoint.path}: holds the checkpoint of an earlier job; resume it (--resume "
            f"{checkpoint.path}), choose another folder (--checkpoint), or start over (--overwrite)"
        )


def _train(job: _Job, stop: Stop) -> int:
    options = job.options
    if not options["quiet"]:
        messages.say(f"reading {options['data']}")
    from fcl.cli.opening import open_rows, open_valid
    from fcl.cli.progress import View
    from fcl.cli.stagewise_report import BlockLines
    from fcl.cli.watched import watched
    from fcl.features import parse_features
    from fcl.files.result_file import Output
    from fcl.run.events import Started
    from fcl.stagewise.train import train_stagewise

    features = parse_features(options["features"], job.trusted)
    arrays = {name: options[name] for name in ("x", "y", "offset")}
    data = open_rows(options["data"], weights=options["weights"], **arrays)
    valid = open_valid(options, arrays)
    numbers = bool(options["regression"])
    if options["plan"]:
        from fcl.stagewise.job import make_job

        running = _running(job, stop)
        planned = make_job(
            data, features, job.settings, valid, numbers, running.threads, running.certify
        )
        show(planned.plan.lines())
        return 0
    view = View() if options["quiet"] else BlockLines()
    kept = KeptState(None if job.checkpoint is None else str(job.checkpoint.path))
    with watched(options, stop, view, Started) as progress:
        running = replace(_running(job, stop), progress=progress)
        try:
            result = train_stagewise(data, features, job.settings, valid, numbers, running)
        except FclError:
            if kept.is_newer:
                messages.say(kept.how_to_resume("fcl stagewise"))
            raise
    if result.checkpoint_failed:
        messages.say("error: the last checkpoint could not be written")
    output = Output(options["out"], options["overwrite"])
    moved = save_result(output, result.model.save)
    if not options["quiet"]:
        show(aligned([*result.facts(), Fact("written", output.path)]))
    if moved:
        return EXIT_FAILED
    if result.checkpoint_failed:
        return EXIT_CHECKPOINT
    return 128 + stop.signum if stop.signum is not None else 0


def _running(job: _Job, stop: Stop) -> StagewiseRunOptions:
    from fcl.stagewise.train import StagewiseRunOptions

    options = job.options
    kept = {name: options[name] for name in _KEPT}
    for name in ("data", "valid", "out"):
        if kept[name] is not None:
            file, separator, group = kept[name].partition("::")
            kept[name] = absolute(file) + separator + group
    return StagewiseRunOptions(
        cores=options["cores"],
        scratch=options["scratch"],
        certify=options["certify"],
        max_time=options["max_time"],
        checkpoint=job.checkpoint,
        checkpoint_every=options["checkpoint_every"],
        resume=job.saved,
        command=kept,
        should_stop=stop.requested,
    )


def main() -> None:
    """Run ``fcl stagewise`` as a process."""
    run(command)


if __name__ == "__main__":
    main()
