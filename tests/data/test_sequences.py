"""Decoding of sequences, and division into blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.data import SequenceReader
from fcl.data.memory import MemoryReader
from tests.data.conftest import Chunked

LETTERS = "ACGTUNRYSWKMBDHV-"
CODES = [0, 1, 2, 3, 3] + [4] * 12


def decode(array, block_rows=1000, keep=None):
    reader = SequenceReader(MemoryReader(np.asarray(array), "test.zarr:X"), keep=keep)
    return np.concatenate([codes for _, _, codes in reader.iter_codes(block_rows)])


@given(
    n_rows=st.integers(1, 60),
    chunk_rows=st.integers(1, 70),
    block_rows=st.integers(1, 70),
    kept=st.integers(0, 2**60 - 1) | st.none(),
)
def test_blocks_are_cut_right_and_chunks_read_once(n_rows, chunk_rows, block_rows, kept):
    codes = np.random.default_rng(n_rows).integers(0, 5, (n_rows, 3)).astype(np.uint8)
    keep = None if kept is None else np.array([bool(kept >> i & 1) for i in range(n_rows)])
    expected = codes if keep is None else codes[keep]
    rows = Chunked(codes, chunk_rows)
    reader = SequenceReader(rows, keep=keep)
    rows.reads.clear()
    blocks = list(reader.iter_codes(block_rows))

    assert reader.n_rows == len(expected)
    starts = list(range(0, len(expected), block_rows))
    assert [start for start, _, _ in blocks] == starts
    assert [stop for _, stop, _ in blocks] == [min(s + block_rows, len(expected)) for s in starts]
    for start, stop, block in blocks:
        assert block.dtype == np.uint8
        assert block.flags.c_contiguous
        assert block.flags.writeable
        np.testing.assert_array_equal(block, expected[start:stop])
    assert len(rows.decoded) == len(rows.reads)  # a read never leaves a chunk
    assert rows.decoded == [
        number
        for number, a in enumerate(range(0, n_rows, chunk_rows))
        if keep is None or keep[a : a + chunk_rows].any()
    ]


@pytest.mark.parametrize("form", ["S", "U", ">U", "S1", "U1", "uint8", "int64", ">i2", "strided"])
def test_all_letters_in_both_cases(form):
    text = LETTERS + LETTERS.lower()
    numbers = np.tile(np.frombuffer(text.encode(), np.uint8), (3, 1))
    array = {
        "S": lambda: np.array([text] * 3).astype("S"),
        "U": lambda: np.array([text] * 3),
        ">U": lambda: np.array([text] * 3).astype(f">U{len(text)}"),
        "S1": lambda: numbers.view("S1"),
        "U1": lambda: numbers.view("S1").astype("U1"),
        "strided": lambda: np.repeat(numbers, 2, axis=1)[:, ::2],
    }.get(form, lambda: numbers.astype(form))()
    np.testing.assert_array_equal(decode(array), np.tile(CODES * 2, (3, 1)))


@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i4", "i8", "u8"])
def test_codes_of_any_integer_type(dtype):
    codes = np.arange(20).reshape(4, 5) % 5
    np.testing.assert_array_equal(decode(codes.astype(dtype)), codes)


def test_blocks_belong_to_the_caller():
    codes = np.zeros((4, 2), dtype=np.uint8)
    for _, _, block in SequenceReader(MemoryReader(codes, "X")).iter_codes(2):
        block[...] = 3
    assert not codes.any()


def test_pieces_do_not_show(monkeypatch):
    text = np.array([f"{'ACGT'[i % 4]}{'NACG'[i // 4 % 4]}T" for i in range(40)])
    whole = decode(text)
    monkeypatch.setattr("fcl.data.sequences._PIECE_LETTERS", 10)
    np.testing.assert_array_equal(decode(text), whole)


def test_wider_type_than_all_sequences_need():
    np.testing.assert_array_equal(decode(np.array(["AC", "GT"], dtype="S9")), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(decode(np.array(["AC", "GT"], dtype="U9")), [[0, 1], [2, 3]])


def test_dropped_rows_are_not_checked():
    text = np.array(["AC", "XX", "GT", "AZ", "TT"], dtype="S")
    keep = np.array([True, False, True, False, True])
    np.testing.assert_array_equal(decode(text, keep=keep), [[0, 1], [2, 3], [3, 3]])
