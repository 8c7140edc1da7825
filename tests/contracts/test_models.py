"""Each model predicts what it was trained to: in all ways, from its file, rounded, and in its report."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from jobs import JOBS, Job, every_job
from judge import Problem
from scipy.sparse import csr_array, issparse
from scipy.special import logsumexp
from sklearn.metrics import mean_absolute_error, roc_auc_score

import fcl
from fcl.cli.inspect import command as inspect_command
from fcl.report.make import make_report
from fcl.scoring.compact import compact_model


@dataclass(frozen=True)
class Trained:
    """A job, and the model that it finds within few passes."""

    job: Job
    model: fcl.Model

    @cached_property
    def beside(self) -> dict[str, Any]:
        """Offsets and covariates of the rows."""
        given = self.job.arguments()
        return {key: given[key] for key in ("offset", "covariates") if given.get(key) is not None}

    @cached_property
    def data(self) -> fcl.DataSet:
        X, y = self.job.rows()
        return fcl.open_data(X, y=y, **self.beside)

    @cached_property
    def margins(self) -> np.ndarray:
        """Margins of the training rows, float64 (n, K)."""
        found: np.ndarray = self.model.margins(self.data)
        return found.reshape(len(found), -1)

    def check(self, margins: np.ndarray, rows: slice = slice(None)) -> None:
        """The same bits, of one output; products of matrices round by their shape."""
        rtol = 0.0 if self.model.n_outputs == 1 else 1e-13
        expected = self.margins[rows]
        np.testing.assert_allclose(margins.reshape(expected.shape), expected, rtol, 20 * rtol)


@cache
def trained(name: str) -> Trained:
    return Trained(JOBS[name], JOBS[name].train(tol=1e-2).model)


def signs(model: fcl.Model, y: np.ndarray) -> np.ndarray:
    """The target as the loss sees it."""
    if model.labels is None or y.ndim == 2:
        return y
    return np.where(y == model.labels[1], 1.0, -1.0)


def losses(model: fcl.Model, y: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """The loss of each row and output, (n, K), or of each row, (n, 1), from its definition."""
    if model.loss == "softmax":
        own = np.take_along_axis(margins, np.searchsorted(model.labels, y)[:, None], axis=1)
        return logsumexp(margins, axis=1, keepdims=True) - own
    y = signs(model, y).reshape(len(y), -1)
    if model.loss == "logistic" and y.shape[1] > 1:
        y = 2.0 * y - 1.0
    name = "huber:delta=1" if model.loss == "huber" else model.loss
    ones = np.ones(len(y))
    problem = Problem(np.empty((len(y), 0)), y.ravel(), ones, name, 1.0)
    return problem.losses(margins.ravel()).reshape(margins.shape)


def scales(one: Trained) -> np.ndarray:
    """What the penalty multiplies each weight with."""
    if not one.job.options.get("standardize"):
        return np.ones(len(one.model.ids))
    return one.job.rows()[0].std(axis=0)[one.model.ids]


@pytest.mark.thin(2)
@every_job
def test_the_margins_of_the_training_rows_have_the_certified_objective(name: str) -> None:
    one = trained(name)
    model, y = one.model, one.job.rows()[1]
    weights = model.weights.reshape(len(model.ids), -1) * scales(one)[:, None]
    size = np.linalg.norm(weights, axis=1) if model.group else np.abs(weights).sum(axis=1)
    rho = one.job.options.get("l1_ratio", 1.0)
    s = np.ones(len(y))
    if "class_weight" in one.job.options:
        labels, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        s = (len(y) / (len(labels) * counts))[codes]
    penalty = (rho * size + 0.5 * (1.0 - rho) * (weights**2).sum(axis=1)).sum()
    objective = penalty + model.C * float(s @ losses(model, y, one.margins).sum(axis=1))
    assert model.certificate.objective == pytest.approx(objective, rel=1e-9)


@pytest.mark.thin(2)
@every_job
def test_all_ways_to_score_agree(name: str) -> None:
    """In blocks of any size, row by row, of other storage, and from the columns of the features."""
    one = trained(name)
    model, n = one.model, len(one.margins)
    for block_rows in (1, 64, 1000):
        parts = [part for *_, part in model.iter_margins(one.data, block_rows)]
        one.check(np.concatenate(parts))
    X, _ = one.job.rows()
    some = slice(n - 37, n)
    beside = {key: values[some] for key, values in one.beside.items()}
    one.check(model.margins(X[some], **beside), some)
    if issparse(X) or one.job.features == "columns":
        other = X.toarray() if issparse(X) else csr_array(X)
        found = model.margins(other, **one.beside).reshape(n, -1)
        np.testing.assert_allclose(found, one.margins, rtol=1e-10, atol=1e-10)
    plain = model.columns(one.data) @ model.weights.reshape(len(model.ids), -1) + model.intercepts
    added = 0.0
    if "offset" in one.beside:
        added = one.beside["offset"][:, None]
    for term in model.covariates:
        own = np.reshape(term.coefficients, (term.width, -1))
        added = added + one.beside["covariates"] @ own
    np.testing.assert_allclose(plain + added, one.margins, rtol=1e-9, atol=1e-9)


@every_job
def test_explanations_add_up(name: str) -> None:
    """All features of a row, or its two largest and the sum of the others, for each output."""
    one = trained(name)
    model = one.model
    names = list(model.labels) if model.n_outputs > 1 and model.labels else range(model.n_outputs)
    values = model.columns(one.data).toarray()
    for k, output in enumerate(names if model.n_outputs > 1 else [None]):
        weights = model.weights.reshape(len(model.ids), -1)[:, k]
        for top in (None, 2):
            found = model.explain(one.data, top=top, output=output)
            np.testing.assert_allclose(found.margins, one.margins[:, k], rtol=1e-9, atol=1e-9)
            total = found.contributions.sum(axis=1) + found.others + found.intercept
            for more in (found.offset, found.covariates):
                total = total + (0.0 if more is None else more)
            np.testing.assert_allclose(total, found.margins, rtol=1e-9, atol=1e-9)
        most = found.contributions.shape[1]
        parts = -np.sort(-np.abs(values * weights), axis=1)[:, :most]
        assert most == min(2, np.count_nonzero(weights))
        np.testing.assert_allclose(np.abs(found.contributions), parts, rtol=1e-6, atol=1e-9)


def bits(model: fcl.Model) -> tuple[bytes, ...]:
    arrays = (model.ids, model.weights, model.support, np.asarray(model.intercept, float))
    return tuple(np.ascontiguousarray(array).tobytes() for array in arrays)


@every_job
def test_a_file_keeps_every_bit(name: str, tmp_path: Path) -> None:
    one = trained(name)
    one.model.save(tmp_path / "a.fcl")
    again = fcl.load_model(tmp_path / "a.fcl")
    assert bits(again) == bits(one.model) and again.header() == one.model.header()
    assert again.describe() == one.model.describe() and again.labels == one.model.labels
    assert again.certificate == one.model.certificate and again.history == one.model.history
    found = again.margins(one.data).reshape(one.margins.shape)
    np.testing.assert_array_equal(found, one.margins)
    again.save(tmp_path / "b.fcl")
    assert (tmp_path / "b.fcl").read_bytes() == (tmp_path / "a.fcl").read_bytes()


@every_job
def test_a_rounded_model_is_near_and_keeps_its_file(name: str, tmp_path: Path) -> None:
    one = trained(name)
    small = compact_model(one.model, bits=7).model
    assert (small.weights * 128 == np.rint(small.weights * 128)).all()
    size = np.abs(one.model.columns(one.data)).sum(axis=1)[:, None]
    moved = np.abs(small.margins(one.data).reshape(one.margins.shape) - one.margins)
    assert (moved <= size / 128 + 1e-9).all()
    small.save(tmp_path / "c.fcl")
    again = fcl.load_model(tmp_path / "c.fcl")
    assert bits(again) == bits(small) and again.encoding == small.encoding


@every_job
def test_inspection_shows_the_weights(name: str, tmp_path: Path) -> None:
    model = trained(name).model
    model.save(tmp_path / "m.fcl")
    table = tmp_path / "w.tsv"
    done = CliRunner().invoke(
        inspect_command, [str(tmp_path / "m.fcl"), "--tsv", str(table), "--top", "3"]
    )
    assert done.exit_code == 0, done.output
    assert f"{model.certificate.objective:.10g}"[:6] in done.output
    rows = list(csv.DictReader(io.StringIO(table.read_text()), delimiter="\t"))
    shown = [(row["feature"], float(row["weight"])) for row in rows]
    assert shown == [(row.feature, row.weight) for row in model.describe()]
    assert len(rows) == np.count_nonzero(model.weights)
    assert model.describe(3) == model.describe()[:3]


#: Jobs whose reports together have every section.
REPORTED = (
    "kmers-logistic", "kmers-poisson", "columns-hinge", "columns-targets", "kmers-labels-group",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTED)
def test_a_report_has_the_numbers_of_the_model(name: str, tmp_path: Path) -> None:
    one = trained(name)
    model, y = one.model, one.job.rows()[1]
    model.save(tmp_path / "m.fcl")
    report = make_report(tmp_path / "m.fcl", one.data)
    assert "The model was trained on these rows" in report.html
    facts = json.loads(report.data["report.json"])
    objective = float(facts["convergence"]["objective"])
    assert objective == pytest.approx(model.certificate.objective, rel=1e-5)
    table = list(csv.DictReader(io.StringIO(report.data["features.csv"])))
    assert float(table[0]["weight"]) == pytest.approx(model.describe(1)[0].weight)
    if model.n_outputs > 1:
        outputs = list(csv.DictReader(io.StringIO(report.data["outputs.csv"])))
        assert len(outputs) == model.n_outputs
    elif model.labels is None:
        found = float(facts["scores"]["mean absolute error"])
        error = mean_absolute_error(y, model.mean(one.margins[:, 0]))
        assert found == pytest.approx(error, rel=1e-4)
    else:
        area = roc_auc_score(signs(model, y) > 0, one.margins[:, 0])
        assert float(facts["scores"]["AUROC"].partition(" ")[0]) == pytest.approx(area, abs=1e-4)


def test_explanations_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trained("kmers-unknown")
    whole = one.model.explain(one.data, top=2)
    monkeypatch.setattr("fcl.model.explain.BLOCK_BYTES", 64 * 8 * len(one.model.ids))
    parts = one.model.explain(one.data, top=2)
    np.testing.assert_array_equal(parts.contributions, whole.contributions)
    np.testing.assert_array_equal(parts.indices, whole.indices)
