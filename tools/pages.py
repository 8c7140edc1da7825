#!/usr/bin/env python3
"""Run the code of Markdown pages, and compare or record the output that they show.

    python tools/pages.py README.md docs/tutorials/*.md             compare
    python tools/pages.py --record README.md docs/tutorials/*.md    write the output into the pages

The blocks of a page run in their order, in one temporary folder that has a link to examples/:

    sh        shell commands, one a line; `fcl` runs in this process unless a shell is needed
    python    statements; all blocks of a page share their names
    NAME      ```python NAME or ```toml NAME writes the block to a file of this name
    text      lines of the output of the blocks above, in order; a line may be cut, `...` skips lines
    % run:    a line that readers do not see: a command that makes what another page has
    console   commands that need a machine, a service or other data: they do not run, but the options
              of their `$ fcl` commands are looked up

Numbers may differ by 3 %. With --record, lines that hold stay, and others get the numbers of the output.
`active*` stands for the whole line that begins with "active", `+3` for the next three lines, and `*` for
all lines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = re.compile(
    r"^% (run): ()([^\n]*\n)|^```(\S*)[ \t]*(\S*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
#: The rest of a line from its first duration on, which no other run has.
DURATION = re.compile(r" in \d+\.\d+ s\b.*")
#: Characters that only a shell understands.
SHELL = re.compile(r"[|<>;&$`]")
SKIP = "..."


class PageError(Exception):
    """A page whose code fails, or that shows another output; the message says where."""


class Block(NamedTuple):
    """A fenced block: language, name of its file if it has one, text, and place in the page."""

    language: str
    name: str
    text: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    found = []
    for match in CODE.finditer(page):
        first = 1 if match[1] else 4
        language, name, text = match.group(first, first + 1, first + 2)
        if not language.startswith("{"):  # a directive of Sphinx
            found.append(Block(language, name, text, *match.span(first + 2)))
    return found


def begins(shown: str, printed: str) -> bool:
    """Whether a line of the output begins with the same words, whatever its numbers are.

    The last word may be cut by a star.
    """
    words, others = (NUMBER.sub("#", text).split() for text in (shown, printed))
    if shown.endswith("*") and len(words) <= len(others):
        last = len(words) - 1
        return words[:last] == others[:last] and others[last].startswith(words[last][:-1])
    return words == others[: len(words)]


def alike(shown: str, printed: str) -> bool:
    """Whether a line of the output begins as a page shows it: the same words, nearly the same numbers."""
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(t)] for t in (shown, printed)]
    return begins(shown, printed) and all(
        # the last features, and gaps below the tolerance, differ from processor to processor
        math.isclose(a, b, rel_tol=0.03, abs_tol=1e-3)
        for a, b in zip(*numbers, strict=False)
    )


def missing(shown: str, output: str) -> str | None:
    """The first line of a text block that the output does not have in this order; None if it has all."""
    printed = iter(output.splitlines())
    for line in shown.splitlines():
        if line.strip() != SKIP and not any(alike(line, other) for other in printed):
            return line
    return None


def recorded(shown: str, output: str) -> str:
    """The text block with the output's lines in place of their beginnings, of `+N` and of `*`."""
    printed = [DURATION.sub("", line).rstrip() for line in output.splitlines()]
    at, lines = 0, []
    for line in shown.splitlines():
        pattern = line.strip()
        if pattern == SKIP:
            lines.append(line)
        elif pattern == "*":
            lines += printed[at:]
            at = len(printed)
        elif re.fullmatch(r"\+\d+", pattern):
            lines += printed[at : at + int(pattern)]
            at += int(pattern)
        else:
            later = range(at, len(printed))
            cut = line.endswith("*")
            held = [place for place in later if not cut and alike(line, printed[place])]
            begun = [place for place in later if begins(line, printed[place])]
            if not (held or begun):
                print(f"no line of the output begins with {line!r}; recorded all", file=sys.stderr)
                return "".join(f"{line}\n" for line in printed)
            lines.append(line if held else printed[begun[0]])
            at = (held or begun)[0] + 1
    return "".join(f"{line}\n" for line in lines)


def shell(line: str) -> str:
    """Run a command; return what it prints. Raises PageError if it fails."""
    program, *arguments = shlex.split(line)
    if program == "fcl" and not SHELL.search(line):
        from click.testing import CliRunner

        from fcl.cli import COMMANDS
        from fcl.cli.umbrella import command

        if arguments[0] in COMMANDS:  # as the script `fcl` does, so that messages name the command
            command, *arguments = import_module(COMMANDS[arguments[0]][0]).command, *arguments[1:]
        result = CliRunner().invoke(command, arguments)
        if result.exit_code:
            raise PageError(
                f"{line}: exit code {result.exit_code}\n{result.output}{result.exception}"
            )
        return result.output
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["sh", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise PageError(f"{line}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def check_options(text: str) -> None:
    """Look up the options of the `$ fcl` commands of a console block. Raises PageError."""
    import click

    from fcl.cli.umbrella import command

    for line in re.findall(r"^\$ (fcl .*)$", text.replace("\\\n", " "), re.MULTILINE):
        _, name, *arguments = shlex.split(line, comments=True)
        context = click.Context(command)
        known = command.get_command(context, name)
        if known is None:
            raise PageError(f"{line}: there is no command fcl {name}")
        options = {
            text
            for option in known.get_params(context)
            for text in (*option.opts, *option.secondary_opts)
        }
        for argument in arguments:
            option = argument.partition("=")[0]
            if option.startswith("--") and option not in {*options, "--help", "--"}:
                raise PageError(f"{line}: fcl {name} has no option {option}")


def commands(text: str) -> list[str]:
    """The commands of a sh block; a backslash at the end of a line continues it."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def run(page: Path, record: bool) -> str:
    """Run a page in the working folder; return its text, with the recorded output. Raises PageError."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__page__"}
    output, changes = "", []
    for block in blocks(text):
        if block.name:
            Path(block.name).write_text(block.text, encoding="utf-8")
        elif block.language == "run":
            shell(block.text)
        elif block.language == "sh":
            output += "".join(map(shell, commands(block.text)))
        elif block.language == "console":
            check_options(block.text)
        elif block.language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, page.name, "exec"), names)
            output += printed.getvalue()
        elif block.language == "text":
            if record:
                changes.append((block, recorded(block.text, output)))
            elif (line := missing(block.text, output)) is not None:
                raise PageError(f"the page shows {line!r}, which is not in the output:\n{output}")
            output = ""
    for block, new in reversed(changes):
        text = text[: block.start] + new + text[block.end :]
    return text


def main(arguments: list[str]) -> int:
    """Run pages, each in a folder of its own; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE.md")
    parser.add_argument("--record", action="store_true", help="write the output into the pages")
    options = parser.parse_args(arguments)
    warnings.simplefilter("error")
    failed = 0
    home = Path.cwd()
    for page in [page.resolve() for page in options.pages]:
        with tempfile.TemporaryDirectory(prefix="fcl-page-") as name:
            folder = Path(name)
            (folder / "examples").symlink_to(ROOT / "examples")
            os.chdir(folder)
            sys.path.insert(0, name)
            try:
                text = run(page, options.record)
            except Exception as error:
                failed = 1
                known = isinstance(error, PageError)
                reason = str(error) if known else f"{type(error).__name__}: {error}"
                print(f"{page}:\n{textwrap.indent(reason, '  ')}", file=sys.stderr)
            else:
                if options.record:
                    page.write_text(text, encoding="utf-8")
            finally:
                sys.path.remove(name)
                os.chdir(home)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
