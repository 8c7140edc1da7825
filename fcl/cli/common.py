"""Shared by the commands: one-line errors, exit codes, and messages above a live view."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from fcl.errors import (
    CheckpointError,
    FclError,
    InputError,
    OutputExistsError,
    RepeatedDeaths,
    reason,
)
from fcl.memory.allowance import within
from fcl.store import RemotePath, check_no_secrets, is_remote, locate, usual_options
from fcl.working_folder import protected

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNFINISHED = 3
EXIT_DEATHS = 5
EXIT_CHECKPOINT = 6

_EXIT_CODES = {
    InputError: EXIT_USAGE,
    RepeatedDeaths: EXIT_DEATHS,
    CheckpointError: EXIT_CHECKPOINT,
}

#: Error messages shorten words of more characters than this, such as names too long for a file system.
LONGEST_WORD = 300


def printable(text: str, keep: str = "") -> str:
    """Escape the characters of a text that a terminal cannot show, or would interpret.

    Line breaks are escaped too; characters in `keep` are not. Bytes of a file name that are not UTF-8
    become escapes such as ``\\xff``.
    """
    return "".join(
        c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else _escaped(c)
        for c in text
    )


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that Python could not decode
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


#: Parts of the names of storage options that hold credentials.
_SECRETS = (
    "secret", "token", "password", "access_key", "account_key", "customer_key", "encryption_key", "sas_",
)  # fmt: skip


class Interrupted(BaseException):
    """A signal arrived before there was a result to save; a BaseException, which nothing swallows.

    left : what the command left behind, in words.
    """

    def __init__(self, signum: int, left: str = "nothing was written") -> None:
        super().__init__(signum)
        self.signum = signum
        self.left = left


class Messages(logging.Handler):
    """Writes messages for the user to stderr, or above the live view while one is shown.

    While a command runs, this is also the handler of the logger ``fcl``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.command = "fcl"
        self.quiet = False  #: whether to show only warnings and errors
        self.write: Callable[[str], None] = self.to_stderr

    @staticmethod
    def to_stderr(text: str) -> None:
        click.echo(text, err=True)

    def say(self, text: str, keep: str = "") -> None:
        """Write a line that begins with the command's name; characters in `keep` are not escaped."""
        self.write(printable(f"{self.command}: {text}", keep))

    def note(self, text: str) -> None:
        """Write a line, unless the user asked for quiet."""
        if not self.quiet:
            self.say(text)

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        try:
            self.say(level + record.getMessage())
        except Exception:  # an error in logging must not end the run
            self.handleError(record)


messages = Messages()


def show(lines: Iterable[str]) -> None:
    """Print lines on standard output."""
    click.echo("\n".join(map(printable, lines)))


@contextmanager
def _command(name: str) -> Iterator[None]:
    logger = logging.getLogger("fcl")
    before = messages.command, logger.level, logger.propagate
    messages.command = name
    logger.addHandler(messages)
    logger.setLevel(logging.WARNING)
    columns = logging.getLogger("fcl.columns")
    columns.setLevel(logging.INFO)
    logger.propagate = False
    try:
        with protected():
            yield
    finally:
        logger.removeHandler(messages)
        columns.setLevel(logging.NOTSET)
        messages.command, logger.level, logger.propagate = before
        messages.write = messages.to_stderr
        messages.quiet = False


def _set_storage_options(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> None:
    """Use the values of ``--storage-option`` for all locations until the command ends."""
    options = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"expected KEY=VALUE, got {value!r}", ctx, param)
        if any(word in name.lower() for word in _SECRETS):
            raise click.BadParameter(
                f"{name} is a credential, which other users of this machine see on a command line; give "
                "it in the environment, as AWS_SECRET_ACCESS_KEY or the like",
                ctx,
                param,
            )
        options[name] = text
    ctx.with_resource(usual_options(options))


def be_quiet() -> None:
    """Show only warnings and errors until the command ends."""
    messages.quiet = True
    logging.getLogger("fcl.columns").setLevel(logging.WARNING)


class Command(click.Command):
    """A click command that reports an error in one line on stderr.

    The exit code is the integer that the callback returns, or 0. Errors exit with 1 (the machine failed,
    or another process has taken the name of an output, so that the result is beside it),
    2 (wrong option or input), 5 (a process died repeatedly) or 6 (the last checkpoint could not be
    written), signals with 128 plus their number. Bugs keep their traceback. With
    ``standalone_mode=False`` exceptions propagate to the caller. All commands have ``--storage-option``.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters of the command, and ``--storage-option`` before ``--help``."""
        *own, last = super().get_params(ctx)
        option = click.Option(
            ["--storage-option"],
            multiple=True,
            metavar="KEY=VALUE",
            expose_value=False,
            callback=_set_storage_options,
            help="Option of the object store of s3:// and other URLs, such as anon=true, endpoint=URL, "
            "region=NAME or requests=N (at once); can be given several times.",
        )
        return [*own, option, last]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, with its ``--memory`` as the budget of all readers."""
        ctx.with_resource(within(ctx.params.get("memory")))
        if ctx.params.get("quiet"):  # without notes
            be_quiet()
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a URL with a password is refused before anything is said about it."""
        for word in args:
            check_no_secrets(word)
        return super().parse_args(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        name = self.name or "fcl"

        def run() -> Any:
            return super(Command, self).main(
                args, name, complete_var, standalone_mode=False, **extra
            )

        with _command(name):
            if not standalone_mode:
                return run()
            sys.exit(exit_code(run, name))


def exit_code(run: Callable[[], Any], name: str) -> int:
    """Run a command, report its error on stderr, and return its exit code."""
    try:
        code = run()
        sys.stdout.flush()  # an error such as a full disk must be raised here, where it is reported
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        hint = f" (see {name} --help)" if isinstance(error, click.UsageError) else ""
        _error(error.format_message() + hint)
        return EXIT_USAGE
    except OutputExistsError as error:
        _error(str(error))
        return EXIT_USAGE if error.kept is None else EXIT_FAILED
    except FclError as error:
        for kind, code in _EXIT_CODES.items():
            if isinstance(error, kind):
                _error(str(error))
                return code
        _error(str(error), keep="\n")  # it may contain a child's traceback
        return EXIT_FAILED
    except (click.Abort, KeyboardInterrupt, Interrupted) as error:
        left = error.left if isinstance(error, Interrupted) else "nothing was written"
        messages.say(f"interrupted; {left}")
        return 128 + (error.signum if isinstance(error, Interrupted) else signal.SIGINT)
    except MemoryError as error:
        _error(f"out of memory ({error}); lower --memory or free some")
        return EXIT_FAILED
    except OSError as error:
        _error(f"{error.filename}: {reason(error)}" if error.filename else reason(error))
        return EXIT_FAILED


def _error(text: str, keep: str = "") -> None:
    messages.write = messages.to_stderr
    shorter = re.sub(
        rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][:100]}...{word[0][-100:]}", text
    )
    messages.say(f"error: {shorter}", keep)


def _real(path: str | os.PathLike[str]) -> str:
    """The path by which a file or an object is known, however it is spelled."""
    found = locate(path)
    return os.fspath(found) if isinstance(found, RemotePath) else os.path.realpath(found)


def refuse_same(output: str | os.PathLike[str], option: str, **inputs: str | None) -> None:
    """Raise InputError if an output has an empty name, or would replace an input or a part of it."""
    if not os.fspath(output):
        raise InputError(f"{option}: expected the name of a file, got an empty name")
    target = _real(output)
    for name, path in inputs.items():
        if path is None:
            continue
        source = _real(path.partition("::")[0])
        inside = target.startswith(source + os.sep) and (
            is_remote(output)
            or os.path.exists(target)
            or any(os.path.exists(os.path.join(source, m)) for m in ("zarr.json", ".zgroup"))
        )
        # y.npy beside a single X.npy is its target
        labels = source.endswith(".npy") and target == os.path.join(
            os.path.dirname(source), "y.npy"
        )
        if source == target or source.startswith(target + os.sep) or inside or labels:
            raise InputError(
                f"{option} {os.fspath(output)}: would replace {name} {path}, or a part of it; "
                "choose another name"
            )
