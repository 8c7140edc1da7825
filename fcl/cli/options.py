"""The options of commands for click, made from their declarations in :mod:`fcl.options`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from fcl.cli.common import Command, messages
from fcl.cli.signals import stop_on_signals
from fcl.errors import InputError
from fcl.options import GROUPS, Kind, Option, Resume, choices_of_command, options_of_command
from fcl.options.choices import new_spellings
from fcl.options.kinds import FLAG, PATH
from fcl.options.option import TRAIN
from fcl.store import is_remote

#: The end of the help of commands that write one output.
EXIT_CODES = """
\b
Exit codes: 0 success, 1 the machine failed or OUT was taken (the result is beside it), 2 wrong option
or input (nothing was written), 129, 130 and 143 signals (nothing was written).
"""


if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # not generic before click 8.3
    ParamType = click.ParamType

_ON_COMMAND_LINE = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


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


def click_parameter(option: Option) -> click.Parameter:
    """The click option, or for ``data`` of the group of that name the argument."""
    if option.name == option.group == "data":
        return click.Argument(["data"], required=False, type=_Value(option.kind))
    more: dict[str, Any] = {"hidden": option.hidden or option.old, "help": option.help}
    default = option.default_of_command
    if option.sets is not None:
        parameter, value, usual = option.sets
        return click.Option([option.spelled, parameter], flag_value=value, default=usual, **more)
    if option.kind is FLAG:
        negation = f"/--no-{option.spelled[2:]}" if option.negates else ""
        names = [option.spelled + negation, option.parameter]
        return click.Option(names, is_flag=True, default=default, **more)
    if option.required or option.multiple:
        more |= {"required": option.required, "multiple": option.multiple}
    else:
        more |= {"default": default, "show_default": default not in (None, "")}
    names, kind = [option.spelled, option.parameter], _Value(option.kind)
    return click.Option(names, type=kind, metavar=option.metavar, **more)


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from fcl.version import __version__

        click.echo(f"{ctx.info_name} {__version__}")
        ctx.exit()


def version_option() -> click.Option:
    """``--version``; the version is looked up only on request."""
    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version and exit.",
    )


class TableCommand(Command):
    """A command whose options are declared in the table, below its name without fcl."""

    def __init__(self, name: str, params: Sequence[click.Parameter] = (), **more: Any) -> None:
        word = name[len("fcl ") :]  # or of fcl-NAME
        self.table, self.groups = options_of_command(word), GROUPS[word]
        self.choices = choices_of_command(word)
        own = map(click_parameter, self.table.values())
        super().__init__(name, params=[*params, *own, version_option()], **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and replace choices by their parts."""
        rest = super().parse_args(ctx, args)
        given = ctx.meta["fcl.given"] = {}
        for param in self.params:
            name = str(param.name)
            if ctx.get_parameter_source(name) in _ON_COMMAND_LINE:
                positional = isinstance(param, click.Argument)
                given[name] = name.upper() if positional else f"--{name.replace('_', '-')}"
        if not ctx.resilient_parsing:
            self.replace_choices(ctx.params, given)
        return rest

    def replace_choices(
        self, values: dict[str, Any], given: dict[str, str], kept: Collection[str] = ()
    ) -> None:
        """Replace the choices among given options by their parts, and say how to spell old parts.

        values, given : all options, and those from one source -> where; this changes both.
        kept : options from elsewhere, which override this source.
        """
        old = {name for name in given if name in self.table and self.table[name].old}
        for choice in self.choices:
            if (where := given.get(choice.name)) is None:
                continue
            found, _ = choice.read(values[choice.name], self.table)
            for name, value in found.items():
                if name in old:
                    raise click.UsageError(f"give {given[name]} or {where}, not both")
                if name not in kept:
                    values[name], given[name] = value, where
        for name, (choice, text) in new_spellings(self.choices, values, old).items():
            spelled = self.table[choice.name].spelled
            messages.say(
                f"{given[name]} is an old spelling, which the next version will not accept; give "
                f"{spelled} {text}"
            )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with ``ctx.obj``, which says whether a signal asks for an end.

        Signals are handled, so that a command that one of them ends leaves no partial files.
        """
        with stop_on_signals() as ctx.obj:
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options in their groups."""
        if not self.groups:
            super().format_options(ctx, formatter)
            return
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in self.groups}
        for param in self.get_params(ctx):
            name = str(param.name)
            group = self.table[name].group if name in self.table else "output"
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups[group].append(record)
        for group, records in groups.items():
            with formatter.section(group.capitalize()):
                formatter.write_dl(records)


class TrainCommand(TableCommand):
    """``fcl train``, for which a second file of sequences or intervals is that of ``--negatives``."""

    def __init__(self, name: str, **more: Any) -> None:
        super().__init__(name, **more)
        self.params.append(
            click.Argument(["second"], required=False, metavar="[NEGATIVES]", type=FILE)
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a second file of another kind is an error that says what to do."""
        try:
            rest = super().parse_args(ctx, list(args))
        except click.UsageError:
            self._explain_files(_positional(self, ctx, args))
            raise
        if (second := ctx.params.pop("second")) is not None:
            files = [ctx.params["data"], second]
            if not self._are_classes(files):
                self._explain_files(files)
                raise click.UsageError(f"Got unexpected extra argument ({second})")
            if ctx.params["negatives"] is not None:
                raise click.UsageError("give --negatives or a second file, not both")
            ctx.params["negatives"] = second
            ctx.meta["fcl.given"]["negatives"] = "--negatives"
        return rest

    @staticmethod
    def _are_classes(files: list[str]) -> bool:
        """Whether two files have the sequences or the intervals of two classes."""
        from fcl.data.foreign import find_format  # late: it imports NumPy

        formats = [find_format(Path(path), b"") for path in files if os.path.isfile(path)]
        names = [found and found.name for found in formats]
        return names in (["fasta"] * 2, ["bed"] * 2)

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
    found = (values.get("data"), values.get("second"), *others)
    return [value for value in found if isinstance(value, str)]


#: The options that a checkpoint of ``fcl train`` keeps.
KEPT = {
    name: option
    for name, option in options_of_command(TRAIN).items()
    if option.resume is not Resume.NOT_KEPT
}
#: The options that a resumed job may change, as the user spells them.
MAY_CHANGE = ", ".join(
    "DATA" if option.name == "data" else option.spelled
    for option in KEPT.values()
    if option.resume is Resume.FREE and not option.old
)
