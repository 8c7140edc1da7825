"""The page about a stagewise model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waves import Problem

import fcl
from fcl.data.columns import ColumnRecord
from fcl.report.make import make_report
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise

HOSTILE = "<script>alert(1)</script>"


def saved(path: Path, numbers: bool = False, **options: Any) -> fcl.DataSet:
    """Train on columns with names, save, and return the rows."""
    problem = Problem()
    y = problem.numbers if numbers else np.where(problem.y == "a", HOSTILE, problem.y)
    data = problem.data(y)
    data.column_record = ColumnRecord([HOSTILE, "b", "c", "d"])
    settings = Settings(block=2, visits=2, valid_fraction=0.2, **options)
    running = StagewiseRunOptions(cores=1, certify=True)
    result = train_stagewise(data, "columns", settings, numbers=numbers, running=running)
    result.model.save(path)
    return data


@pytest.mark.slow
def test_classes(tmp_path: Path) -> None:
    data = saved(tmp_path / "m.fcl")
    report = make_report(tmp_path / "m.fcl", data)
    assert [section.key for section in report.sections] == [
        "head", "scores", "features", "convergence", "provenance",
    ]  # fmt: skip
    assert make_report(tmp_path / "m.fcl", data).html == report.html
    assert HOSTILE not in report.html and len(report.html) < 500_000
    assert len(re.findall("<script", report.html)) == 1
    model: Any = fcl.load_model(tmp_path / "m.fcl")
    facts = {name: text for section in report.sections for name, text in section.facts}
    assert facts["gap"].startswith(f"{model.certificate.gap:.3g} relative, to the joint optimum")
    wrong = model.predict(data) != data.target
    assert facts["error"] == f"{np.average(wrong, weights=data.weights):.5g}"
    rows = report.data["visits.csv"].splitlines()
    assert len(rows) == 1 + len(model.history) and rows[0].startswith("number,loss,valid_loss")
    confusion = report.data["confusion.csv"].splitlines()[1:]
    found = np.array([line.split(",")[1:] for line in confusion], float)
    expected = [
        [data.weights[(data.target == a) & (model.predict(data) == b)].sum() for b in model.labels]
        for a in model.labels
    ]
    assert np.allclose(found, expected)
    weights = dict(line.rsplit(",", 1) for line in report.data["features_1.csv"].splitlines()[1:])
    assert float(weights["b"]) == pytest.approx(model.weights.features[1, 1])
    assert "were the" not in report.html and "visits.svg" in report.plots


def test_facts_are_whole(tmp_path: Path) -> None:
    """The family with its options, and the scores, are longer than a name."""
    problem = Problem()
    features = "fourier:n=20,gamma=0.12345678901234567,pca=3,dtype=int8"
    settings = Settings(block=8, visits=3, valid_fraction=0.2)
    result = train_stagewise(
        problem.data(), features, settings, running=StagewiseRunOptions(cores=1)
    )
    result.model.save(tmp_path / "m.fcl")
    report = make_report(tmp_path / "m.fcl")
    facts = {name: text for section in report.sections for name, text in section.facts}
    row = result.model.history[result.model.best_number - 1]
    assert len(facts["features"]) > 120 < len(facts["weights"])
    assert facts["features"].startswith("20 features of Fourier (n=20, ")
    assert facts["features"].endswith(f"gamma_={0.12345678901234567})")
    assert facts["weights"].endswith(f"validation error {row['valid_error']:.5g}")


@pytest.mark.slow
def test_numbers_and_no_data(tmp_path: Path) -> None:
    data = saved(tmp_path / "n.fcl", numbers=True)
    report = make_report(tmp_path / "n.fcl", data)
    model: Any = fcl.load_model(tmp_path / "n.fcl")
    errors = np.square(model.margins(data) - data.target)
    lines = report.data["outputs.csv"].splitlines()[1:]
    found = [float(line.split(",")[1]) for line in lines]
    assert np.allclose(found, np.average(errors, axis=0, weights=data.weights))
    alone = make_report(tmp_path / "n.fcl")
    assert "Scores, effects and single rows need rows of data" in alone.html
