"""Options that only the commands have, and the conversion of declared options to click."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from fcl import checks
from fcl.cli.common import Command
from fcl.errors import InputError
from fcl.options import (
    DURATION,
    FLAG,
    FROM_0,
    FROM_1,
    GROUPS,
    PATH,
    TEXT,
    TRAINING,
    Kind,
    Option,
    Resume,
    real,
)
from fcl.path.options import PATH_OPTIONS
from fcl.store import is_remote

_X = Option(TEXT, "data", "Array of the rows in DATA.", "X", name="x", from_file=True)
_OFFSET = "Array in DATA and DATA2 that is added to the margins."
_COVARIATES = (
    "Arrays in DATA and DATA2, separated by commas, whose coefficients are not penalised; categories "
    "become columns of 0 and 1."
)
_OUT = "Write the model to FILE."
_VALID = "Data to validate on after each pass."

_data = partial(Option, group="data", from_file=True)

#: Options of the command that a checkpoint keeps besides the options of training.
_FILE_OPTIONS = (
    _data(PATH, name="data", resume=Resume.FREE),
    _X,
    _data(TEXT, help="Array of the target in DATA.", default="y", name="y"),
    _data(
        TEXT,
        help="Array of the sample weights in DATA, and in DATA2 if it has one.",
        name="weights",
        metavar="NAME",
    ),
    _data(TEXT, help=_OFFSET, name="offset", metavar="NAME"),
    _data(TEXT, help=_COVARIATES, name="covariates", metavar="NAMES"),
    _data(PATH, help=_VALID, name="valid", metavar="DATA2", resume=Resume.FREE),
    Option(PATH, "output", _OUT, name="out", metavar="FILE", resume=Resume.FREE, from_file=False),
)


def _call_option(
    name: str, group: str, help: str, kind: Kind = FLAG, *, from_file: bool, **more: Any
) -> Option:
    """Declare an option of one call, which checkpoints do not keep."""
    more["from_file"] = from_file
    if kind is FLAG:
        more["default"] = False
    return Option(kind, group, help, name=name, resume=Resume.NOT_KEPT, planned=False, **more)


_PATH = (
    "Train at N values of C from C_min upwards, and choose one by the validation score. A path runs in "
    "one process unless --driver processes is given, which starts processes for each point, or --dask, "
    "which sends each fold as a whole job to the workers of a cluster."
)
_CV = "Cross-validate the path: K folds, folds of whole groups:NAME, or folds:NAME of rows."
_OUTER = "Nested cross-validation: choose C without each of these outer folds, and score it there."
_SAVE_OOF = "Write the margin of each row, by the fold that held it out, to FILE.npy."
_of_path = partial(_call_option, group="path", from_file=True)
_PATH_ONLY = (
    _of_path("path", help=_PATH, kind=FROM_1, metavar="N"),
    _of_path("cv", help=_CV, kind=TEXT, metavar="K|groups:NAME|folds:NAME"),
    _of_path("outer", help=_OUTER, kind=TEXT, metavar="K|groups:NAME|folds:NAME"),
    *(option for option in PATH_OPTIONS if option.name != "points"),
    _call_option("save_oof", "path", _SAVE_OOF, TEXT, metavar="FILE", from_file=False),
)
_WAIT = "How long to retry if the disk is full at the end."
_INITIAL = "Start from the weights of MODEL, of the same features."
_RESUME = "Continue from the last checkpoint in DIR."
_WARM_UP = "Compile all kernels now, or the kernels for --features, and exit; needs no DATA."
_REPORT = "Write a report of the model, an HTML page, with the rows of DATA2 or else DATA."
_CONFIG = "TOML file of options that say what is learnt; the command line says where to write."
_LOG_JSON = "Log each event as a line of JSON."
_VERBOSE = "Show the effective options and more messages."
_OVERWRITE = _call_option("overwrite", "output", "Replace existing outputs.", from_file=False)
_CALL_OPTIONS = (
    _call_option("config", "running", _CONFIG, TEXT, metavar="FILE", from_file=False),
    _call_option("plan", "running", "Print the memory plan and exit.", from_file=False),
    _call_option("warmup", "running", _WARM_UP, from_file=False),
    _call_option("initial", "running", _INITIAL, TEXT, metavar="MODEL", from_file=True),
    _call_option("no_checkpoint", "checkpoints", "Save no checkpoints.", from_file=True),
    _call_option("resume", "checkpoints", _RESUME, TEXT, metavar="DIR", from_file=False),
    _call_option("log_json", "output", _LOG_JSON, TEXT, metavar="FILE", from_file=False),
    _call_option("report", "output", _REPORT, TEXT, metavar="FILE", from_file=False),
    _call_option("disk_wait", "output", _WAIT, DURATION, default="60s", from_file=True),
    _OVERWRITE,
    _call_option("quiet", "output", "Show only warnings and errors.", from_file=True),
    _call_option("verbose", "output", _VERBOSE, from_file=True),
)


def _in_groups(options: Iterable[Option]) -> dict[str, Option]:
    ordered = sorted(options, key=lambda option: GROUPS.index(option.group))
    return {option.name: option for option in ordered}


#: All options of ``fcl-train``, and DATA, by name.
TABLE = _in_groups((*_FILE_OPTIONS, *TRAINING, *_PATH_ONLY, *_CALL_OPTIONS))
#: The options that need ``--path``.
PATH_ONLY = tuple(option.name for option in _PATH_ONLY if option.name != "path")
#: The options that a checkpoint keeps.
KEPT = {name: option for name, option in TABLE.items() if option.resume is not Resume.NOT_KEPT}
#: The options that a resumed job may change, as the user spells them.
MAY_CHANGE = ", ".join(
    "DATA" if option.name == "data" else option.spelled
    for option in KEPT.values()
    if option.resume is Resume.FREE
)


#: The end of the help of commands that write one output.
EXIT_CODES = """
\b
Exit codes: 0 success, 1 the machine failed or OUT was taken (the result is beside it), 2 wrong option
or input (nothing was written), 129, 130 and 143 signals (nothing was written).
"""


def table_options(table: Mapping[str, Option]) -> Callable[[Any], Any]:
    """Add all options of a table to a command, in its order."""

    def decorate(function: Any) -> Any:
        for option in reversed(list(table.values())):
            function = click_option(option)(function)
        return function

    return decorate


class GroupedCommand(Command):
    """A command whose help lists the options in groups; subclasses set the table and the groups.

    import_group : the group of ``--import``.
    """

    table: Mapping[str, Option]
    groups: Sequence[str]
    import_group = "model"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in self.groups}
        elsewhere = {"imports": self.import_group, "allowed_hosts": "checkpoints"}
        for param in self.get_params(ctx):
            name = str(param.name)
            group = self.table[name].group if name in self.table else elsewhere.get(name, "output")
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups[group].append(record)
        for group, records in groups.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(records)


class TrainCommand(GroupedCommand):
    """``fcl-train``: its help lists the options in groups."""

    table = TABLE
    groups = GROUPS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a second file is an error that names it, or shows how to convert both."""
        try:
            return super().parse_args(ctx, list(args))
        except click.UsageError:
            self._explain_files(_positional(self, ctx, args))
            raise

    @staticmethod
    def _explain_files(files: list[str]) -> None:
        """Raise InputError if two or more files were given that do not exist, or must be converted."""
        local = [path for path in files if not is_remote(path)]
        missing = [path for path in local if not os.path.exists(path.partition("::")[0])]
        if missing and len(files) > 1:
            does = "does" if len(missing) == 1 else "do"
            raise InputError(
                f"{', '.join(missing)} {does} not exist; check the name and the folder"
            )
        from fcl.data.foreign import convert_both_line  # late: it imports NumPy

        pair = [Path(path) for path in files[:2] if os.path.isfile(path)]
        line = convert_both_line(*pair) if len(pair) == 2 else None
        if line is not None:
            raise InputError(
                f"{pair[0]} and {pair[1]} are files to convert first: {line}"
            ) from None


def _positional(command: click.Command, ctx: click.Context, args: list[str]) -> list[str]:
    """The arguments that are neither options nor their values; empty if an option is wrong."""
    parser = command.make_parser(ctx)
    try:
        values, others, _ = parser.parse_args(list(args))
    except click.UsageError:
        return []
    # without DATA some versions of click give a value of a class of their own, others None
    return [value for value in (values.get("data"), *others) if isinstance(value, str)]


if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # not generic before click 8.3
    ParamType = click.ParamType


class _Value(ParamType):
    """The click type of a :class:`Kind`."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = kind.name

    def get_metavar(self, param: Any, ctx: Any = None) -> str | None:
        """Words to choose from as they are; click would write them in capitals."""
        return self.name if self.name.startswith("[") else None

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self.kind.read(value)
        except InputError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The words of the kind; without words, the shell completes names of files."""
        if not self.kind.words:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in self.kind.words if word.startswith(incomplete)]


#: The click type of arguments that are files; they are checked where they are opened.
FILE = _Value(PATH)
#: Click types of numbers, which are read as in all options and files, not as click reads them.
NUMBER, COUNT = _Value(real(checks.number)), _Value(FROM_0)


Decorator = Callable[[Any], Any]


def click_option(option: Option) -> Decorator:
    """The click option, or for ``data`` of the group of that name the argument."""
    default = option.default if option.command_default is None else option.command_default
    if option.name == option.group == "data":
        return click.argument("data", required=False, type=_Value(option.kind))
    if option.kind is FLAG:
        negation = f"/--no-{option.spelled[2:]}" if option in TRAINING else ""
        names = option.spelled + negation
        return click.option(
            names, is_flag=True, default=default, hidden=option.hidden, help=option.help
        )
    return click.option(
        option.spelled,
        option.name,
        type=_Value(option.kind),
        metavar=option.metavar,
        default=default,
        show_default=default is not None,
        hidden=option.hidden,
        help=option.help,
    )


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from fcl.version import __version__

        click.echo(f"{ctx.info_name} {__version__}")
        ctx.exit()


def version_option() -> Decorator:
    """``--version``; the version is looked up only on request."""
    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    )


def x_option() -> Decorator:
    """``--x``: the array of rows."""
    return click_option(_X)


def import_option() -> Decorator:
    """``--import MODULE``: modules that the user trusts, so that files may name them."""
    return click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="MODULE",
        help="Module of your own features that files may import; can be given several times.",
    )


def allow_host_option() -> Decorator:
    """``--allow-host HOST``: hosts to which a stranger's checkpoint may lead."""
    return click.option(
        "--allow-host",
        "allowed_hosts",
        multiple=True,
        metavar="HOST",
        help="With --resume: connect to HOST, although another user or machine wrote the checkpoint that "
        "names it; can be given several times.",
    )


def overwrite_option() -> Decorator:
    """``--overwrite``: whether to replace existing outputs."""
    return click_option(_OVERWRITE)


def train_options(function: Any) -> Any:
    """Decorate a function with all options of ``fcl-train``."""
    own = [click_option(option) for option in TABLE.values()]
    for decorate in reversed([*own, import_option(), allow_host_option(), version_option()]):
        function = decorate(function)
    return function
