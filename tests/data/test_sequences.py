"""Decoding of sequences, division into blocks, and rejected input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.data import SequenceReader
from fcl.data.base import RowReader
from fcl.data.memory import MemoryReader
from fcl.errors import InputError

LETTERS = "ACGTUNRYSWKMBDHV-"
CODES = [0, 1, 2, 3, 3] + [4] * 12


class ChunkedArray(RowReader):
    """An array in memory that counts how often each of its chunks is read."""

    def __init__(self, array, chunk_rows):
        self.name, self.shape, self.dtype = "test.zarr:X", array.shape, array.dtype
        self.chunk_rows = chunk_rows
        self.array = array
        self.chunks_read = []

    def read(self, start, stop):
        assert start // self.chunk_rows == (stop - 1) // self.chunk_rows
        self.chunks_read.append(start // self.chunk_rows)
        return self.array[start:stop]


def decode(array, block_rows=1000, keep=None):
    reader = SequenceReader(MemoryReader(np.asarray(array), "test.zarr:X"), keep=keep)
    return np.concatenate([codes for _, _, codes in reader.iter_codes(block_rows)])


def refusal(array, block_rows=1000, keep=None):
    with pytest.raises(InputError) as caught:
        decode(array, block_rows, keep)
    return str(caught.value)


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
    rows = ChunkedArray(codes, chunk_rows)
    reader = SequenceReader(rows, keep=keep)
    rows.chunks_read.clear()
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
    assert rows.chunks_read == [
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
    text[17] = "AXC"
    assert "row 17, column 1 is 'X'" in refusal(text)


def test_wider_type_than_all_sequences_need():
    np.testing.assert_array_equal(decode(np.array(["AC", "GT"], dtype="S9")), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(decode(np.array(["AC", "GT"], dtype="U9")), [[0, 1], [2, 3]])


def test_dropped_rows_are_not_checked_and_rows_are_numbered_as_stored():
    text = np.array(["AC", "XX", "GT", "AZ", "TT"], dtype="S")
    keep = np.array([True, False, True, False, True])
    np.testing.assert_array_equal(decode(text, keep=keep), [[0, 1], [2, 3], [3, 3]])
    keep[3] = True
    assert "row 3, column 1 is 'Z'" in refusal(text, keep=keep)


@pytest.mark.parametrize("letter", ["X", "~", ".", " ", "x", "é", "\u4e00", "E"])
def test_invalid_letter(letter):
    message = refusal(np.array(["ACGT", f"AC{letter}T"]))
    assert message.startswith(f"test.zarr:X: row 1, column 2 is {letter!r}, not a nucleotide")
    assert "N R Y S W K M B D H V" in message


@pytest.mark.parametrize("dtype", ["u1", "i4"])
def test_invalid_letter_number(dtype):
    array = np.array([[65, 67], [88, 65], [7, 65]], dtype=dtype)
    assert "row 1, column 0 is 'X'" in refusal(array)
    assert "row 1, column 0 is 7, not a nucleotide" in refusal(array[[0, 2]])


def test_codes_out_of_range():
    assert "row 2, column 1 is 5; expected the codes 0-3" in refusal([[0, 1], [2, 3], [0, 5]])
    assert "row 1, column 0 is -1; expected the codes" in refusal([[0, 1], [-1, 3]])
    assert "row 0, column 0 is -7; expected the codes" in refusal([[-7, 1]])
    assert "row 1, column 1 is 256; expected" in refusal([[0, 1], [1, 256]])
    assert "row 1, column 1 is -191" in refusal(np.array([[65, 65], [65, 65 - 256]]))


def test_codes_and_letters_are_not_mixed():
    assert "row 1, column 1 is the letter 'A' (65), but row 0 holds codes" in refusal(
        [[0, 1], [2, 65]]
    )
    assert "row 1, column 0 is the code 2, but row 0 holds letters" in refusal([[65, 67], [2, 65]])


@pytest.mark.parametrize("kind", ["S", "U"])
@pytest.mark.parametrize(("text", "row", "length"), [
    (["ACG", "ACG", "AC"], 2, 2),
    (["ACG", "ACGTA", "ACG"], 1, 5),
    (["ACG", "", "ACG"], 1, 0),
])  # fmt: skip
def test_sequences_of_different_lengths(kind, text, row, length):
    message = refusal(np.array(text, dtype=kind))
    assert message.startswith(
        f"test.zarr:X: row {row} has {length} letters, row 0 has 3; all sequences must have"
    )


def test_narrower_chunk_of_variable_text():
    class Narrow(ChunkedArray):
        def read(self, start, stop):
            return np.array(self.array[start:stop].tolist())  # as wide as its longest row

    rows = Narrow(np.array(["ACGT"] * 3 + ["AC"] * 3), 3)
    with pytest.raises(InputError, match="row 3 has 2 letters, row 0 has 4"):
        list(SequenceReader(rows).iter_codes(10))


def test_empty_first_sequence():
    assert "row 0 is an empty sequence" in refusal(np.array(["", "A"]))


def test_nul_inside_a_sequence():
    assert r"row 1, column 1 is '\x00', not a nucleotide" in refusal(np.array([b"ACG", b"A\0G"]))


@pytest.mark.parametrize("array", [
    np.zeros((3, 4), dtype=np.float32), np.zeros((3, 4), dtype=bool), np.zeros(3, dtype=int),
    np.full((3, 4), "AC"), np.full((3, 4), b"AC"),
])  # fmt: skip
def test_forms_that_are_no_sequences(array):
    message = refusal(array)
    assert message.startswith("test.zarr:X has ")
    assert "expected (n, L) integers 0-4 (A C G T, unknown) or ASCII letters" in message


def test_message_says_how_to_convert_floats_to_codes():
    assert "float32" in (message := refusal(np.zeros((3, 4), dtype=np.float32)))
    assert ".astype('uint8')" in message


def test_keep_of_wrong_length_is_a_fault_of_the_caller():
    with pytest.raises(ValueError, match="keep must be bool"):
        decode(np.zeros((3, 2), dtype=int), keep=np.ones(2, dtype=bool))
