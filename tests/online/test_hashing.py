"""Hashed features: rows, problem, certificate and model are those of the sums over each place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windows import make_windows

import fcl
from fcl.drivers.online.train import train_online
from fcl.errors import InputError
from fcl.features import bind_features, family_from_config, parse_features
from fcl.features.hashed import HashedFamily, hashed_family
from fcl.run import StopReason
from tests import by_name

pytestmark = pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
MASK = (1 << 64) - 1


def place(feature: int, bits: int) -> int:
    """The hash in Python's integers."""
    high = (feature >> 3) * 0x9E3779B97F4A7C15 & MASK
    return (high >> (67 - bits)) << 3 | (feature & 7)


def exact_matrix(features: str, source: Any) -> tuple[Any, Any, np.ndarray]:
    """Rows, the family that is to be hashed, and its features as a matrix (n, p)."""
    rows = fcl.open_data(source, y=None).rows
    family = bind_features(parse_features(features), rows)
    ((_, _, raw),) = family.read_rows(rows, 4096)
    out = np.zeros((len(raw), family.n_features))
    at = 0
    for chunk in family.row_view().chunks(raw):
        numbers = at + np.repeat(np.arange(len(chunk)), np.diff(chunk.indptr))
        out[numbers, chunk.ids] = chunk.values
        at += len(chunk)
    return rows, family, out


def hashed_matrix(exact: np.ndarray, bits: int) -> np.ndarray:
    out = np.zeros((len(exact), 1 << bits))
    for j, column in enumerate(exact.T):
        out[:, place(j, bits)] += column
    return out


def sparse(X: np.ndarray) -> Any:
    from scipy.sparse import csr_array

    return csr_array(X)


@pytest.mark.slow
@pytest.mark.parametrize("features", ["kmers:d=2", "bag:d=3", "kmers:d=1 + bag:d=2"])
@given(st.integers(0, 2**31), st.integers(4, 5))
@settings(max_examples=10, deadline=None)
def test_rows_are_sums_over_places(features: str, seed: int, bits: int) -> None:
    source = make_windows(seed, 20, 6, "few")
    rows, family, exact = exact_matrix(features, source)
    if family.n_features <= 1 << bits:
        return
    check_view(hashed_family(family, bits, rows), rows, hashed_matrix(exact, bits), seed)


@pytest.mark.parametrize("stored", [np.asarray, sparse])
@given(st.integers(0, 2**31), st.integers(4, 6))
@settings(max_examples=10, deadline=None)
def test_columns_are_hashed(stored: Any, seed: int, bits: int) -> None:
    random = np.random.default_rng(seed)
    X = random.integers(-2, 3, (30, 100)) * (random.random((30, 100)) < 0.3).astype(float)
    rows, family, exact = exact_matrix("columns", stored(X))
    check_view(hashed_family(family, bits, rows), rows, hashed_matrix(exact, bits), seed)


def check_view(family: HashedFamily, rows: Any, expected: np.ndarray, seed: int) -> None:
    """Listed rows, margins of raw rows, and those of a restored family."""
    order = np.random.default_rng(seed).permutation(len(expected))
    weights = np.random.default_rng(seed).normal(size=expected.shape[1])
    for one in (family, family_from_config(family.to_config())):
        ((_, _, raw),) = one.read_rows(rows, 4096)
        at = 0
        for chunk in one.row_view().chunks(raw, order):
            numbers = np.repeat(np.arange(len(chunk)), np.diff(chunk.indptr))
            assert len(np.unique(numbers * expected.shape[1] + chunk.ids)) == len(chunk.ids)
            found = np.zeros((len(chunk), expected.shape[1]))
            found[numbers, chunk.ids] = chunk.values
            assert np.array_equal(found, expected[order[at : at + len(chunk)]])
            at += len(chunk)
        assert at == len(order)
        margins = one.scorer(np.arange(len(weights)), weights).margins(raw)
        np.testing.assert_allclose(margins, expected @ weights, atol=1e-12)


def problem(n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    X = (random.random((n, 200)) < 0.05).astype(float)
    w = np.where(random.random(200) < 0.1, 3.0, 0.0)
    return X, np.where(X @ w + random.normal(size=n) > 0.5, 1, -1)


def test_the_certificate_is_that_of_the_hashed_problem() -> None:
    """The same objective as on explicit hashed columns; the bound is below their optimum."""
    X, y = problem()
    result = train_online(fcl.open_data(X, y=y), "columns", C=1.0, hash_bits=5, passes=5)
    model, proof = result.model, result.model.certificate
    explicit = fcl.open_data(hashed_matrix(X, 5), y=y)
    own = fcl.certify((model.ids, model.weights, model.intercept), explicit, C=1.0)
    assert proof.n_priced == 32
    assert proof.objective == pytest.approx(own.objective, rel=1e-9)
    assert proof.bound == pytest.approx(own.own_bound, rel=1e-9)
    optimum = fcl.train(explicit, "columns", C=1.0, tol=1e-9)
    assert proof.bound <= optimum.certificate.objective <= proof.objective * (1 + 1e-9)
    # the support counts the rows in which a place has a value
    counts = (hashed_matrix(X, 5) != 0).sum(axis=0)
    assert np.array_equal(model.support, counts[model.ids])
    assert [row.feature for row in model.describe(1)] == [f"hash {model.describe(1)[0].id}"]


def test_pricing_in_several_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = problem()
    whole = train_online(fcl.open_data(X, y=y), "columns", C=1.0, hash_bits=6).model
    for module in ("fcl.features.hashed", "fcl.features.generator.pricing"):
        monkeypatch.setattr(f"{module}.PART_FEATURES", 16)
    parts = train_online(fcl.open_data(X, y=y), "columns", C=1.0, hash_bits=6).model
    assert parts.certificate.bound == pytest.approx(whole.certificate.bound, rel=1e-12)
    assert np.array_equal(parts.support, whole.support)


@pytest.mark.parametrize("method", ["ftrl", "truncated-gradient", "ogd", "ball"])
def test_learning_is_that_on_hashed_columns(method: str) -> None:
    """As on the explicit matrix, up to the order of sums."""
    X, y = problem()
    more: dict[str, Any] = {"radius": 10.0} if method == "ball" else {}
    given = {"C": 1.0, "method": method, "rate": 0.2, "certify": False, **more}
    found = by_name.train_online(fcl.open_data(X, y=y), "columns", hash_bits=5, **given).model
    same = by_name.train_online(fcl.open_data(hashed_matrix(X, 5), y=y), "columns", **given).model
    assert np.array_equal(found.ids, same.ids)
    np.testing.assert_allclose(found.weights, same.weights, rtol=1e-9, atol=1e-12)


def test_a_saved_model_predicts_and_resumes(tmp_path: Path) -> None:
    X, y = problem()
    data = fcl.open_data(X, y=y)
    given: dict[str, Any] = {"C": 1.0, "hash_bits": 5, "rate": 0.2, "certify": False}
    whole = train_online(data, "columns", passes=2, **given)
    first = train_online(data, "columns", passes=1, **given)
    assert first.reason is StopReason.DONE and first.model.options["hash_bits"] == 5
    first.save(tmp_path / "m.fcl")
    resumed = train_online(data, resume=tmp_path / "m.fcl", passes=2, certify=False)
    assert resumed.model.weights.tobytes() == whole.model.weights.tobytes()
    loaded = fcl.load_model(tmp_path / "m.fcl")
    weights = np.zeros(32)
    weights[loaded.ids] = loaded.weights
    expected = hashed_matrix(X, 5) @ weights + loaded.intercept
    np.testing.assert_allclose(loaded.margins(X), expected, atol=1e-12)


def test_the_table_is_that_of_the_places() -> None:
    """A budget that is too small for the exact table suffices for a hashed one."""
    windows = make_windows(0, 200, 30, "few")
    data = fcl.open_data(windows, y=np.arange(200) % 2)
    given: dict[str, Any] = {"features": "kmers:d=8", "alpha": 1e-4, "rate": 0.1}
    given["memory"] = "500MiB"
    with pytest.raises(InputError, match=r"a budget of 500 MiB is too small.*hash_bits"):
        train_online(data, **given)
    model = train_online(data, **given, hash_bits=12).model
    assert model.family.n_features == 4096 and model.certificate.objective < np.inf


def test_the_command_says_what_a_hashed_model_is(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from fcl.cli import certify, inspect, online

    X, y = problem()
    folder = tmp_path / "rows"
    folder.mkdir()
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    out, runner = str(tmp_path / "m.fcl"), CliRunner()
    given = [str(folder), "--features", "columns", "--C", "1", "--out", out]
    result = runner.invoke(online.command, [*given, "--hash-bits", "5"])
    words = "200 features share 32 weights, which have no names"
    assert result.exit_code == 0 and words in result.output, result.output
    for command, more in ((certify.command, [out, str(folder)]), (inspect.command, [out])):
        result = runner.invoke(command, more)
        assert result.exit_code == 0 and words in result.output, result.output
    result = runner.invoke(online.command, [*given, "--overwrite", "--hash-bits", "9"])
    assert result.exit_code == 2 and "leave it out" in result.output
    result = runner.invoke(online.command, [str(folder), "--resume", out, "--hash-bits", "5"])
    assert result.exit_code == 2 and "--hash-bits: a resumed run keeps the options" in result.output
