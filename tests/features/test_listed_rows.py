"""The features listed row by row are those of the columns, for every family that lists them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bag_matrix import matrix as bag_matrix
from generators import Hinges, Listed
from hypothesis import given
from hypothesis import strategies as st
from product_matrix import make_rows, stored
from windows import UNKNOWN, examples, make_windows

from fcl.data import open_data
from fcl.data.prepared import PreparedRows
from fcl.features import Family, bind_features, parse_features
from fcl.features.base import BitColumns, ListedColumns, StepColumns
from fcl.features.rows import CHUNK_IDS, RowChunk
from fcl.testing import check_generator

SEQUENCES = (
    "kmers:d=1",
    "kmers:d=3",
    "kmers:d=4",
    "bag:d=2",
    "bag:d=3,value=presence",
    "bag:d=2,strands=both",
    "bag:d=3,strands=both,wildcards=true",
    "bag:d=3,wildcards=true,value=presence",
    "kmers:d=2 + bag:d=2 * 0.5",
)
NUMBERS = ("columns", "products", "products:degree=3", "products:degree=1", "columns + products")
DENSE = ("fourier:n=7", "fourier:n=5,dtype=int8 + columns", "generators:Listed")


def columns_of(family: Family, prepared: PreparedRows) -> np.ndarray:
    """The explicit matrix (n, p) that the family's column maker makes."""
    maker = family.column_maker(prepared, 1 << 24)
    out = np.empty((prepared.n_rows, family.n_features))
    for at in range(0, family.n_features, maker.batch):
        ids = np.arange(at, min(at + maker.batch, family.n_features))
        for (_, rows), made in zip(prepared.blocks(), maker.make(ids), strict=True):
            n = rows.stop - rows.start
            if isinstance(made, BitColumns):
                found = np.unpackbits(made.bits.view(np.uint8), axis=1, bitorder="little")[:, :n]
            elif isinstance(made, StepColumns):
                found = made.step * made.steps.astype(float)
            elif isinstance(made, ListedColumns):
                found = made.dense()
            else:
                found = made.values
            out[rows, ids] = found.T
    return out


def bound(features: str, source: Any) -> tuple[Family, Any, PreparedRows]:
    """A family over rows, all rows raw, and prepared."""
    rows = open_data(source, y=None).rows
    family = bind_features(parse_features(features), rows)
    ((_, _, raw),) = family.read_rows(rows, 4096)
    prepared = PreparedRows(len(raw), 4096, family.record_shape(4096))
    prepared.commit(0, family.prepare(raw, prepared.writable(0), 4096))
    return family, raw, prepared


def dense(chunk: RowChunk, p: int) -> np.ndarray:
    out = np.zeros((len(chunk), p))
    rows = np.repeat(np.arange(len(chunk)), np.diff(chunk.indptr))
    np.add.at(out, (rows, chunk.ids), chunk.values)  # an id listed twice would show
    return out


def check_listed(features: str, source: Any, seed: int) -> None:
    family, raw, prepared = bound(features, source)
    expected, p = columns_of(family, prepared), family.n_features
    random = np.random.default_rng(seed)
    order = random.permutation(len(raw))[: random.integers(1, len(raw) + 1)]
    view = family.row_view()
    found = [dense(chunk, p) for chunk in view.chunks(raw, order)]
    np.testing.assert_allclose(np.concatenate(found), expected[order], rtol=2e-7, atol=0)
    every = list(view.chunks(raw))
    assert all(chunk.ids.dtype == np.int32 and len(chunk.ids) <= CHUNK_IDS for chunk in every)
    for chunk in view.chunks(raw):
        rows = np.repeat(np.arange(len(chunk)), np.diff(chunk.indptr))
        assert len(np.unique(rows * p + chunk.ids)) == len(chunk.ids)
    sums = sum(dense(chunk, p).sum(axis=0) for chunk in family.row_view().chunks(raw))
    np.testing.assert_allclose(sums, expected.sum(axis=0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("features", SEQUENCES)
@given(st.integers(0, 2**31), st.sampled_from(UNKNOWN), st.integers(0, 4), st.integers(1, 40))
@examples(12)
def test_sequences(features: str, seed: int, unknown: str, more: int, n: int) -> None:
    check_listed(features, make_windows(seed, n, 4 + more, unknown), seed)


@pytest.mark.parametrize("features", NUMBERS)
@given(
    st.integers(0, 2**31),
    st.sampled_from(["binary", "counts", "large signed"]),
    st.booleans(),
    st.integers(1, 6),
)
@examples(12)
def test_numbers(features: str, seed: int, kind: str, sparse: bool, m: int) -> None:
    check_listed(features, stored(make_rows(seed, 30, m, kind), sparse), seed)


@pytest.mark.parametrize("features", DENSE)
def test_dense_numbers(features: str) -> None:
    check_listed(features, make_rows(0, 50, 4, "small").astype(float), 1)


def test_products_of_binary_columns_have_no_powers() -> None:
    check_listed("products:degree=3,binary=true", make_rows(3, 40, 5, "binary"), 0)


def test_bag_against_regular_expressions() -> None:
    codes = make_windows(5, 30, 8, "few")
    family, raw, _ = bound("bag:d=3,strands=both,wildcards=true", codes)
    (chunk,) = family.row_view().chunks(raw)
    assert np.array_equal(dense(chunk, family.n_features), bag_matrix(family, codes))  # type: ignore[arg-type]


@pytest.mark.slow
def test_chunks_are_small_and_in_order() -> None:
    codes = make_windows(0, 500, 60, "none")
    family, raw, _ = bound("kmers:d=5", codes)
    order = np.random.default_rng(0).permutation(500)
    view = family.row_view()
    cut = [(len(chunk), len(chunk.ids)) for chunk in view.chunks(raw, order)]
    assert len(cut) > 5 and max(k for _, k in cut) <= CHUNK_IDS and sum(n for n, _ in cut) == 500
    whole = view.listed(raw, order)
    ids = np.concatenate([chunk.ids.copy() for chunk in view.chunks(raw, order)])
    assert np.array_equal(ids, whole.ids)
    # a row with more features than a chunk holds is a chunk of its own
    family, raw, _ = bound("kmers:d=12", codes[:3])
    assert [len(chunk) for chunk in family.row_view().chunks(raw)] == [1, 1, 1]


def test_large_ids_are_int64() -> None:
    family, raw, _ = bound("kmers:d=12", make_windows(0, 1, 40, "none"))
    (chunk,) = family.row_view().chunks(raw)
    assert chunk.ids.dtype == np.int64 and chunk.ids.max() > 1 << 32
    assert {family.describe(int(j)).partition(" ")[2] for j in chunk.ids[:: 1 << 11]} <= {
        f"at {k}" for k in range(29)
    }


@pytest.mark.slow
def test_check_generator_accepts_a_right_list() -> None:
    X = np.random.default_rng(0).random((100, 3))
    report = check_generator(Listed(4), X, training=False)
    assert "nonzeros" in {check.name for check in report.checks if not check.left_out}
    assert "nonzeros" not in {check.name for check in check_generator(Hinges(4), X, False).checks}
