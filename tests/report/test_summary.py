"""The first paragraph of the page: how good the model is, how small, and what is proved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fcl
from fcl.cli.report_command import command
from fcl.model.covariates import CovariateTerm
from fcl.report import scores
from fcl.report.cells import CellSums, row_sums
from fcl.report.contract import Context
from fcl.report.measured import measure
from fcl.report.sections import head, rows
from tests import by_name
from tests.report.conftest import Case, table_case

RNG = np.random.default_rng(8)


def lead(case: Case, **changes: object) -> str:
    model = replace(case.model, **changes)  # type: ignore[arg-type]
    return head.section(Context(model, Path("m.fcl"), "", None, measure(model, case.data))).lead


def test_a_good_model() -> None:
    case = table_case()
    text = lead(case)
    assert text.startswith("On 150 rows of the data: AUPRC 0.") and "95 % interval" in text
    assert "The intervals assume that rows are independent." in text
    assert "a random order has 0.5)" in text and "The model uses 4 of 6 possible features." in text
    assert text.endswith("lower the training objective by more than 0.80 %.")
    assert "of its training data" in lead(case, fingerprint=case.data.fingerprint())


def test_a_model_of_noise_says_so_first(kmers: Case) -> None:
    noise = replace(kmers, data=kmers.data.with_target(RNG.permutation(kmers.data.target), None))
    assert lead(noise).startswith("The model is not clearly better than a model without features.")
    empty = lead(kmers, weights=np.zeros(5))
    assert empty.startswith("The model has no features: it predicts the same for every row.")
    terms = (CovariateTerm("age", None, (0.1,)),)
    aged = replace(kmers.model, weights=np.zeros(5), covariates=terms)
    assert "from the covariates alone. On" in head.section(Context(aged, Path("m.fcl"), "")).lead


def test_numbers() -> None:
    case = table_case(labels=None, loss="squared")
    text = lead(case)
    share = 1 - np.mean((case.data.target - case.margins) ** 2) / case.data.target.var()
    assert f"R squared {share:.4f} (95 % interval" in text


def test_without_rows_the_validation_of_the_training_speaks(kmers: Case) -> None:
    text = head.section(Context(kmers.model, Path("m.fcl"), "")).lead
    assert text.startswith("On the validation rows of its training: AUPRC 0.8000.")
    bare = replace(kmers.model, history=[])
    assert "takes rows of data" in head.section(Context(bare, Path("m.fcl"), "")).lead


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    y = RNG.random(n) < 0.2
    return y.astype(float), y + RNG.normal(size=n)


def test_intervals_cover_the_scores_of_other_samples() -> None:
    """Standard errors of the bootstrap against the spread of scores over samples."""
    found, errors = [], []
    for _ in range(60):
        y, margins = sample(400)
        cells = CellSums()
        cells.add(np.zeros(400, np.int64), margins, row_sums(np.ones(400), y, margins))
        estimates = scores.ranking(cells.cells())
        found.append([estimate.value for estimate in estimates])
        errors.append([estimate.error for estimate in estimates])
    ratio = np.mean(errors, axis=0) / np.std(found, axis=0)
    assert (ratio > 0.75).all() and (ratio < 1.35).all()


def test_the_interval_of_the_explained_share() -> None:
    found, errors = [], []
    for _ in range(60):
        x, noise = RNG.normal(size=(2, 300))
        cells = CellSums()
        cells.add(np.zeros(300, np.int64), noise, row_sums(np.ones(300), x + noise, x))
        estimate = scores.explained_share(cells.cells())
        assert estimate.value == pytest.approx(1 - np.mean(noise**2) / np.var(x + noise))
        found.append(estimate.value)
        errors.append(estimate.error)
    assert 0.75 < np.mean(errors) / np.std(found) < 1.35


def test_intervals_in_words() -> None:
    assert scores.Estimate(0.9341, 0.008).share_interval == "0.917 to 0.948"
    assert scores.Estimate(1.0, 0.0).share_interval == "" == scores.Estimate(0.5, np.nan).interval
    assert scores.Estimate(-0.02, 0.01).interval == "-0.040 to 0.000"


@pytest.mark.slow
def test_title_note_and_names_of_rows(tmp_path: Path) -> None:
    folder = tmp_path / "windows"
    (folder / "obs").mkdir(parents=True)
    codes = RNG.integers(0, 4, (80, 9), dtype=np.uint8)
    y = np.where(codes[:, 4] == 2, "site", "other")
    names = np.array([f"chr{i}:<{i}>" for i in range(80)])
    for name, values in (("X", codes), ("y", y), ("obs/name", names)):
        np.save(folder / f"{name}.npy", values)
    data = fcl.open_data(folder)
    model = by_name.train(data, "kmers:d=2", C=1.0, warn=False).model
    model.save(tmp_path / "m.fcl")
    context = Context(model, tmp_path / "m.fcl", "", None, measure(model, data))
    section = rows.section(context)
    assert section is not None
    figure = section.blocks[0]
    row = int(figure.caption.split("row ")[1].split(" ")[0].strip(","))
    assert f"row {row} ({names[row]}), target" in figure.caption
    page = tmp_path / "r.html"
    arguments = ["--out", page, "--data", folder, "--title", "Sites <b>", "--note", "For A & B"]
    done = CliRunner().invoke(command, [str(a) for a in (tmp_path / "m.fcl", *arguments)])
    assert done.exit_code == 0, done.output
    html = page.read_text()
    assert "<h1>Sites &lt;b&gt;</h1>" in html and '<p class="note">For A &amp; B</p>' in html
    assert f"chr{row}:&lt;{row}&gt;" in html
