"""Learners that start from the weights of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fcl
from fcl.cli.online import command
from fcl.drivers.online.train import train_online
from fcl.errors import InputError
from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions, make_learner

N, P = 1500, 12
RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((N, P)) < 0.4, RANDOM.normal(size=(N, P)), 0.0)
W = np.where(np.arange(P) % 3 == 0, 0.0, 2.0 * RANDOM.normal(size=P))
Y = np.where(RANDOM.random(N) < 1 / (1 + np.exp(-X @ W - 0.5)), 1, -1)
METHODS: list[dict[str, Any]] = [
    {"method": "ftrl"},
    {"method": "truncated-gradient"},
    {"method": "truncated-gradient", "step": "adagrad"},
    {"method": "ogd"},
]


def chunk(x: np.ndarray) -> RowChunk:
    rows, ids = np.nonzero(x)
    return RowChunk(np.searchsorted(rows, np.arange(len(x) + 1)), ids, x[rows, ids])


@pytest.mark.slow
@pytest.mark.parametrize("given", METHODS)
@pytest.mark.parametrize("weights", ["float64", "float32"])
def test_a_learner_has_the_weights_that_it_starts_from(given: dict[str, Any], weights: str) -> None:
    method, options = given["method"], {k: v for k, v in given.items() if k != "method"}
    learner = make_learner(
        method, P, OnlineOptions(alpha=0.01, rate=0.3, weights=weights, **options)
    )
    learner.start_from(np.arange(P), W, 0.5)
    close = {"rtol": 1e-6 if weights == "float32" else 1e-14}
    ids, found, intercept = learner.point()
    np.testing.assert_array_equal(ids, np.flatnonzero(W))
    np.testing.assert_allclose(found, W[ids], **close)
    assert intercept == 0.5
    margins = np.zeros(1)
    learner.learn(chunk(X[:1]), np.ones(1), np.ones(1), margins)
    np.testing.assert_allclose(margins, X[:1] @ W + 0.5, **close)
    with pytest.raises(InputError, match="before its first row"):
        learner.start_from(np.arange(P), W)


def slopes(w: np.ndarray, i: int) -> np.ndarray:
    """The gradient of the squared loss of row i."""
    return 2.0 * (X[i] @ w - Y[i]) * X[i]


def test_ftrl_goes_on_as_adagrad_with_one_slope_seen_where_there_are_weights() -> None:
    options = OnlineOptions(alpha=0.0, rate=0.3, loss="squared", intercept=False)
    learner = make_learner("ftrl", P, options)
    learner.start_from(np.arange(P), W)
    w, squares = W.copy(), (W != 0.0).astype(float)
    learner.learn(chunk(X[:300]), Y[:300].astype(float), np.ones(300), np.zeros(300))
    for i in range(300):
        g = slopes(w, i)
        squares += g * g
        some = g != 0.0
        w[some] -= 0.3 * g[some] / np.sqrt(squares[some])
    ids, found, _ = learner.point()
    np.testing.assert_allclose(found, w[ids], rtol=1e-9)


def test_truncated_gradient_goes_on_as_stochastic_gradient_with_truncations() -> None:
    options = OnlineOptions(
        alpha=0.05, rate=0.05, power=0.5, loss="squared", step="explicit", intercept=False, period=7
    )
    learner = make_learner("truncated-gradient", P, options)
    learner.start_from(np.arange(P), W)
    learner.learn(chunk(X[:300]), Y[:300].astype(float), np.ones(300), np.zeros(300))
    w = W.copy()
    for i in range(300):
        rate = 0.05 / np.sqrt(i + 1)
        w -= rate * slopes(w, i)
        if (i + 1) % 7 == 0:
            w = np.sign(w) * np.maximum(0.0, np.abs(w) - rate * 0.05 * 7)
    ids, found, _ = learner.point()
    np.testing.assert_array_equal(ids, np.flatnonzero(w))
    np.testing.assert_allclose(found, w[ids], rtol=1e-9)


@pytest.fixture(scope="module")
def optimum() -> fcl.Model:
    return train_online(fcl.open_data(X, y=Y), "columns", alpha=0.002, passes=3, rate=0.5).model


@pytest.mark.parametrize("given", METHODS)
@pytest.mark.parametrize("rate", [0.1, "auto"])
def test_the_first_rows_are_predicted_by_the_initial_model(
    given: dict[str, Any], rate: Any, optimum: fcl.Model
) -> None:
    data = fcl.open_data(X, y=Y)
    shared = {"alpha": 0.002, "rate": rate, "certify": False, "shuffle": False, **given}
    warm = train_online(data, "columns", initial=optimum, **shared).progress[0]
    cold = train_online(data, "columns", **shared).progress[0]
    margins = X[:1000, optimum.ids] @ optimum.weights + optimum.intercept
    own = np.logaddexp(0, -Y[:1000] * margins).mean()
    assert abs(warm.loss - own) < 0.25 * abs(cold.loss - own)


def test_the_command(optimum: fcl.Model, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "X.npy", X)
    np.save(tmp_path / "data" / "y.npy", Y)
    initial, shared = tmp_path / "i.fcl", ["--features", "columns", "--alpha", "0.002"]
    optimum.save(initial)
    lines = "".join(
        " ".join([str(y), *(f"{j + 1}:{float(row[j])!r}" for j in np.flatnonzero(row))]) + "\n"
        for row, y in zip(X, Y, strict=True)
    )
    for number, source in enumerate([[str(tmp_path / "data")], ["-", "--columns", str(P)]]):
        out = tmp_path / f"m{number}.fcl"
        more = ["--initial", str(initial), "--rate", "1e-9", "--method", "truncated-gradient"]
        given = [*source, *shared, *more, "--out", str(out)]
        if number == 0:
            given.append("--no-certify")
        result = CliRunner().invoke(command, given, input=lines)
        assert result.exit_code == 0, result.output
        found = fcl.load_model(out)
        large = np.abs(found.weights) > 1e-6
        np.testing.assert_array_equal(found.ids[large], optimum.ids)
        np.testing.assert_allclose(found.weights[large], optimum.weights, atol=1e-6)


def test_the_command_starts_from_an_online_model(tmp_path: Path) -> None:
    """``fcl train --initial`` ends at the optimum; with --path or --resume it is refused."""

    from fcl.cli.train import command as train_command

    random = np.random.default_rng(3)
    X = random.normal(size=(500, 8))
    y = np.where(X[:, 0] - X[:, 1] + random.logistic(size=500) > 0.0, 1, 0)
    folder, start = tmp_path / "rows", tmp_path / "start.fcl"
    folder.mkdir()
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    data = fcl.open_data(str(folder))
    fcl.train_online(data, "columns", C=0.1, rate=0.2, certify=False).model.save(start)
    given = [str(folder), "--features", "columns", "--driver", "inline", "--tol", "1e-8"]
    given += ["--initial", str(start), "--out", str(tmp_path / "m.fcl")]
    result = CliRunner().invoke(train_command, [*given, "--C", "0.1"])
    assert result.exit_code == 0, result.output
    optimum = fcl.train(data, "columns", C=0.1, tol=1e-8)
    found = fcl.load_model(tmp_path / "m.fcl").certificate
    assert found.objective == pytest.approx(optimum.certificate.objective, rel=1e-7)
    result = CliRunner().invoke(train_command, [*given, "--path", "3", "--valid-fraction", "0.5"])
    assert result.exit_code == 2 and "--initial does not go with --path" in result.output
