"""Prediction of stagewise models: on disk, by ``fcl predict``, and compared with targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.metrics import log_loss, mean_squared_error, r2_score
from waves import Problem

import fcl
from fcl.cli.predict import command
from fcl.objective.multi_output import ClassScoreSums, NumberSums

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    return lambda *given: CliRunner().invoke(command, [str(word) for word in given])


@pytest.fixture
def folder(problem: Problem, tmp_path: Path) -> Path:
    """Models m.fcl of classes, n.fcl of two numbers, o.fcl of one; and data."""
    data = tmp_path / "data"
    data.mkdir()
    for name, values in {"X": problem.x, "y": problem.y, "s": problem.s}.items():
        np.save(data / f"{name}.npy", values)
    problem.train(update="gls", block=8).model.save(tmp_path / "m.fcl")
    problem.train(target=problem.numbers).model.save(tmp_path / "n.fcl")
    problem.train(target=problem.numbers[:, :1]).model.save(tmp_path / "o.fcl")
    return tmp_path


def expected_margins(problem: Problem, path: Path) -> np.ndarray:
    """Margins from the explicit matrix of all features."""
    model: Any = fcl.load_model(path)
    weights = model.weights
    return problem.matrix() @ weights.features + weights.intercepts.sum(axis=0)


def test_outputs_of_every_format(problem: Problem, folder: Path, run: Run) -> None:
    import zarr

    margins = expected_margins(problem, folder / "m.fcl")
    expected = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    for suffix in ("npy", "tsv", "zarr"):
        out = folder / f"p.{suffix}"
        result = run(folder / "m.fcl", folder / "data", "--probability", "--out", out)
        assert result.exit_code == 0, result.output
    found = np.load(folder / "p.npy")
    assert found.dtype == np.float64 and found.shape == (300, 3)
    assert np.allclose(found, expected, atol=1e-6) and np.allclose(found.sum(axis=1), 1.0)
    head, *lines = (folder / "p.tsv").read_text().splitlines()
    assert head == "probability_a\tprobability_b\tprobability_c"
    assert np.array_equal(np.array([line.split("\t") for line in lines], float), found)
    array: Any = zarr.open_array(folder / "p.zarr", mode="r")
    assert array.attrs["kind"] == "probability" and array.attrs["columns"] == head.split("\t")
    assert np.array_equal(array[:], found)
    error = np.mean(problem.y != np.array(["a", "b", "c"])[expected.argmax(axis=1)])
    loss = log_loss(problem.y, expected)
    assert f"error {error:.4f}, Brier score" in result.output
    assert f"log loss {loss:.4f} over 300 rows" in result.output


def test_numbers(problem: Problem, folder: Path, run: Run) -> None:
    margins = expected_margins(problem, folder / "n.fcl")
    assert run(folder / "n.fcl", folder / "data", "--out", folder / "n.tsv").exit_code == 0
    head, *lines = (folder / "n.tsv").read_text().splitlines()
    assert head == "margin_0\tmargin_1"
    assert np.allclose(np.array([line.split("\t") for line in lines], float), margins, atol=1e-5)
    assert run(folder / "o.fcl", folder / "data", "--out", folder / "o.npy").exit_code == 0
    single: Any = fcl.load_model(folder / "o.fcl")
    assert np.array_equal(np.load(folder / "o.npy"), single.predict(problem.x))


def test_tables_of_rows(problem: Problem, folder: Path, run: Run) -> None:
    """The rows of a CSV file: the class, its margins and probabilities, and scores of its labels."""
    pytest.importorskip("pyarrow")
    pairs = zip(problem.x.tolist(), problem.y, strict=True)
    rows = [",".join([*map(repr, row), label]) for row, label in pairs]
    (folder / "t.csv").write_text("\n".join(["a,b,c,d,y", *rows, ""]))
    out = folder / "t.tsv"
    result = run(folder / "m.fcl", folder / "t.csv", "--y", "y", "--out", out)
    assert result.exit_code == 0, result.output
    head, *lines = (line.split("\t") for line in out.read_text().splitlines())
    names = [f"{kind}_{label}" for kind in ("margin", "probability") for label in "abc"]
    assert head == ["row", "predicted", *names] and len(lines) == 300
    margins = np.array([line[2:5] for line in lines], float)
    assert np.allclose(margins, expected_margins(problem, folder / "m.fcl"), atol=1e-5)
    assert [line[1] for line in lines] == ["abc"[k] for k in margins.argmax(axis=1)]
    wrong = np.mean(problem.y != [line[1] for line in lines])
    assert f"error {wrong:.4f}, " in result.output


def test_margins_of_a_few_features_at_a_time(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = problem.train(update="ls", block=8).model
    margins = model.margins(problem.x)
    monkeypatch.setattr("fcl.stagewise.model.MOST_VALUES", 3 * 300)
    assert np.allclose(model.margins(problem.x), margins, atol=1e-12)


def test_sums_equal_metrics_over_all_rows() -> None:
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.ones(3), 90)
    y, s = rng.integers(0, 3, 90), rng.uniform(0, 2, 90)
    s[:9] = 0.0
    sums = ClassScoreSums(3)
    numbers, t = NumberSums(3), 1e6 + rng.normal(size=(90, 3))
    for rows in (slice(0, 9), slice(9, 40), slice(40, 90)):
        sums.add(y[rows].astype(float), p[rows], s[rows])
        numbers.add(t[rows], t[rows] + p[rows], s[rows])
    found = sums.metrics()
    assert found["error"] == pytest.approx(np.average(p.argmax(axis=1) != y, weights=s))
    assert found["log loss"] == pytest.approx(log_loss(y, p, sample_weight=s))
    brier = np.average(np.square(p - np.eye(3)[y]).sum(axis=1), weights=s)
    assert found["Brier score"] == pytest.approx(brier) and sums.n_rows == 81
    confusion = sums.confusion
    assert confusion is not None and confusion.sum() == pytest.approx(s.sum())
    assert numbers.metrics() == {
        "MSE": pytest.approx(mean_squared_error(t, t + p, sample_weight=s)),
        "R2": pytest.approx(r2_score(t, t + p, sample_weight=s), rel=1e-6),
    }
    certain = ClassScoreSums(2)
    certain.add(np.array([1.0]), np.array([[1.0, 0.0]]))
    assert certain.metrics() == {"error": 1.0, "Brier score": 2.0}
