"""fcl predict and fcl inspect."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fcl.model import Model
from fcl.objective import find_loss
from tests.cli.conftest import ok

Run = Callable[..., Result]


@pytest.mark.parametrize(("suffix", "kind"), [("npy", None), ("tsv", "--probability")])
def test_scores(
    data: Path, model: Model, model_file: Path, tmp_path: Path, run: Run, suffix: str,
    kind: str | None,
) -> None:  # fmt: skip
    out = tmp_path / f"s.{suffix}"
    os.remove(data / "y.npy")  # prediction needs no target
    result = ok(run("predict", model_file, data, "--out", out, *([kind] if kind else [])))
    assert result.stdout == "" and "600 rows in" in result.stderr and "rows/s" in result.stderr
    expected = model.margins(np.load(data / "X.npy"))
    if suffix == "npy":
        scores = np.load(out)
    else:
        head, *lines = out.read_text().splitlines()
        assert head == "probability"
        scores, expected = np.array(lines, float), find_loss("logistic").mean(expected)
    assert np.array_equal(scores, expected)
    again = run("predict", model_file, data, "--out", out)
    assert again.exit_code == 2 and "exists already" in again.stderr
    assert run("predict", model_file, data, "--out", out, "--overwrite").exit_code == 0


def test_other_array_of_rows(data: Path, model_file: Path, tmp_path: Path, run: Run) -> None:
    (data / "X.npy").rename(data / "seq.npy")
    out = tmp_path / "s.npy"
    result = run("predict", model_file, data, "--out", out)
    assert result.exit_code == 2 and '"X"' in result.stderr
    assert run("predict", model_file, data, "--out", out, "--x", "seq").exit_code == 0


def test_inspect(model: Model, model_file: Path, tmp_path: Path, run: Run) -> None:
    tsv = tmp_path / "f.tsv"
    result = run("inspect", model_file, "--tsv", tsv, "--top", 2)
    assert result.exit_code == 0 and result.stderr == ""
    for text in (
        "logistic", "sum_j |w_j| + C sum_i s_i log(1 + exp(-y_i m_i))", "0.1 (alpha 0.1)",
        "0 is -1, 1 is +1", "100", "12.5", "12.4",
        "0.008 relative, over all features of the family", "3 of 1,000 priced features", "-0.7",
    ):  # fmt: skip
        assert text in result.stdout, text
    rows = model.describe()
    assert rows[0].feature in result.stdout and rows[1].feature in result.stdout
    assert rows[2].feature not in result.stdout
    lines = [line.split("\t") for line in tsv.read_text().splitlines()]
    assert lines[0] == ["feature", "weight", "support", "motif", "position", "strand"]
    assert [(f, float(w), int(s)) for f, w, s, *_ in lines[1:]] == [row[1:] for row in rows]
    assert [f"{motif} at {at}" for *_, motif, at, _ in lines[1:]] == [r.feature for r in rows]
    again = run("inspect", model_file, "--tsv", tsv)
    assert again.exit_code == 2 and "exists already" in again.stderr
    assert run("inspect", model_file, "--tsv", tsv, "--overwrite").exit_code == 0


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        ((0, 1), {"l1_ratio": 0.5, "class_weight": ((0, 1.0), (1, 20.0))},
         ["0 is -1, 1 is +1, class weights 0: 1, 1: 20",
          "sum_j (0.5 |w_j| + 0.25 w_j^2) + C sum_i s_i log"]),
        # floats are shown as whole numbers
        ((0.0, 1.0), {"class_weight": "balanced"}, ["0 is -1, 1 is +1, class weights balanced"]),
        ((0, 1), {"standardize": True},
         ["sum_j |w_j|, each w_j times the standard deviation of its feature, + C sum_i"]),
    ],
)  # fmt: skip
def test_inspect_of_other_problems(
    model: Model, tmp_path: Path, run: Run, labels: Any, options: Any, words: list[str]
) -> None:
    replace(model, labels=labels, options=options).save(tmp_path / "m.fcl")
    text = ok(run("inspect", tmp_path / "m.fcl")).stdout
    assert all(each in text for each in words)


def test_inspect_without_features(model: Model, tmp_path: Path, run: Run) -> None:
    empty = replace(model, ids=[], weights=[], support=[], labels=None)  # type: ignore[arg-type]
    empty.save(tmp_path / "e.fcl")
    result = run("inspect", tmp_path / "e.fcl", "--tsv", tmp_path / "f.tsv")
    assert result.exit_code == 0 and "0 of 1,000 priced" in result.stdout
    assert "none (regression)" in result.stdout
    assert (tmp_path / "f.tsv").read_text() == "feature\tweight\tsupport\n"


def test_a_model_with_an_offset(data: Path, model: Model, tmp_path: Path, run: Run) -> None:
    """Its means need the offset of the rows, too."""
    path, scores, o = tmp_path / "o.fcl", tmp_path / "s.npy", np.linspace(-1, 1, 600)
    replace(model, loss="poisson", labels=None, options={"offset": True}).save(path)
    np.save(data / "log_exposure.npy", o)
    result = run("predict", path, data, "--out", scores)
    assert result.exit_code == 2 and "--offset" in result.stderr
    ok(run("predict", path, data, "--offset", "log_exposure", "--mean", "--out", scores))
    expected = np.exp(model.margins(np.load(data / "X.npy")) + o)
    np.testing.assert_allclose(np.load(scores), expected, rtol=1e-14)
    assert "poisson, margins with an offset" in run("inspect", path).stdout


def test_the_hinge_of_online_models(data: Path, tmp_path: Path, run: Run) -> None:
    given = ("--features", "kmers:d=2", "--alpha", 0.01, "--loss", "hinge", "--overwrite")
    path = tmp_path / "m.fcl"
    assert "certificate" in ok(run("online", data, *given, "--out", path)).output
    assert "hinge" in ok(run("inspect", path)).output
    assert "best C" in ok(run("certify", path, data)).output
