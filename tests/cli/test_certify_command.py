"""fcl certify."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl.model import Model
from tests import by_name
from tests.cli.conftest import ok

Run = Callable[..., Result]
KMERS = ("--features", "kmers:d=3")


@pytest.fixture
def trained(data: Path, tmp_path: Path) -> Path:
    """A model of the data, nearly optimal at C = 0.1."""
    result = fcl.train(fcl.open_data(data), "kmers:d=3", C=0.1, tol=1e-5)
    result.model.save(tmp_path / "t.fcl")
    return tmp_path / "t.fcl"


def test_a_model_of_fcl(data: Path, trained: Path, tmp_path: Path, run: Run) -> None:
    out, values = tmp_path / "again.fcl", tmp_path / "c.json"
    result = ok(run("certify", trained, data, "--out", out, "--json", values, "--top", 2))
    model = fcl.load_model(trained)
    assert isinstance(model, Model)
    for text in (
        f"objective    {model.certificate.objective:.10g}",
        f"bound        {model.certificate.bound:.10g}",
        "over all features of the family",
        "the training data",
        "best C       ",
        "ball         radius ",
        "strongest violators:",
    ):
        assert text in result.stdout
    assert len(result.stdout.partition("|C g|")[2].splitlines()) <= 3
    found = json.loads(values.read_text())
    assert found["certificate"]["bound"] == pytest.approx(model.certificate.bound, rel=1e-12)
    assert found["C"] == 0.1 and found["same_data"] is True and "model" not in found
    assert found["best_C"] == pytest.approx(0.1, rel=1e-3)
    assert {"id", "feature", "weight", "slope", "violation"} == found["violators"][0].keys()
    again = fcl.load_model(out)
    assert isinstance(again, Model) and np.array_equal(again.ids, model.ids)
    assert "1 pass, the first of the starting weights" in run("inspect", out).stdout
    assert run("certify", out, data, "--quiet").stdout == ""
    refused = run("certify", trained, data, "--out", out)
    assert refused.exit_code == 2 and "exists already" in refused.stderr


def test_weights_by_name_prove_the_same(
    data: Path, trained: Path, tmp_path: Path, run: Run
) -> None:
    table, values = tmp_path / "w.tsv", tmp_path / "c.json"
    assert run("inspect", trained, "--tsv", table).exit_code == 0
    result = ok(run("certify", table, data, *KMERS, "--C", 0.1, "--json", values))
    assert "the model has none" in result.stdout
    model = fcl.load_model(trained)
    assert isinstance(model, Model)
    found = json.loads(values.read_text())
    assert found["own_gap"] == pytest.approx(model.certificate.gap, rel=1e-6)
    # half of the weights prove little by themselves, and with the bound of the optimum the truth
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[: len(lines) // 2], "(intercept)\t0.5\t0\t\t\t"]))
    given = ("--bound-from", trained, "--json", values, "--overwrite")
    result = run("certify", table, data, *KMERS, *given)
    assert result.exit_code == 0 and "own bound" in result.stdout, result.output
    assert "with the model's own the objective is" in result.stdout
    found = json.loads(values.read_text())
    assert found["C"] == 0.1 and found["certificate"]["gap"] < found["own_gap"]
    assert found["certificate"]["bound"] == model.certificate.bound
    assert found["own_objective"] > found["certificate"]["objective"]


def test_arrays_and_options(data: Path, tmp_path: Path, run: Run) -> None:
    rows = np.load(data / "X.npy").astype(float)
    np.save(data / "numbers.npy", rows)
    np.save(tmp_path / "w.npy", np.where(np.arange(12) == 5, 0.3, 0.0))
    values = tmp_path / "c.json"
    result = ok(run(
        "certify", tmp_path / "w.npy", data, "--x", "numbers", "--weights", "s", "--intercept", 0.2,
        "--alpha", 0.01, "--loss", "squared_hinge", "--penalty", "elastic",
        "--class-weight", "balanced",
        "--radius", 2, "--memory", "1GiB", "--json", values,
    ))  # fmt: skip
    assert "only --C best does it" in result.stdout
    found = json.loads(values.read_text())
    weights = np.load(data / "s.npy")
    assert found["C"] == pytest.approx(100.0 / weights.sum()) and found["best_C"] is None
    expected = by_name.certify(
        (np.load(tmp_path / "w.npy"), 0.2),
        fcl.open_data(rows, y=np.load(data / "y.npy"), weights=weights),
        alpha=0.01,
        loss="squared_hinge",
        l1_ratio=0.5,
        class_weight="balanced",
        radius=2.0,
    )
    assert found["certificate"] == expected.to_dict()["certificate"]
    assert found["ball_gap"] == expected.ball_gap and found["radius"] == 2.0
    best = run("certify", tmp_path / "w.npy", data, "--x", "numbers", "--no-intercept")
    assert best.exit_code == 0 and "where the model is most nearly optimal" in best.stdout


def test_a_model_of_vowpal_wabbit(data: Path, tmp_path: Path, run: Run) -> None:
    np.save(data / "numbers.npy", np.load(data / "X.npy")[:, :4].astype(float))
    path = tmp_path / "readable.txt"
    path.write_text("Version 9.11.9\nbits:18\noptions:\n:0\n0:0.5\n3:-1\n116060:0.25\n")
    ok(run("certify", path, data, "--x", "numbers", "--C", "best", "--out", tmp_path / "v.fcl"))
    model = fcl.load_model(tmp_path / "v.fcl")
    assert isinstance(model, Model)
    assert model.ids.tolist() == [0, 3] and model.weights.tolist() == [0.5, -1.0]
