"""``fcl stagewise``: ridge models over blocks of generated features."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import messages, refuse_same, show
from fcl.cli.config import given_options
from fcl.cli.options import (
    GroupedCommand,
    import_option,
    overwrite_option,
    table_options,
    version_option,
)
from fcl.cli.process import run
from fcl.cli.signals import Stop, stop_on_signals
from fcl.cli.stagewise_options import GROUPS, SETTINGS, TABLE
from fcl.errors import InputError
from fcl.units import format_seconds

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.stagewise.checkpoint import Saved
    from fcl.stagewise.learner import BlockDone
    from fcl.stagewise.settings import Settings
    from fcl.stagewise.train import Running, StagewiseResult

__all__ = ["command", "main"]

EPILOG = """\
\b
Examples:
  fcl stagewise train.zarr --features fourier:n=24576 --out model.fcl
  fcl stagewise train.zarr --features fourier:n=8192 --loss softmax --certify --out model.fcl
  fcl stagewise --resume model.fcl.checkpoint

In Python, fcl.stagewise.model.load_stagewise reads the model and predicts.

\b
Exit codes: 0 success, also if --max-time or a signal ended the training (the best model so far is
written), 1 the machine failed, 2 wrong option or input (nothing was written), 6 the checkpoint could
not be written.
"""

#: Options that a checkpoint keeps for the command, besides those of ``Settings``.
_KEPT = ("data", "x", "y", "weights", "valid", "regression", "features", "out")


class _StagewiseCommand(GroupedCommand):
    table = TABLE
    groups = GROUPS


@click.command("fcl stagewise", cls=_StagewiseCommand, epilog=EPILOG)
@table_options(TABLE)
@overwrite_option()
@import_option()
@version_option()
@click.pass_context
def command(ctx: click.Context, /, **params: Any) -> int:
    """Train a ridge model of several classes on DATA, block by block of generated features.

    DATA is as for fcl train. Features are made from their ids, used and forgotten: memory holds margins,
    weights and one block. After each block the model is validated, and the best one is written.
    """
    from fcl.stagewise.checkpoint import StateFolder

    given = given_options(ctx)
    folder = params["resume"]
    saved = None if folder is None else StateFolder(folder).load()
    options = params if saved is None else _resumed(params, given, saved)
    for name in ("data", "features", *(() if params["plan"] else ("out",))):
        if options[name] is None:
            raise click.UsageError(
                f"{'DATA' if name == 'data' else TABLE[name].spelled} is missing"
            )
    settings = _settings(options) if saved is None else _settings_of(saved, params)
    if options["valid"] is not None and "valid_fraction" in given:
        raise click.UsageError("give --valid or --valid-fraction, not both")
    checkpoint = _checkpoint(options)
    if not params["plan"]:
        _check_outputs(options, checkpoint, saved)
    with stop_on_signals() as stop:
        return _train(options, settings, saved, checkpoint, stop)


def _settings(options: Mapping[str, Any]) -> Settings:
    from fcl.stagewise.settings import Settings

    values = {name: options[name] for name in SETTINGS}
    if values["update"] is None:
        values["update"] = "gls" if values["loss"] == "softmax" else "ls"
    return Settings(**values).checked()


def _settings_of(saved: Saved, params: Mapping[str, Any]) -> Settings:
    return replace(saved.settings, memory=params["memory"]).checked()


def _resumed(params: dict[str, Any], given: Mapping[str, str], saved: Saved) -> dict[str, Any]:
    """The options of the checkpoint; raises InputError for options that would change its job."""
    wrong = sorted(given.keys() & ({*SETTINGS, *_KEPT} - {"memory", "out", "data"}))
    if wrong:
        raise InputError(
            f"{given[wrong[0]]}: a resumed job keeps the options of its checkpoint; leave it out, or "
            "start over"
        )
    kept = {name: saved.command.get(name) for name in _KEPT}
    if not all(isinstance(value, str | bool | None) for value in kept.values()):
        raise InputError(
            f"{params['resume']}: the options in the checkpoint are damaged; start over"
        )
    more = {name: params[name] for name in ("data", "out") if params[name] is not None}
    return params | kept | more


def _checkpoint(options: Mapping[str, Any]) -> Any:
    """The folder of checkpoints, or None."""
    from fcl.stagewise.checkpoint import StateFolder

    if options["no_checkpoint"] or options["plan"]:
        return None
    return StateFolder(options["resume"] or options["checkpoint"] or f"{options['out']}.checkpoint")


def _check_outputs(options: Mapping[str, Any], checkpoint: Any, saved: Saved | None) -> None:
    from fcl.model.atomic import check_output

    inputs = {name: options[name] for name in ("data", "valid")}
    refuse_same(options["out"], "--out", **inputs)
    check_output(options["out"], options["overwrite"])
    if checkpoint is None:
        return
    refuse_same(checkpoint.path, "--checkpoint", **inputs)
    checkpoint.lock.check()
    if checkpoint.lock.numbers() and saved is None and not options["overwrite"]:
        raise InputError(
            f"{checkpoint.path}: holds the checkpoint of an earlier job; resume it (--resume "
            f"{checkpoint.path}), choose another folder (--checkpoint), or start over (--overwrite)"
        )


def _open(options: Mapping[str, Any], path: str) -> DataSet:
    from fcl.data import open_data

    return open_data(path, x=options["x"], y=options["y"], weights=options["weights"])


def _train(
    options: Mapping[str, Any], settings: Settings, saved: Saved | None, checkpoint: Any, stop: Stop
) -> int:
    if not options["quiet"]:
        messages.say(f"reading {options['data']}")
    from fcl.features import parse_features
    from fcl.stagewise.job import make_job
    from fcl.stagewise.train import train_stagewise

    # a checkpoint may come from a stranger, so only a typed name is trusted
    features = parse_features(options["features"], None if saved is None else options["imports"])
    data = _open(options, options["data"])
    valid = None if options["valid"] is None else _open(options, options["valid"])
    running = _running(options, saved, checkpoint, stop)
    numbers = bool(options["regression"])
    if options["plan"]:
        from fcl.cli.report import plan_lines

        job = make_job(data, features, settings, valid, numbers, running.threads)
        show(plan_lines(job.plan))
        return 0
    stop.listening = True
    result = train_stagewise(data, features, settings, valid, numbers, running)
    result.model.save(options["out"], options["overwrite"])
    if not options["quiet"]:
        show(_lines(result, options["out"]))
    return 128 + stop.signum if stop.signum is not None else 0


def _running(
    options: Mapping[str, Any], saved: Saved | None, checkpoint: Any, stop: Stop
) -> Running:
    from fcl.stagewise.train import Running

    kept = {name: options[name] for name in _KEPT}
    for name in ("data", "valid", "out"):
        if kept[name] is not None:
            file, separator, group = kept[name].partition("::")
            kept[name] = os.path.abspath(file) + separator + group
    return Running(
        cores=options["cores"],
        scratch=options["scratch"],
        certify=options["certify"],
        max_time=options["max_time"],
        checkpoint=checkpoint,
        checkpoint_every=options["checkpoint_every"],
        resume=saved,
        command=kept,
        progress=None if options["quiet"] else _say_block,
        should_stop=stop.requested,
    )


def _say_block(done: BlockDone, left: float) -> None:
    """One line a block."""
    text = f"block {done.number}: {_scores(asdict(done))}, {format_seconds(done.seconds)}"
    messages.write(f"{text}, {format_seconds(left)} left")


def _scores(row: Mapping[str, Any]) -> str:
    names = {"loss": "loss", "valid_loss": "validation loss", "valid_error": "validation error"}
    values = {words: row[name] for name, words in names.items() if row[name] is not None}
    return ", ".join(f"{words} {value:.5g}" for words, value in values.items())


def _lines(result: StagewiseResult, out: str) -> list[str]:
    """How the training ended."""
    model = result.model
    lines = [f"stopped      {result.reason} after {len(model.history)} blocks of all visits"]
    if model.history:
        best = model.history[model.best_number - 1]
        lines.append(f"model        of block {model.best_number}: {_scores(best)}")
    if result.gap is not None:
        lines.append(
            f"gap          {result.gap.gap:.2e} to the joint optimum over "
            f"{result.gap.n_features:,} features; a further visit takes about "
            f"{format_seconds(result.visit_seconds)}"
        )
    return [*lines, f"written      {out}"]


def main() -> None:
    """Run ``fcl stagewise`` as a process."""
    run(command)


if __name__ == "__main__":
    main()
