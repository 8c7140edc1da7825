"""Decoders of Zarr chunks that stop at the size that the array announces.

zarr decodes a chunk as a whole, by classes of numcodecs whose memory only the chunk limits: a chunk of a
megabyte can become gigabytes. Within :func:`decoding`, these classes decode at most as many bytes as a
chunk of the array has.
"""

from __future__ import annotations

import bz2
import functools
import lzma
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from fcl.memory.allowance import SMALL, inflate


class ChunkSize(NamedTuple):
    """Decoded bytes of a chunk: the number itself if ``exact``, else the largest one."""

    most: int
    exact: bool


#: zarr decodes in its own tasks and threads, which inherit the context of the reading thread.
_size: ContextVar[ChunkSize | None] = ContextVar("chunk size", default=None)
_lock = threading.Lock()
#: Most bytes of a block of a Zstandard frame.
_ZSTD_BLOCK = 1 << 17


@contextmanager
def decoding(chunk: ChunkSize | None) -> Iterator[None]:
    """Limit the bytes of each decoded chunk within a block; None does not limit them."""
    _install()
    token = _size.set(chunk)
    try:
        yield
    finally:
        _size.reset(token)


def _install() -> None:
    """Wrap the decoders of numcodecs, once; outside :func:`decoding` they work as before."""
    import numcodecs

    with _lock:
        for name, decoder in _DECODERS.items():
            codec = getattr(numcodecs, name, None)
            if codec is not None and not hasattr(codec.decode, "limited_by_fcl"):
                codec.decode = _limited(codec.decode, decoder)


def _limited(decode: Any, decoder: Callable[..., Any]) -> Any:
    @functools.wraps(decode)
    def limited(codec: Any, chunk: Any, out: Any = None) -> Any:
        size = _size.get()
        if size is None or out is not None:
            return decode(codec, chunk, out)
        frame = memoryview(chunk).cast("B")
        return decoder(functools.partial(decode, codec, chunk), frame, size)

    limited.limited_by_fcl = True  # type: ignore[attr-defined]
    return limited


def _refuse_longer(found: int, size: ChunkSize) -> None:
    if found > size.most:
        raise ValueError(f"it holds {found:,} bytes, expected {size.most:,}")


def _blosc(decode: Any, frame: memoryview, size: ChunkSize) -> Any:
    stored = int.from_bytes(frame[12:16], "little")
    if len(frame) < max(16, stored):  # numcodecs would read foreign memory behind it
        raise ValueError(f"a Blosc chunk of {stored} bytes ends after {len(frame)} bytes")
    _refuse_longer(int.from_bytes(frame[4:8], "little"), size)
    return decode()


def _lz4(decode: Any, frame: memoryview, size: ChunkSize) -> Any:
    _refuse_longer(int.from_bytes(frame[:4], "little"), size)
    return decode()


def _zstd(decode: Any, frame: memoryview, size: ChunkSize) -> Any:
    announced = _zstd_size(frame)
    if announced is not None:
        _refuse_longer(announced, size)
        return decode()
    # without a size in its header, a frame has at most as many bytes as full blocks would have
    if _zstd_blocks(frame) * _ZSTD_BLOCK <= max(size.most, SMALL):
        return decode()
    if not size.exact:
        raise ValueError(f"its Zstandard frame may hold more than {size.most:,} bytes")
    return decode(np.empty(size.most, np.uint8))


def _zstd_size(frame: memoryview) -> int | None:
    """The decoded bytes in the header of a frame (RFC 8878); None if it has none, or is no frame."""
    if bytes(frame[:4]) != b"\x28\xb5\x2f\xfd" or len(frame) < 6:
        return None
    descriptor = frame[4]
    is_single, width = descriptor >> 5 & 1, (0, 2, 4, 8)[descriptor >> 6]
    width = 1 if is_single and not width else width
    start = 6 - is_single + (0, 1, 2, 4)[descriptor & 3]
    if not width:
        return None
    return int.from_bytes(frame[start : start + width], "little") + (256 if width == 2 else 0)


def _zstd_blocks(frame: memoryview) -> int:
    """The number of blocks of a frame."""
    descriptor = frame[4] if len(frame) > 4 else 0
    at = 6 - (descriptor >> 5 & 1) + (0, 1, 2, 4)[descriptor & 3]
    blocks, is_last = 0, False
    while not is_last and at + 3 <= len(frame):
        head = int.from_bytes(frame[at : at + 3], "little")
        is_last, kind, stored = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == 1 else stored)
        blocks += 1
    return blocks


def _stream(make: Callable[[Any], Any]) -> Callable[..., Any]:
    """A decoder for streams; make : returns a decompressor for an instance of the class."""
    return lambda decode, frame, size: inflate(frame, size.most, lambda: make(decode.args[0]))


#: Classes of numcodecs by name -> how their chunks are decoded with a limit.
_DECODERS: dict[str, Callable[..., Any]] = {
    "Blosc": _blosc,
    "LZ4": _lz4,
    "Zstd": _zstd,
    "GZip": _stream(lambda _: zlib.decompressobj(31)),
    "Zlib": _stream(lambda _: zlib.decompressobj()),
    "BZ2": _stream(lambda _: bz2.BZ2Decompressor()),
    "LZMA": _stream(lambda codec: lzma.LZMADecompressor(codec.format, filters=codec.filters)),
}
