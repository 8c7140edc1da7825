"""fcl report, fcl train --report, fcl predict --explain and fcl inspect --meme."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fcl.features import KmerFamily
from fcl.model import Model
from tests.cli.conftest import Job, ok

Run = Callable[..., Result]


@pytest.mark.slow
def test_a_report(data: Path, model_file: Path, tmp_path: Path, run: Run) -> None:
    np.save(data / "g.npy", np.arange(600) % 2)
    out, plots, numbers = tmp_path / "r.html", tmp_path / "plots", tmp_path / "numbers"
    arguments = [
        "report_command", model_file, "--data", data, "--weights", "s", "--groups", "g",
        "--out", out, "--save-plots", plots, "--save-data", numbers,
    ]  # fmt: skip
    result = ok(run(*arguments))
    assert result.stdout == "" and f"{out}: " in result.stderr and " KiB" in result.stderr
    html = out.read_text()
    assert html.startswith("<!doctype html>") and "600 rows of data" in html
    names = {path.name for path in plots.iterdir()}
    assert {"effects.svg", "groups.svg", "gap.svg"} <= names
    assert {"report.json", "features.csv", "groups.csv"} <= {p.name for p in numbers.iterdir()}
    again = run(*arguments)
    assert again.exit_code == 2 and "exists already" in again.stderr
    quiet = run(*arguments, "--overwrite", "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "") and out.read_text() == html


def test_the_report_of_a_training(
    job: Job, data: Path, tmp_path: Path, driver: Any, run: Run
) -> None:
    out, report = tmp_path / "o.fcl", tmp_path / "r.html"
    result = run(*job, "--report", report)
    assert result.exit_code == 0 and f"report in {report}" in result.stderr
    assert "600 rows of data" in report.read_text()
    out.unlink()
    report.unlink()
    driver.before_end = lambda arguments: os.kill(os.getpid(), signal.SIGTERM)
    stopped = run(*job, "--report", report)
    assert stopped.exit_code == 143 and out.exists() and not report.exists()
    assert "no report; make it with: fcl report" in stopped.stderr
    out.unlink()
    driver.before_end = lambda arguments: os.remove(data / "y.npy")
    failed = run(*job, "--report", report)
    assert failed.exit_code == 0 and out.exists() and not report.exists()
    assert "the report could not be written: " in failed.stderr
    assert f"no report; make it with: fcl report {out} --data DATA --out {report}" in failed.stderr


def test_a_signal_ends_the_report_of_a_training(
    job: Job, tmp_path: Path, driver: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fcl.report import make

    monkeypatch.setattr(
        make, "make_report", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT) or 1 / 0
    )
    out, report = tmp_path / "o.fcl", tmp_path / "r.html"
    stopped = run(*job, "--report", report)
    assert stopped.exit_code == 130 and out.exists() and not report.exists()
    assert "could not be written" not in stopped.stderr


def test_explained_scores(
    data: Path, model: Model, model_file: Path, tmp_path: Path, run: Run
) -> None:
    out = tmp_path / "e.tsv"
    arguments = ["predict", model_file, data, "--out", out, "--explain", 2, "--overwrite"]
    np.save(data / "o.npy", np.linspace(0, 1, 600))
    assert run(*arguments, "--offset", "o", "--probability").exit_code == 0
    head, *lines = (line.split("\t") for line in out.read_text().splitlines())
    assert head == [
        "probability", "margin", "intercept", "offset", "feature_1", "contribution_1",
        "feature_2", "contribution_2", "others",
    ]  # fmt: skip
    margins = model.margins(np.load(data / "X.npy")) + np.linspace(0, 1, 600)
    weights = {row.feature: row.weight for row in model.describe()} | {"": 0.0}
    for line, margin in zip(lines, margins, strict=True):
        probability, whole, *parts = (float(line[i]) for i in (0, 1, 2, 3, 5, 7, 8))
        assert whole == pytest.approx(margin) == pytest.approx(sum(parts))
        assert probability == pytest.approx(1 / (1 + np.exp(-margin)))
        assert [weights[line[4]], weights[line[6]]] == [float(line[5]), float(line[7])]
    assert run(*arguments).exit_code == 0
    assert out.read_text().startswith("margin\tintercept\tfeature_1\t")


def test_motifs_in_meme_format(model: Model, tmp_path: Path, run: Run) -> None:
    family = KmerFamily(3, 12, 4)
    places = [("A.C", 3), ("GAA", 2), ("T", 8), ("T", 9)]
    ids = sorted(family.feature_id(*place) for place in places)
    path, out = tmp_path / "p.fcl", tmp_path / "p.meme"
    replace(
        model, family=family, ids=ids, weights=[0.1, -2.5, 0.3, 1.0], support=[40, 2, 7, 0]
    ).save(path)  # fmt: skip
    assert run("inspect", path, "--meme", out, "--top", 3).exit_code == 0
    text = out.read_text()
    assert text.startswith("MEME version 4\n\nALPHABET= ACGT\n\nstrands: +\n")
    motifs = {}
    for block in text.split("\nMOTIF ")[1:]:
        first, matrix, *rows = block.strip().splitlines()
        assert f"w= {len(rows)} " in matrix
        motifs[first] = np.array([row.split() for row in rows], float)
    weights = dict(zip(ids, (0.1, -2.5, 0.3, 1.0), strict=True))
    by_pattern = {p: (k - 4, weights[family.feature_id(p, k)]) for p, k in places}
    strongest = sorted(by_pattern, key=lambda p: -abs(by_pattern[p][1]))
    assert list(motifs) == [
        f"{p} at_{by_pattern[p][0]:+d}_weight_{by_pattern[p][1]:+.4g}" for p in strongest
    ]
    for name, matrix in motifs.items():
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
        for letter, row in zip(name.split()[0], matrix, strict=True):
            expected = np.full(4, 0.25) if letter == "." else np.eye(4)["ACGT".index(letter)]
            assert np.array_equal(row, expected)
