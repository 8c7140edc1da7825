"""``python -m fcl``: lists the commands; ``python -m fcl train ...`` runs one of them."""

from __future__ import annotations

import sys
from importlib import import_module

from fcl.cli import COMMANDS


def main(argv: list[str] | None = None) -> int:
    """List the commands or run the named one; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0].removeprefix("fcl-") if arguments else ""
    if name in COMMANDS:
        command = import_module(COMMANDS[name][0]).command
        if argv is None:
            import_module("fcl.cli.process").run(command, arguments[1:])
        command.main(args=arguments[1:])  # raises SystemExit
    if argv is None:
        import_module("fcl.cli.process").protect_streams()
    return import_module("fcl.cli.common").exit_code(lambda: _overview(name), "python -m fcl")


def _overview(name: str) -> None:
    """Print the commands, or the version for ``--version``; raises UsageError for other names."""
    import click

    if name == "--version":
        import fcl

        click.echo(f"fcl {fcl.__version__}")
        return
    if name not in ("", "-h", "--help"):
        known = ", ".join(f"fcl-{command}" for command in COMMANDS)
        raise click.UsageError(f"unknown command {name!r}; expected one of {known}")
    for command, (_, line) in COMMANDS.items():
        click.echo(f"  fcl-{command:<9} {line}")
    click.echo("Each command has --help; without the scripts, run python -m fcl train --help")


if __name__ == "__main__":
    sys.exit(main())
