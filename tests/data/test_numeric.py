"""Blocks of numbers, dense and sparse: types and cutting."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fcl.data import NumericReader, SequenceReader, SparseRowReader, SparseRows, sparse
from fcl.data.memory import MemoryReader
from fcl.data.numeric import check_finite, float_dtype
from fcl.data.sparse import from_matrix
from tests.data.conftest import Chunked, chunked_matrix


def dense_of(block):
    return block.to_dense() if isinstance(block, SparseRows) else block


@given(
    data=st.data(),
    kind=st.sampled_from(["dense", "sparse", "sequences"]),
    n_rows=st.integers(1, 60),
    chunk_rows=st.integers(1, 70),
    block_rows=st.integers(1, 70),
)
def test_blocks_are_cut_right_and_chunks_read_once(data, kind, n_rows, chunk_rows, block_rows):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dense = (rng.normal(size=(n_rows, 5)) * (rng.random((n_rows, 5)) < 0.5)).astype(np.float32)
    if kind == "sequences":
        dense = rng.integers(0, 5, (n_rows, 5)).astype(np.uint8)
    keep = rng.random(n_rows) < data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    keep = data.draw(st.sampled_from([None, keep]))
    expected = dense if keep is None else dense[keep]
    rows, parts = Chunked(dense, chunk_rows), []
    if kind == "sparse":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fcl.data.sparse.BLOCK_BYTES", data.draw(st.integers(1, 1000)))
            rows, parts = chunked_matrix(scipy.sparse.csr_matrix(dense), chunk_rows)
    reader = (SequenceReader if kind == "sequences" else NumericReader)(rows, keep)
    assert reader.n_rows == len(expected)
    first = 0 if kind == "sequences" else data.draw(st.integers(0, len(expected)))
    last = len(expected) if kind == "sequences" else data.draw(st.integers(first, len(expected)))
    stored = parts[1:] if kind == "sparse" else [rows]
    if kind == "sequences":
        rows.reads.clear()  # of the first row, which says what the rows are
        blocks = list(reader.iter_codes(block_rows))
    else:
        assert (reader.n_columns, reader.sparse) == (5, kind == "sparse")
        blocks = list(reader.iter_blocks(block_rows, first, last))
    starts = list(range(first, last, block_rows))
    assert [start for start, _, _ in blocks] == starts
    assert [stop for _, stop, _ in blocks] == [min(s + block_rows, last) for s in starts]
    for start, stop, block in blocks:
        assert isinstance(block, SparseRows) == (kind == "sparse")
        assert block.dtype == dense.dtype
        np.testing.assert_array_equal(dense_of(block), expected[start:stop])
        for part in (block.data, block.indices, block.indptr) if kind == "sparse" else (block,):
            assert part.flags.c_contiguous and part.flags.writeable
    for part in stored:
        assert len(set(part.decoded)) == len(part.decoded)
    if kind != "sparse" and last > first:  # nothing is read outside of what is wanted
        numbers = np.arange(n_rows) if keep is None else np.flatnonzero(keep)
        assert rows.reads[0][0] == numbers[first]
        assert rows.reads[-1][1] == numbers[last - 1] + 1
        assert len(rows.decoded) == len(rows.reads)  # a read never leaves a chunk
    if kind != "sequences":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fcl.data.numeric._PIECE_ROWS", 16)
            entries = reader.block_entries(block_rows)
        count = np.count_nonzero if kind == "sparse" else np.size
        cuts = range(0, len(expected), block_rows)
        assert entries.tolist() == [count(expected[a : a + block_rows]) for a in cuts]


def test_blocks_belong_to_the_caller_and_dropped_rows_are_not_checked():
    x = np.ones((9, 2))
    x[2, 0] = x[5, 1] = np.nan
    before, keep = x.copy(), np.array([1, 1, 0, 1, 1, 0, 1, 0, 1], bool)
    for rows in (MemoryReader(x, "X"), from_matrix(scipy.sparse.csr_matrix(x), "X")):
        blocks = [block for _, _, block in NumericReader(rows, keep).iter_blocks(2)]
        assert len(blocks) == 3
    text = np.array(["AC", "XX", "GT", "AZ", "TT", "zz", "NN", "?", "A-"], "S")
    keep = np.arange(9) % 2 == 0
    for array in (text, text.astype("S9"), text.astype("U9")):
        reader = SequenceReader(MemoryReader(array, "X"), keep)
        found = np.concatenate([block for _, _, block in reader.iter_codes(2)])
        assert found.tolist() == [[0, 1], [2, 3], [3, 3], [4, 4], [0, 4]]
    for _, _, block in NumericReader(MemoryReader(x[:2], "X")).iter_blocks(2):
        block[...] = 3
    codes = np.zeros((4, 2), np.uint8)
    for _, _, block in SequenceReader(MemoryReader(codes, "X")).iter_codes(2):
        block[...] = 3
    assert not codes.any()
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(("stored", "expected"), [
    ("f4", "f4"), (">f4", "f4"), ("f8", "f8"), (">f8", "f8"), ("f2", "f4"), ("g", "f8"),
    ("?", "f4"), ("i1", "f4"), ("u1", "f4"), ("i2", "f4"), (">u2", "f4"),
    ("i4", "f8"), ("u4", "f8"), ("i8", "f8"), ("u8", "f8"),
])  # fmt: skip
@pytest.mark.parametrize("sparse", [False, True])
def test_float_types(stored, expected, sparse):
    values = np.array([[0, 1, 0], [1, 0, 1]]).astype(stored)
    if values.dtype.kind in "iu":
        values[1, 2] = np.iinfo(values.dtype).max // 2**11  # exact in float64, or in float32
    assert float_dtype(values.dtype) == expected
    rows = MemoryReader(values, "X")
    if sparse:
        matrix = scipy.sparse.csr_matrix(values.astype("f8"))
        parts = (matrix.indptr, matrix.indices, matrix.data.astype(stored))
        rows = SparseRowReader("X", (2, 3), *(MemoryReader(part, "X") for part in parts))
    [(_, _, block)] = NumericReader(rows).iter_blocks(5)
    assert block.dtype == np.dtype(expected)
    np.testing.assert_array_equal(dense_of(block), values)
    assert float_dtype(np.dtype(stored)).isnative


def test_sparse_blocks_of_a_matrix_in_memory_are_parts_of_it(monkeypatch):
    monkeypatch.setattr(sparse, "BLOCK_BYTES", 100)
    matrix = scipy.sparse.random(40, 5, 0.5, format="csr", random_state=0)
    for start, stop, block in NumericReader(from_matrix(matrix, "X")).iter_blocks(16):
        np.testing.assert_array_equal(block.to_dense(), matrix[start:stop].toarray())
        for part, whole in ((block.indices, matrix.indices), (block.data, matrix.data)):
            assert np.shares_memory(part, whole)
            assert not part.flags.writeable
    assert matrix.data.flags.writeable


def test_sparse_blocks_are_copied_where_the_matrix_is_not_what_they_are(monkeypatch):
    """Rows between the parts are dropped, zeros are, the dtype differs, or entries are not contiguous."""
    monkeypatch.setattr(sparse, "BLOCK_BYTES", 100)
    dense = scipy.sparse.random(40, 5, 0.5, random_state=0).toarray()
    with_zeros = scipy.sparse.csr_matrix(dense)
    with_zeros.data[30] = 0.0
    keep = np.arange(40) != 11
    strided = scipy.sparse.csr_matrix(dense)
    strided.data = np.repeat(strided.data, 2)[::2]
    for matrix, kept in (
        (strided, None),
        (scipy.sparse.csr_matrix(dense), keep),
        (with_zeros, None),
        (scipy.sparse.csr_matrix((9 * dense).astype(np.int8)), None),
    ):
        wanted = matrix.toarray() if kept is None else matrix.toarray()[kept]
        reader = NumericReader(from_matrix(matrix, "X"), kept)
        for start, stop, block in reader.iter_blocks(16):
            assert block.dtype == reader.dtype
            assert block.data.flags.c_contiguous and block.data.base is not matrix.data
            np.testing.assert_array_equal(block.to_dense(), wanted[start:stop])


def test_chunk_is_given_back_when_the_reading_is_left():
    rows, parts = chunked_matrix(scipy.sparse.csr_matrix(np.ones((20, 3))), 1000)
    blocks = NumericReader(rows).iter_blocks(3)
    next(blocks)
    blocks.close()
    rows.read(0, 1)
    assert parts[1].decoded == [0, 0]


def test_sums_that_overflow_are_no_error():
    for dtype in (np.float32, np.float64):
        large = np.full((3, 2), np.finfo(dtype).max)
        check_finite(large, 0, "X")
        check_finite(np.array([[1, -1]]) * large, 0, "X")
    check_finite(np.ones((2, 2), int), 0, "X")
