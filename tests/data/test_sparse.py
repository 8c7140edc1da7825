"""Sparse rows: the same from every container, in canonical form."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fcl.data import SparseRowReader, SparseRows, open_data
from fcl.data.base import RowReader, chunk_ranges
from fcl.data.sparse import from_matrix
from tests.data.conftest import chunked_matrix, csr, csr_tree


def random_matrix(n_rows=60, n_columns=23, density=0.2, seed=3, dtype=np.float32):
    rng = np.random.default_rng(seed)
    matrix = scipy.sparse.random(n_rows, n_columns, density, "csr", random_state=rng)
    matrix.data = rng.integers(1, 100, matrix.nnz).astype(dtype)
    matrix.sort_indices()
    return matrix


def assert_canonical(rows, dense):
    assert rows.shape == dense.shape
    assert rows.indptr.dtype == np.int64
    assert rows.indptr[0] == 0
    assert rows.indptr[-1] == rows.nnz == len(rows.indices) == np.count_nonzero(dense)
    assert rows.indices.dtype == np.int32
    expected = scipy.sparse.csr_matrix(dense)
    np.testing.assert_array_equal(rows.indptr, expected.indptr)
    np.testing.assert_array_equal(rows.indices, expected.indices)
    np.testing.assert_array_equal(rows.to_dense(), dense)


# -- containers ----------------------------------------------------------------------------------


def test_layers_and_attributes_of_old_files(tree_kind, write_tree):
    matrix = random_matrix()
    tree = csr_tree(matrix, encoding_type=None, encoding_version=None, shape=None)
    tree["X"][1].update(h5sparse_format="csr", h5sparse_shape=matrix.shape)
    source = write_tree(
        tree_kind, tree | {"layers": (None, {})} | csr_tree(matrix, "layers/counts")
    )
    for place, x in ((source, "X"), (source, "layers/counts"), (f"{source}::/layers", "counts")):
        rows = open_data(place, x=x, y=None).rows
        assert rows.name.endswith(":X" if x == "X" else ":layers/counts")
        assert_canonical(rows.read(0, 60), matrix.toarray())


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr", "dia"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_scipy_in_memory(form, kind):
    matrix = getattr(scipy.sparse, f"{form}_{kind}")(random_matrix(density=0.05))
    dataset = open_data(matrix, y=np.arange(60.0))
    assert (dataset.rows.name, dataset.source) == ("X", None)
    assert_canonical(dataset.rows.read(0, 60), matrix.toarray())


def test_matrix_in_memory_is_read_in_place_and_protected():
    matrix = random_matrix()
    rows = open_data(matrix, y=None).rows
    block = rows.read(5, 20)
    assert np.shares_memory(block.data, matrix.data)
    assert np.shares_memory(block.indices, matrix.indices)
    assert not block.data.flags.writeable
    assert not block.indices.flags.writeable
    assert matrix.data.flags.writeable
    assert rows.resident_bytes == 0


# -- canonical form ------------------------------------------------------------------------------


@given(data=st.data(), n_rows=st.integers(1, 25), n_columns=st.integers(1, 12))
def test_any_order_and_stored_zeros(data, n_rows, n_columns):
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    dense = rng.integers(-2, 3, (n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < 0.6)
    present = (dense != 0) | (rng.random(dense.shape) < 0.2)  # zeros among what is stored
    indices = [rng.permutation(np.flatnonzero(row)) for row in present]
    indptr = np.concatenate([[0], np.cumsum([len(i) for i in indices])])
    matrix = csr(
        indptr.astype(data.draw(st.sampled_from(["i4", "i8", "u4", "u8", ">i8"]))),
        np.concatenate(indices).astype(data.draw(st.sampled_from(["u1", "i4", "i8", "u8"]))),
        np.concatenate([row[i] for row, i in zip(dense, indices, strict=True)]),
        dense.shape,
    )
    rows, _ = chunked_matrix(matrix, data.draw(st.integers(1, 40)))
    start = data.draw(st.integers(0, n_rows))
    stop = data.draw(st.integers(start, n_rows))
    assert_canonical(rows.read(start, stop), dense[start:stop])
    assert_canonical(from_matrix(matrix, "X").read(start, stop), dense[start:stop])
    block = rows.read(0, n_rows)
    assert_canonical(block[start:stop], dense[start:stop])
    order = rng.integers(0, n_rows, 9)
    assert_canonical(block[order], dense[order])
    pieces = [block[:start], block[start:stop], block[stop:]]
    assert_canonical(SparseRows.concatenate(pieces), dense)
    np.testing.assert_array_equal(block.entry_rows(), np.nonzero(dense)[0])
    np.testing.assert_array_equal(rows.row_counts(start, stop), np.diff(indptr)[start:stop])


# -- chunks --------------------------------------------------------------------------------------


@given(
    chunk_rows=st.integers(1, 400),
    step=st.integers(1, 3000),
    kept=st.booleans(),
    density=st.sampled_from([0.0, 0.03, 0.3]),
)
def test_reading_in_order_decodes_each_chunk_once(chunk_rows, step, kept, density):
    matrix = random_matrix(70, 31, density)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcl.data.sparse.BLOCK_BYTES", step)
        patch.setattr("fcl.data.sparse.MAX_KEPT_INDPTR_BYTES", 1 << 20 if kept else 0)
        patch.setattr("fcl.data.sparse._PIECE_ROWS", 16)
        rows, parts = chunked_matrix(matrix, chunk_rows)
    assert rows.resident_bytes == (71 * 8 if kept else 0)
    for part in parts:
        assert sorted(set(part.decoded)) == part.decoded  # opening reads only indptr, once
        part.reads.clear()
    pieces = [(a, b, rows.read(a, b)) for a, b in chunk_ranges(rows)]
    assert_canonical(SparseRows.concatenate([p for _, _, p in pieces]), matrix.toarray())
    for part in parts:
        assert sorted(set(part.decoded)) == part.decoded
    # a block has a bounded size, wherever it is
    largest = max(p.nnz * 8 + 8 * len(p) for _, _, p in pieces)
    assert largest <= step or rows.chunk_rows == 1
    assert largest <= rows.chunk_bytes <= largest + 8 + sum(p.chunk_bytes for p in parts)


def test_skewed_rows_are_cut_by_the_heaviest():
    matrix = scipy.sparse.vstack(
        [scipy.sparse.csr_matrix(np.eye(1, 4000, dtype=np.float32))] * 64
        + [scipy.sparse.csr_matrix(np.ones((8, 4000), np.float32))]
    ).tocsr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcl.data.sparse.BLOCK_BYTES", 70_000)
        rows, _ = chunked_matrix(matrix, 1000)
    assert rows.chunk_rows == 2
    assert max(rows.read(a, b).nbytes for a, b in chunk_ranges(rows)) < 71_000


class Repeated(RowReader):
    """A part of an enormous matrix that is not stored: its values are computed from the positions."""

    chunk_rows = 1 << 16

    def __init__(self, name, length, dtype, value_at):
        self.name, self.shape, self.dtype = name, (length,), np.dtype(dtype)
        self.value_at = value_at
        self.most = 0

    def read(self, start, stop):
        self.most = max(self.most, stop - start)
        return self.value_at(np.arange(start, stop)).astype(self.dtype)


def test_more_than_2_to_the_31_entries():
    n, each = 3_000_000, 1000  # three thousand million entries
    indptr = Repeated("indptr", n + 1, "i8", lambda i: i * each)
    indices = Repeated("indices", n * each, "i4", lambda i: i % each * 2)
    data = Repeated("data", n * each, "f4", lambda i: i // each % 97 + 1)
    rows = SparseRowReader("X", (n, 2 * each), indptr, indices, data)
    assert rows.nnz == 3_000_000_000 > 2**31
    assert rows.resident_bytes == 8 * (n + 1)
    assert rows.chunk_rows == 128
    block = rows.read(2_500_000, 2_500_010)
    np.testing.assert_array_equal(block.indptr, np.arange(11) * each)
    np.testing.assert_array_equal(block.indices, np.tile(np.arange(each) * 2, 10))
    np.testing.assert_array_equal(block.data, np.repeat(np.arange(2_500_000, 2_500_010) % 97 + 1,
                                                        each))  # fmt: skip
    start, stop = list(chunk_ranges(rows, n - 5))[-1]
    last = rows.read(start, stop)
    assert (start, stop, last.nnz) == (n - 5, n, 5 * each)
    assert data.most < 1 << 20


def test_large_indptr_is_read_in_pieces(monkeypatch):
    n = 9_000_000
    indptr = Repeated("indptr", n + 1, "i8", lambda i: i // 3)
    indices = Repeated("indices", n // 3, "i4", lambda i: i % 7)
    data = Repeated("data", n // 3, "f4", lambda i: i % 5 + 1)
    rows = SparseRowReader("X", (n, 7), indptr, indices, data)
    assert rows.resident_bytes == 0
    assert indptr.most <= (1 << 20) + indptr.chunk_rows
    block = rows.read(8_000_000, 8_000_009)
    assert block.nnz == 3
    np.testing.assert_array_equal(np.diff(block.indptr), [1, 0, 0] * 3)


def test_more_columns_than_int32():
    matrix = csr([0, 2, 3], [2**40, 5, 2**31], [1.0, 2, 3], (2, 2**41))
    block = from_matrix(matrix, "X").read(0, 2)
    assert block.indices.dtype == np.int64
    np.testing.assert_array_equal(block.indices, [5, 2**40, 2**31])
    np.testing.assert_array_equal(block.data, [2.0, 1, 3])
    edge = csr([0, 1], [2**31 - 1], [1.0], (1, 2**31))
    assert from_matrix(edge, "X").read(0, 1).indices.dtype == np.int32
    wide = csr([0, 2, 3], [2**62, 5, 1], [1.0, 2, 3], (2, 2**62 + 1))  # no single sort key
    np.testing.assert_array_equal(from_matrix(wide, "X").read(0, 2).indices, [5, 2**62, 1])


# -- fingerprints --------------------------------------------------------------------------------


def test_fingerprint_of_the_values_alone(monkeypatch):
    matrix = random_matrix(500, density=0.1)
    expected = open_data(matrix, y=None).fingerprint()
    other = matrix.copy()
    other.data[70] = 0.0  # stays stored
    zero = other.copy()
    zero.eliminate_zeros()
    assert zero.nnz == other.nnz - 1
    assert open_data(other, y=None).fingerprint() == open_data(zero, y=None).fingerprint()
    swapped = matrix.copy()
    i = swapped.indptr[9]
    assert swapped.indptr[10] > i + 1
    for part in (swapped.indices, swapped.data):
        part[[i, i + 1]] = part[[i + 1, i]]
    assert open_data(swapped, y=None).fingerprint() == expected
    monkeypatch.setattr("fcl.data.sparse.BLOCK_BYTES", 600)
    assert chunked_matrix(matrix)[0].chunk_rows < 64
    assert open_data(matrix, y=None).fingerprint() == expected

    changed = matrix.copy()
    changed.data[i] += 1
    moved = matrix.copy()
    moved.indices[0] += 1
    assert moved.indices[0] < moved.indices[1]
    wider = scipy.sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), (500, 24))
    different = [changed, moved, wider, matrix.astype(np.float64), matrix.toarray()]
    prints = {open_data(m, y=None).fingerprint() for m in different}
    assert len(prints | {expected}) == 6


def test_triples_are_added_up():
    triples = scipy.sparse.coo_matrix(([1.0, 2], ([0, 0], [1, 1])), (1, 2))
    assert open_data(triples, y=None).rows.read(0, 1).data == [3.0]


def test_spare_entries_at_the_end_are_not_read():
    matrix = csr([0, 1, 2], [0, 1, 99], [1.0, 2, 3], (2, 3))
    assert_canonical(from_matrix(matrix, "X").read(0, 2), np.array([[1.0, 0, 0], [0, 2, 0]]))
