"""The page about a model of several outputs, compared with scikit-learn and with sums over the rows."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
)

from fcl.data import DataSet, open_data
from fcl.features import KmerFamily, bind_features, parse_features
from fcl.model import Model, load_model
from fcl.report import cells
from fcl.report.contract import Context
from fcl.report.make import Report, make_report
from tests.report.conftest import make_model

HOSTILE = "<script>alert(1)</script>"
N, LENGTH = 260, 10
#: Sections of a page without windows of letters.
KEYS = ["head", "scores", "features", "convergence", "provenance"]


def made(path: Path, loss: str = "softmax", labels: Any = None, **changes: Any) -> DataSet:
    """Save a model of three outputs over the columns of a table, of which 1 and 3 are equal; its rows."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(N, 6))
    x[:, 3] = x[:, 1]
    x[::3, 4] = 0.0
    weights = np.array([[1.0, -0.5, 0.0], [0.0, 0.75, -0.25], [0.0, 0.5, 0.0], [0.3, 0.0, -2.0]])
    intercept = np.array([0.5, -0.25, -0.25])
    columns = [0, 1, 3, 4]
    margins = x[:, columns] @ weights + intercept
    y: Any = margins + rng.normal(size=(N, 3)) + 1e3 * (loss == "squared")
    if loss == "softmax":
        y = np.array(labels)[(margins + rng.gumbel(size=(N, 3))).argmax(axis=1)]
    elif loss == "logistic":
        y = (margins + rng.logistic(size=(N, 3)) > 0.0).astype(np.int8)
    else:
        intercept = intercept + 1e3
    data = open_data(x, y=y, weights=rng.uniform(0.0, 2.0, N).round(1))
    family = bind_features(parse_features("columns"), data.rows)
    changes = {"loss": loss, "labels": labels, "intercept": intercept.tolist(), **changes}
    make_model(family, columns, weights.tolist(), **changes).save(path)
    return data


def table(report: Report, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.data[f"{name}.csv"])))


def numbers(rows: list[dict[str, str]], column: str) -> list[float]:
    return [float(row[column]) for row in rows]


def facts(report: Report, section: str) -> dict[str, str]:
    return dict(json.loads(report.data["report.json"])[section])


def read(path: Path, data: DataSet) -> tuple[Model, np.ndarray, np.ndarray]:
    """The model, its margins, and the weights of the rows."""
    model = load_model(path)
    assert data.weights is not None
    return model, model.margins(data), data.weights


def check_areas(row: dict[str, str], y: np.ndarray, scores: np.ndarray, s: np.ndarray) -> None:
    for name, area in (("AUPRC", average_precision_score), ("AUROC", roc_auc_score)):
        assert float(row[name]) == pytest.approx(area(y, scores, sample_weight=s))


@pytest.mark.slow
def test_classes(tmp_path: Path) -> None:
    path, labels = tmp_path / "m.fcl", ("a", "b", HOSTILE)
    data = made(path, labels=labels)
    report = make_report(path, data, groups=np.arange(N) % 4)
    assert [section.key for section in report.sections] == KEYS
    assert make_report(path, data, groups=np.arange(N) % 4).html == report.html
    assert HOSTILE not in report.html and len(re.findall("<script", report.html)) == 2
    model, margins, s = read(path, data)
    p, y = model.predict_proba(data), np.array([labels.index(v) for v in data.target])
    best = margins.argmax(axis=1)
    found = facts(report, "scores")
    assert float(found["error"]) == pytest.approx(np.average(best != y, weights=s), rel=1e-4)
    assert float(found["log loss"]) == pytest.approx(log_loss(y, p, sample_weight=s), rel=1e-4)
    own = table(report, "outputs")
    one = {"sample_weight": s, "average": None}
    np.testing.assert_allclose(numbers(own, "precision"), precision_score(y, best, **one))
    np.testing.assert_allclose(numbers(own, "recall"), recall_score(y, best, **one))
    for k, row in enumerate(own):
        check_areas(row, y == k, p[:, k], s)
    confusion = [list(row.values())[1:] for row in table(report, "confusion")]
    expected = confusion_matrix(y, best, sample_weight=s)
    np.testing.assert_allclose(np.array(confusion, float), expected)
    groups = table(report, "groups")
    for g, row in enumerate(groups):
        rows = np.arange(N) % 4 == g
        wrong = np.average(best[rows] != y[rows], weights=s[rows])
        assert float(row["error"]) == pytest.approx(wrong)
        loss = log_loss(y[rows], p[rows], sample_weight=s[rows], labels=[0, 1, 2])
        assert float(row["log loss"]) == pytest.approx(loss)
        assert int(row["rows"]) == np.count_nonzero(s[rows])
    for k in range(3):
        bins = [row for row in table(report, "calibration") if row["class"] == labels[k]]
        mean = np.average(numbers(bins, "predicted"), weights=numbers(bins, "rows"))
        assert mean == pytest.approx(p[s > 0, k].mean(), rel=0.1)
    assert {"confusion", "calibration", "strongest"} <= {n[:-4] for n in report.plots}


@pytest.mark.slow
def test_features_of_each_class(tmp_path: Path) -> None:
    path = tmp_path / "m.fcl"
    data = made(path, labels=("a", "b", "c"))
    report = make_report(path, data, names=["n0", "n1", "n2", "n3", "n4", "n5"])
    rows = table(report, "features")
    assert [(row["class"], row["feature"], float(row["weight"])) for row in rows] == [
        ("c", "n4", -2.0), ("a", "n0", 1.0), ("b", "n1", 0.75), ("b", "n0", -0.5), ("a", "n4", 0.3),
        ("c", "n1", -0.25),
    ]  # fmt: skip
    assert rows[2]["equal columns"] == "1 equal: n3 (+0.5)" and not rows[0]["equal columns"]
    sample = np.asarray(data.rows.read(0, N))[data.weights > 0]
    s = data.weights[data.weights > 0]
    values = sample[:, 4]
    spread = np.sqrt(np.cov(values, aweights=s, ddof=0))
    assert float(rows[0]["effect"]) == pytest.approx(2.0 * spread)
    own = table(report, "intercepts")
    assert numbers(own, "intercept") == [0.5, -0.25, -0.25]
    assert [row["weights above 0"] for row in own] == ["2", "2", "0"]
    drawn = table(report, "strongest")
    assert [(row["class"], row["feature"]) for row in drawn[:2]] == [("a", "n0"), ("a", "n4")]
    alone = make_report(path)
    assert "need rows of data" in alone.html and "effect" not in table(alone, "features")[0]
    grouped = tmp_path / "g.fcl"
    made(grouped, labels=("a", "b", "c"), options={"group": True})
    assert "for all classes, or for none of them" in make_report(grouped).html


def test_titles_of_classes_that_are_numbers(tmp_path: Path) -> None:
    for labels, title in (((0, 1, 2), "class 1"), (("a", "b", "c"), "b")):
        path = tmp_path / f"{title}.fcl"
        made(path, labels=labels)
        assert Context(load_model(path), path, "").heading(1) == title


@pytest.mark.slow
def test_several_numbers(tmp_path: Path) -> None:
    path = tmp_path / "m.fcl"
    data = made(path, "squared")
    report = make_report(path, data, groups=np.arange(N) % 2)
    _, margins, s = read(path, data)
    own, y = table(report, "outputs"), data.target
    errors = np.average((y - margins) ** 2, axis=0, weights=s)
    np.testing.assert_allclose(numbers(own, "mean squared error"), errors)
    r2 = r2_score(y, margins, sample_weight=s, multioutput="raw_values")
    np.testing.assert_allclose(numbers(own, "R squared"), r2)
    assert facts(report, "scores")["R squared"] == f"{np.mean(r2):.4f} (the mean target has 0)"
    groups = table(report, "groups")
    odd = np.arange(N) % 2 == 1
    mae = np.average(np.abs(y - margins)[odd].mean(axis=1), weights=s[odd])
    assert float(groups[1]["mean absolute error"]) == pytest.approx(mae)
    assert all(990 < mean < 1010 for mean in numbers(table(report, "calibration"), "observed"))


@pytest.mark.slow
def test_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "m.fcl"
    data = made(path, "logistic", ("x", "y", "z"))
    report = make_report(path, data, groups=np.arange(N) % 2)
    model, margins, s = read(path, data)
    p, own = model.predict_proba(data), table(report, "outputs")
    for k, row in enumerate(own):
        y = data.target[:, k]
        check_areas(row, y, margins[:, k], s)
        wrong = np.average((margins[:, k] > 0) != y, weights=s)
        assert float(row["error"]) == pytest.approx(wrong)
        bins = [row for row in table(report, "calibration") if row["label"] == "xyz"[k]]
        squares = np.square(np.array(numbers(bins, "predicted")) - numbers(bins, "observed"))
        assert squares.mean() < brier_score_loss(y, p[:, k], sample_weight=s)
    right = np.average(((margins > 0) == data.target).mean(axis=1), weights=s)
    assert facts(report, "scores")["accuracy"].startswith(f"{right:.4f} (a constant has 0.")
    even = np.arange(N) % 2 == 0
    loss = log_loss(data.target[even].ravel(), p[even].ravel(), sample_weight=np.repeat(s[even], 3))
    assert numbers(table(report, "groups"), "log loss")[0] == pytest.approx(loss)


@pytest.mark.slow
def test_letters_of_each_class(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    windows = rng.integers(0, 5, (N, LENGTH), dtype=np.uint8)
    family = KmerFamily(3, LENGTH, 4)
    ids = sorted(family.feature_id(*pattern) for pattern in [("G", 4), ("AC", 2), ("TTT", 6)])
    weights = [[1.0, 0.0, -1.0], [0.0, 2.0, 0.0], [0.0, -0.5, 0.25]]
    changes = {"intercept": [0.0, 1.0, 2.0], "labels": ("EI", "IE", "N"), "loss": "softmax"}
    path = tmp_path / "k.fcl"
    make_model(family, ids, weights, **changes).save(path)
    data = open_data(windows, y=rng.choice(["EI", "IE", "N"], N), weights=rng.uniform(0, 2, N))
    report = make_report(path, data)
    keys = [section.key for section in report.sections]
    assert keys == [*KEYS[:2], "effects", *KEYS[2:]]
    assert "positions.svg" in report.plots and "effects.svg" in report.plots
    _, margins, s = read(path, data)
    margins = margins - margins.mean(axis=1, keepdims=True)
    for row in table(report, "effects"):
        k, position = ("EI", "IE", "N").index(row["class"]), int(row["position"]) + 4
        has = windows[:, position] == "ACGT".index(row["letter"])
        mean = np.average(margins[has, k], weights=s[has])
        effect = mean - np.average(margins[:, k], weights=s)
        assert float(row["effect"]) == pytest.approx(effect, abs=1e-12)


@pytest.mark.slow
def test_many_rows_share_cells_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.fcl"
    data = made(path, labels=("a", "b", "c"))
    exact = table(make_report(path, data), "outputs")
    monkeypatch.setattr(cells, "MOST_CELLS", 120)
    monkeypatch.setattr(cells, "CELLS_OF_GROUP", 40)
    report = make_report(path, data)
    found = re.search(r"AUPRC by at most ([\d.e-]+)", report.html)
    assert found is not None
    differences = np.subtract(numbers(table(report, "outputs"), "AUPRC"), numbers(exact, "AUPRC"))
    assert 0.0 < np.abs(differences).max() <= float(found[1])


@pytest.mark.slow
def test_models_without_features_and_rows_of_one_class(tmp_path: Path) -> None:
    path = tmp_path / "m.fcl"
    data = made(path, labels=("a", "b", "c"))
    only = data.with_target(np.full(N, "b"), data.weights)
    rows = table(make_report(path, only), "outputs")
    assert [row["AUPRC"] for row in rows] == ["", "", ""] and float(rows[1]["recall"]) > 0.0
    model = load_model(path)
    empty = {"weights": np.zeros((4, 3)), "loss": "softmax", "labels": ("a", "b", "c")}
    make_model(model.family, [0, 1, 3, 4], **empty, intercept=[0.0] * 3).save(tmp_path / "e.fcl")
    assert "The model has no features" in make_report(tmp_path / "e.fcl", data).html
