"""Which kernels a family needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fcl
import fcl.kernels.compilation
from fcl.drivers import kinds, warmup
from fcl.features import bind_features, parse_features
from tests import by_name

ALL = tuple(warmup.KINDS)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("kmers:d=8,origin=70", ("sequences",)),
        ("bag:d=6 * 2 + kmers", ("sequences",)),
        ("columns", ("numbers",)),
        ("columns + products:degree=2 * 1.5", ("numbers", "products")),
        ("fourier:n=100", ("fourier",)),
        ("hinges:n=4", ("numbers",)),
        ("module:Class:option=1", ALL),
        ("columns + module:Class", ALL),
    ],
)
def test_kinds_by_name(features: str, expected: tuple[str, ...]) -> None:
    assert kinds.kinds_named(features) == expected


@pytest.mark.parametrize("features", ["columns", "products:degree=2", "fourier:n=8", "hinges"])
def test_kinds_of_a_family_are_those_of_its_name(features: str) -> None:
    rows = fcl.open_data(np.random.default_rng(0).normal(size=(40, 3)), y=None).rows
    for text in (features, f"{features} + columns * 2"):
        family = bind_features(parse_features(text), rows)
        assert kinds.kinds_of(family) == kinds.kinds_named(text)


def test_only_what_is_missing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcl.kernels.compilation, "cache_folder", tmp_path)
    compiled: list[str] = []
    for kind in ALL:
        monkeypatch.setitem(warmup.KINDS, kind, lambda kind=kind: compiled.append(kind))
    assert kinds.missing(ALL) == ALL
    warmup.warmup(["numbers"])
    assert compiled == ["numbers"]
    assert set(kinds.missing(ALL)) == set(ALL) - {"numbers"}
    warmup.warmup()
    assert kinds.missing(ALL) == ()


def test_sparse_rows_of_very_many_columns_need_no_other_kernel() -> None:
    from fcl.data.sparse import SparseRows
    from fcl.features.generator.forms import SparseColumns
    from fcl.kernels.matrix import by_columns

    def turned(n_columns: int) -> SparseColumns:
        rows = SparseRows(np.array([0, 2, 3]), np.array([1, 4, 1], np.int32), np.ones(3), n_columns)
        return SparseColumns.of(rows, "float64")

    few = turned(5)
    compiled = list(by_columns.signatures)
    many = turned(10_000_000)  # those without an entry are left out before the kernel
    assert list(by_columns.signatures) == compiled
    assert many.columns.tolist() == few.columns.tolist() == [1, 4]
    assert many.rows.tolist() == few.rows.tolist() == [0, 1, 0]


@contextmanager
def compiling_nothing(kind: str, least: int, *modules: ModuleType) -> Iterator[None]:
    """Warm up for a kind of features; what follows must need no other kernel of the modules."""

    def compiled() -> dict[str, int]:
        kernels = {name: own for module in modules for name, own in vars(module).items()}
        return {n: len(f.signatures) for n, f in kernels.items() if hasattr(f, "signatures")}

    warmup.KINDS[kind]()
    before = compiled()
    yield
    assert compiled() == before and sum(before.values()) > least


def test_models_of_several_classes_need_no_kernel_after_the_warm_up() -> None:
    from fcl.kernels import coupled, softmax

    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    numbers = rng.normal(size=(90, 4)) + y[:, None]
    letters = rng.integers(0, 4, (90, 5)).astype(np.uint8)
    with compiling_nothing(kinds.OUTPUTS, 5, coupled, softmax):
        for rows, features in ((numbers, "columns"), (letters, "kmers:d=1")):
            for options in ({}, {"group": True}, {"intercept": False}, {"l1_ratio": 0.5}):
                data = fcl.open_data(rows, y=y)
                by_name.train(data, features, C=0.3, loss="softmax", tol=1e-3, **options)
        several = fcl.open_data(numbers, y=numbers[:, :2] ** 2)
        fcl.train(several, "columns", C=0.3, loss="squared", tol=1e-3, penalty="group")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
def test_online_learners_need_no_kernel_after_the_warm_up() -> None:
    from fcl.kernels import ball_heap, hashing, listing, online, tables

    rng = np.random.default_rng(0)
    numbers, y = rng.normal(size=(90, 4)), np.arange(90) % 2
    letters = rng.integers(0, 4, (90, 8)).astype(np.uint8)
    options: tuple[dict[str, Any], ...] = (
        {"loss": "squared_hinge"},
        {"method": "truncated-gradient:step=explicit,theta=0.1"},
        {"method": "ball:radius=0.5"},
        {"method": "ogd", "weights": "q4.11"},
    )
    all_have: dict[str, Any] = {"alpha": 0.01, "rate": 0.01, "certify": False}
    with compiling_nothing(kinds.ONLINE, 20, online, ball_heap, tables, hashing, listing):
        for rows, features in ((numbers, "columns"), (letters, "kmers:d=2")):
            for given in options:
                fcl.train_online(fcl.open_data(rows, y=y), features, **all_have, **given)
        fcl.train_online(fcl.open_data(letters, y=y), "kmers:d=2", hash_bits=4, **all_have)


@pytest.mark.slow
@pytest.mark.parametrize("d", [3, 7])
def test_kmers_over_many_rows_need_no_kernel_after_the_warm_up(
    d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fcl.features.kmers import margins, parts, pricing
    from fcl.kernels import kmers, patterns
    from fcl.kernels import margins as kernels

    made = []
    sums = parts.SharedTable._sums
    letters = np.random.default_rng(0).integers(0, 5, (300, 12)).astype(np.uint8)
    data = fcl.open_data(letters, y=letters[:, 5] > 1)
    with compiling_nothing("sequences", 5, kmers, kernels, patterns):
        monkeypatch.setattr(margins, "SHARED_ROWS", 1)
        monkeypatch.setattr(margins, "LOOKUP_PATTERNS", 1.5)
        monkeypatch.setattr(margins, "MAKING_PATTERNS", 0.0)
        monkeypatch.setattr(pricing, "PAIR_ROWS", 1)
        monkeypatch.setattr(parts.SharedTable, "_sums", lambda *a: (made.append(a), sums(*a))[1])
        for tol in (1e-2, 1e-9):
            fcl.train(data, f"kmers:d={d}", C=0.3, tol=tol)
    assert made


@pytest.mark.slow
def test_centred_columns_need_no_kernel_after_the_warm_up() -> None:
    from fcl.kernels import matrix

    X = np.random.default_rng(0).normal(size=(50, 3)) + 1e6
    with compiling_nothing("numbers", 0, matrix):
        for dtype in (np.float32, np.float64):
            for y, loss in ((np.arange(50.0), "squared"), (np.arange(50) % 3, "softmax")):
                data = fcl.open_data(X.astype(dtype), y=y)
                model = by_name.train(
                    data, "columns", C=1.0, loss=loss, warn=False, max_passes=9
                ).model
                assert model.centres
                model.margins(X.astype(dtype))
