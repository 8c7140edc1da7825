"""``fcl``: one command for all; each subcommand is imported when it is called."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from fcl.cli import COMMANDS
from fcl.cli.common import exit_code
from fcl.cli.options import version_option

EPILOG = """\
fcl COMMAND --help lists the options of a command. To complete words with the tabulator key, add this line
to ~/.bashrc: eval "$(_FCL_COMPLETE=bash_source fcl)". For zsh and fish, write zsh_source or fish_source.
"""


class _Commands(click.Group):
    """The table of commands as a click group, which imports a command when it is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[name][0]).command
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            known = ", ".join(COMMANDS)
            raise click.UsageError(f"unknown command {args[0]!r}; expected one of {known}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command("fcl", cls=_Commands, params=[version_option()], epilog=EPILOG)
def command() -> None:
    """L1-regularised learning to a certificate, over feature families far too large to store."""


def main(argv: list[str] | None = None) -> int:
    """Run a command, or list all of them; returns the exit code or raises SystemExit."""
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0].removeprefix("fcl-") if arguments else "--help"
    process = import_module("fcl.cli.process")
    if name in COMMANDS and "_FCL_COMPLETE" not in os.environ:
        found = import_module(COMMANDS[name][0]).command
        if argv is None:
            process.run(found, arguments[1:])
        found.main(args=arguments[1:])  # raises SystemExit
    if argv is None:
        process.protect_streams()
    rest = arguments or ["--help"]
    return exit_code(lambda: command.main(rest, "fcl", standalone_mode=False), "fcl")


def script() -> None:
    """Entry point of the script ``fcl``."""
    sys.exit(main())
