"""The memory that a file may take: what it announces is compared with its size and with a budget.

A file of a few bytes can announce any length of an array, a chunk or a text. Readers ask :func:`allow`
before they take memory for it, and decompress with :func:`inflate`, which stops at a limit. The budget is
``--memory`` of the command that runs, or ``memory`` of the function; without one, the memory of the
machine.
"""

from __future__ import annotations

import lzma
import os
import resource
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fcl.errors import BudgetError, InputError
from fcl.units import format_bytes, least_memory, parse_size

#: Bytes that a model or checkpoint may take in memory, however small its file is.
SMALL = 256 << 20
#: Bytes in memory for each byte of a larger one.
MOST_PER_BYTE = 128

_budget: ContextVar[int | None] = ContextVar("budget", default=None)


def budget() -> int:
    """Bytes that reading may take at once."""
    given = _budget.get()
    if given is not None:
        return given
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return machine if limit == resource.RLIM_INFINITY else min(machine, limit)


@contextmanager
def within(memory: int | str | None) -> Iterator[None]:
    """Set the budget within a block; None does not change it."""
    size = _budget.get() if memory is None else parse_size(memory, "memory")
    token = _budget.set(size)
    try:
        yield
    finally:
        _budget.reset(token)


def allow(what: str, needed: int, stored: int | None = None) -> None:
    """Raise InputError unless a file may take so much memory.

    what : of what the file announces so much: subject and verb, with which the message begins, such as
        ``train.h5:X: 20 rows need``.
    needed : bytes in memory.
    stored : bytes in the file that hold it. None for chunks of data: these may have been compressed at
        any rate, or never been written, so that only the budget limits them.

    Raises InputError: the stored bytes do not explain the memory.
    Raises BudgetError: the memory exceeds the budget.
    """
    if stored is not None and needed > max(SMALL, MOST_PER_BYTE * stored):
        raise InputError(
            f"{what} {format_bytes(needed)} of memory; expected at most "
            f"{format_bytes(max(SMALL, MOST_PER_BYTE * stored))} for {format_bytes(stored)} in the file: "
            "it is damaged, or made to exhaust memory"
        )
    most = budget()
    if needed <= most:
        return
    if _budget.get() is None:
        raise BudgetError(
            f"{what} {format_bytes(needed)}, but this machine has {format_bytes(most)}; read fewer rows, "
            "or write the array again in smaller chunks"
        )
    raise BudgetError(
        f"{what} {format_bytes(needed)}, but the memory budget is {format_bytes(most)}; raise it to more "
        f"than {least_memory(needed)}",
        needed,
    )


def inflate(content: Any, most: int, stream: Callable[[], Any] = zlib.decompressobj) -> bytes:
    """Decompress at most so many bytes.

    content : one compressed stream, or several of gzip, bzip2 or xz one after another.
    most : the bytes that are expected, or more.
    stream : makes a decompressor of zlib, bz2 or lzma.

    Raises ValueError: the content is damaged, incomplete, or has more than ``most`` bytes.
    """
    parts: list[bytes] = []
    left, rest = most, content
    while len(rest):
        found = stream()
        try:
            part = found.decompress(rest, left + 1)
        except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
            if parts and not bytes(rest).strip(b"\0"):
                break  # zeros after the last stream
            raise ValueError(f"it is no intact compressed stream ({error})") from error
        left -= len(part)
        if left < 0:
            raise ValueError(f"it holds more than {most:,} bytes, expected at most as many")
        if not found.eof:
            raise ValueError("its compressed stream ends early")
        parts.append(part)
        rest = found.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)
