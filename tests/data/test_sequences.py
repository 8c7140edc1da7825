"""Decoding of sequences, and division into blocks."""

import numpy as np
import pytest

from fcl.data import SequenceReader
from fcl.data.memory import MemoryReader

LETTERS = "ACGTUNRYSWKMBDHV-"
CODES = [0, 1, 2, 3, 3] + [4] * 12


def decode(array, block_rows=1000, keep=None):
    reader = SequenceReader(MemoryReader(np.asarray(array), "test.zarr:X"), keep=keep)
    return np.concatenate([codes for _, _, codes in reader.iter_codes(block_rows)])


@pytest.mark.parametrize(
    "form", ["S", "U", ">U", "S1", "U1", "uint8", "int64", "u8", ">i2", "strided"]
)
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


def test_pieces_do_not_show(monkeypatch):
    text = np.array([f"{'ACGT'[i % 4]}{'NACG'[i // 4 % 4]}T" for i in range(40)])
    whole = decode(text)
    monkeypatch.setattr("fcl.data.sequences._PIECE_LETTERS", 10)
    np.testing.assert_array_equal(decode(text), whole)
