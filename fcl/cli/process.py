"""Run a command as a process: prepare its standard streams, and exit."""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from fcl.cli.common import Command
from fcl.cli.signals import process_ends_with_command
from fcl.config import set_config

if TYPE_CHECKING:
    from typing_extensions import Buffer


def run(command: Command, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command with the given arguments, by default sys.argv, and exit."""
    protect_streams()
    quiet_finalisers()
    set_config(verbose=0)  # commands say in their own way what they do
    process_ends_with_command()
    command.main(arguments)
    raise AssertionError("a command ends with SystemExit")


class _StandardStream(io.FileIO):
    """A wrapper of standard output or error that ignores writes once nobody reads the stream.

    Output without a reader (a closed pipe, a terminal that hung up) is discarded. Other errors of
    standard output, such as a full disk, are raised once; errors of standard error are never raised.
    """

    _lost = False

    def write(self, data: Buffer, /) -> int:
        size = memoryview(data).nbytes
        while not self._lost:
            try:
                written = super().write(data)
            except OSError as error:
                self._lost = True
                if self.fileno() == 1 and error.errno not in (errno.EPIPE, errno.EIO):
                    raise OSError(error.errno, error.strerror, "standard output") from error
                break
            if written is not None:
                return written
            select.select([], [self], [])  # the pipe is non-blocking
        return size


def protect_streams() -> None:
    """Open standard streams that are closed, and discard output that nobody reads."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # otherwise the next file to be opened would get its number
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _stream(1, getattr(sys.stdout, "encoding", None))
    sys.stderr = _stream(2, getattr(sys.stderr, "encoding", None))


def quiet_finalisers() -> None:
    """Log what Python would write about objects that are destroyed after an error, which has a message.

    Libraries have objects that fail when they are destroyed half made; ``--verbose`` shows the log.
    """
    log = logging.getLogger("fcl")

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        log.info("ignored: %s in %r", unraisable.exc_value, unraisable.object)

    sys.unraisablehook = hook
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)


def _stream(descriptor: int, encoding: str | None) -> io.TextIOWrapper:
    raw = _StandardStream(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=descriptor == 2 or raw.isatty(),
    )
