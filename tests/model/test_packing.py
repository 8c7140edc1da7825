"""Whole numbers at the entropy of their values: exact, short, and safe to read from strangers."""

from __future__ import annotations

import struct
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from windows import examples

from fcl.errors import InputError
from fcl.files import packing
from fcl.files.packing import CODECS, MOST_PER_BYTE, pack, unpack

WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200) | st.integers(-2, 2)
codecs = pytest.mark.parametrize("codec", list(CODECS))


@given(st.lists(WHOLE, max_size=60), st.sampled_from(list(CODECS)), st.sampled_from([7, 1 << 20]))
@examples(150)
def test_numbers_come_back(numbers: list[int], codec: str, chunk: int) -> None:
    values = np.array(numbers, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "CHUNK", chunk)
        assert (unpack(pack(values, codec), len(values), codec) == values).all()


def entropy(values: np.ndarray) -> float:
    counts = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(counts * np.log2(counts)).sum())


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0, 20.0, 60.0])
def test_the_size_is_within_a_tenth_of_the_entropy(scale: float) -> None:
    n = 100_000
    values = np.rint(np.random.default_rng(0).laplace(0.0, scale, n)).astype(np.int64)
    bits = 8 * len(pack(values, "zstd")) / n
    assert bits < 1.1 * entropy(values) and bits < entropy(values) + 0.2
    assert 8 * len(pack(values, "zlib")) / n < entropy(values) + 0.3


@codecs
def test_a_number_of_zeros_takes_bytes(codec: str) -> None:
    content = pack(np.zeros(100_000, np.int64), codec)
    assert len(content) == -(-100_000 // MOST_PER_BYTE)
    with pytest.raises(ValueError, match="at most 128 numbers for each byte"):
        unpack(content, 100_001 + MOST_PER_BYTE, codec)
    with pytest.raises(ValueError, match="at most 128 numbers for each byte"):
        unpack(content, 1 << 60, codec)


@codecs
def test_damage_is_noticed_or_gives_numbers(codec: str) -> None:
    values = np.random.default_rng(1).integers(-300, 300, 500)
    content = pack(values, codec)
    for size in range(len(content)):
        with pytest.raises((ValueError, struct.error)):
            unpack(content[:size], 500, codec)
    for other in (499, 501, 0):
        with pytest.raises(ValueError, match=r"500 wide numbers$|more bytes than numbers$"):
            unpack(content, other, codec)
    for at in range(len(content)):
        damaged = content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :]
        try:
            found = unpack(damaged, 500, codec)
        except (ValueError, struct.error):
            continue
        assert found.shape == (500,)


def test_a_frame_of_another_size_is_refused() -> None:
    long = CODECS["zstd"].encode(bytes(1 << 30)[: 1 << 24])
    with pytest.raises(ValueError, match=r"too small|fewer"):
        CODECS["zstd"].decode(long, 1000)
    with pytest.raises(ValueError, match="fewer than 1001 bytes"):
        CODECS["zstd"].decode(CODECS["zstd"].encode(b"a" * 1000), 1001)
    # a frame without its size, of 8,192 blocks that repeat a byte 131,072 times
    block = (1 << 1 | 1 << 20).to_bytes(3, "little") + b"A"
    last = (1 | 1 << 1 | 1 << 20).to_bytes(3, "little") + b"A"
    with pytest.raises(ValueError, match=r"(?i)error|small"):
        CODECS["zstd"].decode(b"\x28\xb5\x2f\xfd\x00\x58" + 8191 * block + last, 1000)


def test_without_numcodecs(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(-50, 50)
    content = pack(values, "zstd")
    monkeypatch.setitem(sys.modules, "numcodecs", None)
    assert packing.best_codec() == "zlib"
    with pytest.raises(InputError, match="needs the package numcodecs"):
        unpack(content, 100, "zstd")
    assert (unpack(pack(values, "zlib"), 100, "zlib") == values).all()


def decoded(content: bytes, n: int) -> list[int]:
    """The integers of a member, by the words of docs/reference/model_file.md alone; zlib."""
    found: list[int] = []
    at = 0
    while len(found) < n:
        count = min(n - len(found), packing.CHUNK)
        bits, width, n_wide = content[at], content[at + 1], _integer(content[at + 2 : at + 6])
        at += 6
        streams = []
        for _ in range((bits > 0) + (width if n_wide else 0)):
            size = _integer(content[at : at + 4])
            streams.append(zlib.decompress(content[at + 4 : at + 4 + size]))
            at += 4 + size
        planes = streams[bits > 0 :]
        wide = [_integer(bytes(plane[i] for plane in planes)) for i in range(n_wide)]
        whole = _integer(streams[0]) if bits else 0
        most = (1 << bits) - 1
        codes = [whole >> bits * i & most for i in range(count)]
        u = [wide.pop(0) if code == most else code for code in codes]
        assert not wide
        found += [-(v + 1) // 2 if v & 1 else v // 2 for v in u]
    assert set(content[at:]) <= {0}
    return found


def _integer(content: bytes) -> int:
    return int.from_bytes(content, "little")


@given(st.lists(WHOLE | st.integers(-3, 3), min_size=1, max_size=60))
@examples(100)
def test_the_page_describes_the_members(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "CHUNK", 25)
        assert decoded(pack(values, "zlib"), len(values)) == numbers
