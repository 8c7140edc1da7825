"""The data's own columns: dense, sparse, of every type, from every format, on all rows or a sample."""

from __future__ import annotations

import tracemalloc
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import generators
import numpy as np
import pytest
from scipy.sparse import csr_array

import fcl
from fcl.data.numeric import NumericReader
from fcl.data.prepared import PreparedRows
from fcl.data.sparse import SparseRows
from fcl.drivers.rows import select_rows as select_all
from fcl.features import Columns, bind_features
from fcl.features.generator import GeneratedFamily, forms
from fcl.features.generator import family as family_module

N, M = 640, 90
C = 0.15


@cache
def table(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """float64 (N, M) whose values the type of the kind holds exactly, and labels."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, M)) * (rng.random((N, M)) < 0.3)
    if kind == "bool":
        X = (X != 0).astype(np.float64)
    X = X.astype(np.float32).astype(np.float64) if kind == "float32" else X
    m = X[:, :5] @ [2.0, -2.0, 1.5, 1.0, -1.0] + 0.4 * rng.normal(size=N)
    return X, np.where(m > np.median(m), 1.0, -1.0)


def train(data: Any, features: Any = "columns", **options: Any) -> fcl.TrainResult:
    defaults: dict[str, Any] = {"C": C, "tol": 1e-7, "memory": "1GiB", "block_rows": 128}
    if options.get("driver") == "processes":
        defaults["writers"] = 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        return fcl.train(data, features, **(defaults | options))


@pytest.mark.parametrize(
    ("kind", "dtype"), [("float64", "<f8"), ("float32", "<f4"), ("bool", "<f4")]
)
def test_the_type_of_the_rows_is_kept(kind: str, dtype: str) -> None:
    X, _ = table("bool")
    for source in (X.astype(kind), csr_array(X.astype(kind))):
        family = bind_features(Columns(), fcl.open_data(source, y=None).rows)
        assert family.to_config()["form"]["dtype"] == dtype


def forms_prepared(bound: Any, raw: Any, rows: np.ndarray, block_rows: int = 192) -> PreparedRows:
    """The prepared form of some raw rows, dense or sparse."""
    prepared = PreparedRows(len(rows), block_rows, bound.record_shape(block_rows))
    for number, some in prepared.blocks():
        sides = bound.prepare(raw[rows[some]], prepared.writable(number), block_rows)
        prepared.commit(number, sides)
    return prepared


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_columns_are_made_of_their_nonzeros(dtype: Any) -> None:
    class Doubled(Columns):
        def columns(self, ids: Any, block: Any) -> np.ndarray:
            return 2.0 * super().columns(ids, block)

    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 40)) * (rng.random((300, 40)) < rng.choice([0.0, 0.1, 0.4], 40))
    X[:, 7], X[:, 8], X[0, 9] = 1.0, 0.0, 1e-60
    stored = csr_array(X)
    stored.data[::5] = 0.0  # stored zeros
    rows = SparseRows(stored.indptr, stored.indices.astype(np.int32), stored.data, 40)
    block = forms.SparseColumns.of(rows, "<f8")
    values = forms.SparseColumns.of(rows, np.dtype(dtype).str)
    for ids in (np.arange(40), np.array([3, 9, 30]), np.empty(0, np.int64)):
        listed = Columns().listed_columns(ids, block, dtype)
        assert listed is not None
        assert listed.values.dtype == dtype
        assert listed.values.all()
        assert (listed.dense() == Columns().columns(ids, block).T.astype(dtype)).all()
        v = rng.normal(size=(2, 300))
        for power in (0, 1, 2):
            found = Columns().power_sums(ids, values, power, v)
            phi = Columns().columns(ids, values).astype(np.float64)
            expected = v @ (phi != 0.0 if power == 0 else phi**power)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert Doubled().power_sums(np.arange(40), block, 1, v) is None
    assert Columns().power_sums(np.arange(40), X, 1, v) is None
    assert Columns().listed_columns(np.array([7]), block, dtype) is None  # without zeros
    assert Doubled().listed_columns(np.arange(40), block, dtype) is None
    nothing = forms.SparseColumns.of(
        SparseRows(np.zeros(4, np.int64), rows.indices[:0], X[0, :0], 9), "<f8"
    )
    assert not Columns().power_sums(np.array([0, 8]), nothing, 2, np.ones((2, 3))).any()
    empty = Columns().listed_columns(np.array([0, 8]), nothing, dtype)
    assert empty is not None
    assert not empty.dense().any()


# -- files -----------------------------------------------------------------------------------------


# -- passes ----------------------------------------------------------------------------------------


def test_what_a_class_gets_cannot_be_written_to() -> None:
    X, _ = table("float64")
    for source, made in (
        (X, generators.Tanh()),
        (X, generators.Above()),
        (csr_array(X), generators.Sparse()),
    ):
        rows = fcl.open_data(source, y=None).rows
        bound = bind_features(made, rows)
        assert isinstance(bound, GeneratedFamily)
        (_, _, raw) = next(bound.read_rows(rows, N))
        block = bound.block_of(raw)
        values = block.data if made.rows == "sparse" else block
        with pytest.raises(ValueError, match="read-only"):
            values[:1] = 0.0
    assert forms.read_only(X).base is X


def test_a_sparse_block_is_no_sequence() -> None:
    X, _ = table("float64")
    rows = fcl.open_data(csr_array(X), y=None).rows
    bound = bind_features(Columns(), rows)
    assert isinstance(bound, GeneratedFamily)
    (_, _, raw) = next(bound.read_rows(rows, N))
    block, again = bound.block_of(raw), bound.block_of(raw)
    assert block in (again, block) and block != again
    with pytest.raises(TypeError):
        len(block)


def test_side_arrays_are_planned_for(tmp_path: Path) -> None:
    """This includes those that writers made: the plan after reading has room for all of them."""
    X, _ = table("float64")
    rows = fcl.open_data(csr_array(X), y=None).rows
    bound = bind_features(Columns(), rows)
    (_, _, raw) = next(bound.read_rows(rows, N))
    mine = forms_prepared(bound, raw, np.arange(N))
    theirs = PreparedRows(N, 192, mine.record_shape, records=mine._records, load_sides=mine.sides)
    sizes = theirs.side_bytes()
    assert sizes.tolist() == mine.side_bytes().tolist()
    assert sizes.sum() > 10 * csr_array(X).nnz
    entries = NumericReader(rows).block_entries(192)
    assert (sizes <= bound.most_side_bytes(entries)).all()
    assert not bound.extra_bytes(theirs)
    sparse = bind_features(generators.Sparse(), rows)
    assert sparse.extra_bytes(mine, 3) - sparse.extra_bytes(mine, 2) > 28 * M


@pytest.mark.parametrize("columns", [5_000, 5_000_000])
def test_reading_sparse_rows_takes_what_is_planned(columns: int, tmp_path: Path) -> None:
    """A block is held once as rows and once by columns, whether few or most columns are empty."""
    n, each, block_rows = 12_000, 200, 4096
    random = np.random.default_rng(0)
    starts = columns // each * np.arange(each)
    indices = (starts + random.integers(0, columns // each, (n, each))).astype(np.int32)
    X = csr_array((np.ones(n * each), indices.ravel(), each * np.arange(n + 1)), (n, columns))
    rows = select_all(fcl.open_data(X, y=np.arange(n) % 2), np.arange(n) % 2.0, np.ones(n), None)
    bound = bind_features(Columns(), rows.data.rows)
    prepared = PreparedRows(n, block_rows, bound.record_shape(block_rows), tmp_path)
    kept = columns <= forms.MOST_COUNTED * each * block_rows
    tracemalloc.start()
    try:
        for number, sides in bound.fill(prepared, rows.data.rows):
            del number, sides
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    directory = 8 * columns * kept + 16 * min(columns, each * block_rows)
    assert peak <= 2 * rows.block_bytes(block_rows) + 2 * directory + (4 << 20)
    prepared.close()


def test_wide_rows_are_scored_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table("float64")
    model = train(fcl.open_data(X, y=y), tol=1e-2).model
    whole = model.margins(X)
    monkeypatch.setattr(family_module, "BLOCK_BYTES", 64 * M * 8)
    assert model.family.most_block_rows() == 64
    parts = list(model.iter_margins(X))
    assert len(parts) == N // 64
    np.testing.assert_allclose(np.concatenate([m for *_, m in parts]), whole, rtol=1e-12)
