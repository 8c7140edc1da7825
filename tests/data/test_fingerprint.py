"""The fingerprint depends only on the values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fcl.data import DataSet
from fcl.data.fingerprint import fingerprint
from fcl.data.memory import MemoryReader
from tests.data.conftest import Chunked


def test_byte_order_and_layout_do_not_count():
    x, y = np.arange(12, dtype="<i4").reshape(4, 3), np.arange(4.0)
    expected = fingerprint(MemoryReader(x, "X"), y, None)
    swapped = MemoryReader(np.asfortranarray(x.astype(">i4")), "X")
    assert fingerprint(swapped, y.astype(">f8"), None) == expected


def test_any_difference_in_small_data_counts(arrays):
    def of(**changed):
        parts = arrays | changed
        rows = MemoryReader(parts["X"], "X")
        return DataSet("d", rows, parts["y"], parts["weights"]).fingerprint()

    one_code = arrays["X"].copy()
    one_code[49, 11] = (one_code[49, 11] + 1) % 5
    one_label = arrays["y"].copy()
    one_label[0] *= -1
    variants = [
        of(),
        of(X=one_code),
        of(y=one_label),
        of(y=arrays["y"].astype(np.int8)),
        of(y=None),
        of(weights=None),
        of(weights=arrays["weights"] * 2),
        of(X=arrays["X"].astype(np.int16)),
        of(X=arrays["X"].reshape(100, 6)),
        of(X=arrays["X"][:49]),
    ]
    assert len(set(variants)) == len(variants)


@given(n_rows=st.integers(1, 20_000), chunk_rows=st.integers(1, 25_000))
def test_chunks_do_not_count_and_are_read_once(n_rows, chunk_rows):
    values = np.arange(2 * n_rows).reshape(n_rows, 2)
    rows = Chunked(values, chunk_rows)
    assert fingerprint(rows, None, None) == fingerprint(MemoryReader(values, "X"), None, None)
    assert len(set(rows.decoded)) == len(rows.decoded) == len(rows.reads)
