"""Whole numbers in about as many bits as the entropy of their values, by Zstandard or zlib.

Numbers are stored in chunks of 2^20, so that a chunk can be read by itself. A number becomes a code of 2,
4 or 8 bits (0, -1, 1, -2, ... are 0, 1, 2, 3, ...), the largest of which refers to the *wide* numbers:
those follow in bytes of equal significance, which are compressed apart from each other. The shortest of
these codings is chosen for each chunk; one of them has wide numbers alone.

All integers are little-endian. A chunk is ``bits, width, number of wide numbers`` (``<BBI``) and streams,
each a length (``<I``) and so many bytes: the codes (none if bits is 0), packed from the lowest bits of a
byte on; then, if there are wide numbers, ``width`` streams of one byte of each, from the lowest on. A
last, incomplete byte of codes is filled up by zeros. Zeros at the end of a member let it have at least
one byte for MOST_PER_BYTE numbers, which bounds the memory that reading a small file can take.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.types import Ints

#: Numbers in a chunk.
CHUNK = 1 << 20
#: Most numbers that a byte of a file can stand for: 1/16 bit each.
MOST_PER_BYTE = 128
LEVEL = 19
_HEAD, _LENGTH = struct.Struct("<BBI"), struct.Struct("<I")
_WIDTHS = (0, 1, 2, 4, 8)


class _Zstd:
    """Compresses bytes, at a level from 1, the fastest; decodes only content of exactly `size` bytes."""

    def encode(self, content: bytes, level: int = LEVEL) -> bytes:
        return bytes(_zstd(level).encode(content))

    def decode(self, content: bytes, size: int) -> bytes:
        # the buffers bound the memory, whatever size the frame announces
        out = np.empty(size, np.uint8)
        try:
            _zstd().decode(content, out)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        try:  # a shorter frame is no error of the library
            _zstd().decode(content, np.empty(size - 1, np.uint8))
        except (RuntimeError, ValueError):
            return out.tobytes()
        raise ValueError(f"fewer than {size} bytes")


class _Zlib:
    """As above."""

    def encode(self, content: bytes, level: int = LEVEL) -> bytes:
        return zlib.compress(content, min(level, 9))

    def decode(self, content: bytes, size: int) -> bytes:
        stream = zlib.decompressobj()
        try:
            out = stream.decompress(content, size + 1)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(out) != size or not stream.eof or stream.unused_data:
            raise ValueError(f"other than {size} bytes")
        return out


def _zstd(level: int = LEVEL) -> Any:
    try:
        from numcodecs import Zstd
    except ImportError as error:
        raise InputError(
            "the values are compressed by Zstandard, which needs the package numcodecs; install it"
        ) from error
    return Zstd(level)


Codec = _Zstd | _Zlib
CODECS: dict[str, Codec] = {"zstd": _Zstd(), "zlib": _Zlib()}


def best_codec() -> str:
    """The name of the best codec that is installed."""
    try:
        import numcodecs  # noqa: F401  zarr depends on it
    except ImportError:
        return "zlib"
    return "zstd"


def pack(values: Ints, codec: str) -> bytes:
    """The content of a member with these numbers, int64 (n,)."""
    starts = range(0, len(values), CHUNK)
    parts = [_packed(values[start : start + CHUNK], CODECS[codec]) for start in starts]
    content = b"".join(parts)
    return content.ljust(-(-len(values) // MOST_PER_BYTE), b"\0")


def unpack(content: bytes, n: int, codec: str) -> Ints:
    """The n numbers of a member; raises ValueError if the bytes are not those that :func:`pack` wrote."""
    if n > MOST_PER_BYTE * len(content):
        raise ValueError(f"expected at most {MOST_PER_BYTE} numbers for each byte, got {n:,}")
    out, at = np.empty(n, np.int64), 0
    for start in range(0, n, CHUNK):
        chunk = out[start : start + CHUNK]
        at = _unpack_chunk(content, at, chunk, CODECS[codec])
    if content[at:].strip(b"\0") or len(content) > max(at, -(-n // MOST_PER_BYTE)):
        raise ValueError("there are more bytes than numbers")
    return out


def _packed(values: Ints, codec: Codec) -> bytes:
    """A chunk, in the shortest of its codings."""
    numbers = (values.view(np.uint64) << np.uint64(1)) ^ (values >> 63).view(np.uint64)
    found = []
    for bits in (0, 2, 4, 8):
        is_wide = numbers >= (1 << bits) - 1 if bits else np.ones(len(numbers), np.bool_)
        wide = numbers[is_wide]
        if len(wide) * 2 > len(numbers) and 0 < bits < 8:
            continue  # most numbers would be written twice
        codes = np.minimum(numbers, (1 << bits) - 1).astype(np.uint8)
        width = next(w for w in _WIDTHS if int(wide.max(initial=0)) >> 8 * w == 0)
        planes = wide.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T
        streams = [_joined(codes, bits).tobytes()] if bits else []
        streams += [plane.tobytes() for plane in planes] if len(wide) else []
        parts = [_HEAD.pack(bits, width, len(wide))]
        for stream in streams:
            compressed = codec.encode(stream)
            parts += [_LENGTH.pack(len(compressed)), compressed]
        found.append(b"".join(parts))
    return min(found, key=len)


def _joined(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """Codes of 2, 4 or 8 bits as bytes."""
    each = 8 // bits
    full = np.zeros(-(-len(codes) // each) * each, np.uint8)
    full[: len(codes)] = codes
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(full.reshape(-1, each) << shifts, axis=1)


def _unpack_chunk(content: bytes, at: int, out: Ints, codec: Codec) -> int:
    """Write the numbers of the chunk that begins at a byte; returns the byte after it."""
    n = len(out)
    bits, width, n_wide = _HEAD.unpack_from(content, at)
    at += _HEAD.size
    if bits not in (0, 2, 4, 8) or width not in _WIDTHS or n_wide > n or (not bits and n_wide < n):
        raise ValueError(f"a chunk with {bits} bits, {width} bytes and {n_wide:,} wide numbers")
    numbers = np.zeros(n, np.uint64)
    if bits:
        size = -(-n * bits // 8)
        stream, at = _stream(content, at, size, codec)
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        codes = (stream[:, None] >> shifts) & np.uint8((1 << bits) - 1)
        numbers[:] = codes.ravel()[:n]
    is_wide = numbers == (1 << bits) - 1
    if np.count_nonzero(is_wide) != n_wide:
        raise ValueError("the number of wide numbers differs from their codes")
    wide = np.zeros((n_wide, 8), np.uint8)
    for place in range(width if n_wide else 0):
        wide[:, place], at = _stream(content, at, n_wide, codec)
    numbers[is_wide] = wide.view("<u8").ravel()
    out[:] = (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
    return at


def _stream(content: bytes, at: int, size: int, codec: Codec) -> tuple[npt.NDArray[np.uint8], int]:
    (length,) = _LENGTH.unpack_from(content, at)
    at += _LENGTH.size
    if length > len(content) - at:
        raise ValueError("a stream ends beyond the member")
    return np.frombuffer(codec.decode(content[at : at + length], size), np.uint8), at + length
