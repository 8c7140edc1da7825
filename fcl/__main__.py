"""``python -m fcl``: lists the commands; ``python -m fcl train ...`` runs one of them."""

from __future__ import annotations

import sys
from importlib import import_module

from fcl.cli import COMMANDS


def main(argv: list[str] | None = None) -> int:
    """List the commands, or run the one that is named; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    name = arguments[0].removeprefix("fcl-") if arguments else ""
    if name in COMMANDS:
        command = import_module(COMMANDS[name][0]).command
        if argv is None:
            import_module("fcl.cli.process").run(command, arguments[1:])
        command.main(args=arguments[1:])  # leaves by SystemExit
    if name == "--version":
        import fcl

        sys.stdout.write(f"fcl {fcl.__version__}\n")
        return 0
    known = not arguments or name in ("-h", "--help")
    out = sys.stdout if known else sys.stderr
    if not known:
        out.write(f"python -m fcl: error: no command {arguments[0]!r}; there are:\n")
    out.writelines(f"  fcl-{name:<9} {line}\n" for name, (_, line) in COMMANDS.items())
    if known:
        out.write("Each has --help; without the scripts: python -m fcl train --help\n")
    return 0 if known else 2


if __name__ == "__main__":
    sys.exit(main())
