"""``fcl stagewise``: ridge models over blocks of generated features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.config import effective_options
from fcl.cli.job import LearnSteps, learn
from fcl.cli.options import TableCommand
from fcl.cli.progress import BlockLines
from fcl.cli.resume import absolute_paths, check_command
from fcl.errors import InputError
from fcl.facts import Fact, aligned
from fcl.options import options_of_command
from fcl.options.convert import FILE_OPTIONS
from fcl.options.option import STAGEWISE
from fcl.options.stagewise import SETTINGS
from fcl.run.events import Event, Started
from fcl.store import kind_of, local_neighbour, locate

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
_KEPT = (
    "data", "x", "y", "weights", "offset", "valid", "regression", "features", "out", *FILE_OPTIONS
)  # fmt: skip


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
    return learn(StagewiseSteps(*effective_options(ctx), ctx.obj))


class StagewiseSteps(LearnSteps):
    """A training of ridge models, block by block."""

    command, script = STAGEWISE, "fcl stagewise"
    make_view, listens_from = BlockLines, (Started,)

    def __init__(self, options: dict[str, Any], given: Mapping[str, str], *more: Any) -> None:
        from fcl.stagewise.checkpoint import StateFolder

        folder, self._saved = options["resume"], None
        if folder is not None:
            self._saved = StateFolder(folder).load()
            options = _resumed(options, given, self._saved)
        self.resumes = folder is not None
        checkpoint = options["checkpoint"] if folder is None else folder
        if options["no_checkpoint"] or options["plan"] or options["out"] is None:
            checkpoint = None
        elif checkpoint is None:
            checkpoint = local_neighbour(options["out"], ".checkpoint")
        super().__init__({**options, "checkpoint": checkpoint}, given, *more)

    def check(self) -> None:
        options, saved = self.options, self._saved
        super().check()
        self._settings = (
            _settings(options) if saved is None else _settings_of(saved, options, self.given)
        )
        if not options["plan"] and options["out"] is not None and saved is not None:
            _check_unfinished(options, saved, self._settings)

    def open(self) -> dict[str, Any]:
        numbers = bool(self.options["regression"])
        return self.open_rows() | {"settings": self._settings, "numbers": numbers}

    def plan(self, arguments: dict[str, Any]) -> list[str]:
        from fcl.stagewise.job import make_job

        running = self._running()
        found = make_job(**arguments, cores=running.threads, certify=running.certify)
        return found.plan.lines()

    def run(self, arguments: dict[str, Any], progress: Callable[[Event], None]) -> Any:
        from fcl.stagewise.train import train_stagewise

        return train_stagewise(**arguments, running=replace(self._running(), progress=progress))

    def summary(self, result: Any) -> list[str]:
        return aligned([*result.facts(), Fact("written", self.outputs["--out"].path)])

    def _running(self) -> StagewiseRunOptions:
        from fcl.stagewise.checkpoint import StateFolder
        from fcl.stagewise.train import StagewiseRunOptions

        options = self.options
        table = options_of_command(STAGEWISE)
        kept = absolute_paths({name: options[name] for name in _KEPT}, table)
        folder = options["checkpoint"]
        return StagewiseRunOptions(
            cores=options["cores"],
            scratch=options["scratch"],
            certify=options["certify"],
            max_time=options["max_time"],
            checkpoint=None if folder is None else StateFolder(folder),
            checkpoint_every=options["checkpoint_every"],
            resume=self._saved,
            command=kept,
            should_stop=self.stop.requested,
        )


def _settings(options: Mapping[str, Any]) -> Settings:
    from fcl.stagewise.settings import Settings

    values = {name: options[name] for name in SETTINGS}
    if values["update"] is None:
        values["update"] = "ls" if values["loss"] in (None, "squared") else "gls"
    return Settings(**values).checked()


def _settings_of(
    saved: SavedState, options: Mapping[str, Any], given: Mapping[str, str]
) -> Settings:
    """The settings of a resumed job."""
    changed = {name: options[name] for name in saved.settings.ends if name in given}
    return replace(saved.settings, **changed, memory=options["memory"]).checked()


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
    table = options_of_command(STAGEWISE)
    check_command(kept, {name: table[name] for name in _KEPT}, 1, params["resume"])
    more = {name: params[name] for name in ("data", "out") if params[name] is not None}
    return params | kept | more


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
