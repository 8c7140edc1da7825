"""Compact models: the loss that is kept, the certificate of the rounded model, and what refuses them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import expit, logsumexp
from waves import Problem

import fcl
from fcl.cli.convert import command
from fcl.cli.inspect import command as inspect_command
from fcl.errors import InputError
from fcl.files.compact import Encoding
from fcl.model import Model
from fcl.scoring import compact as module
from fcl.scoring.compact import compact_model
from fcl.scoring.judge import ModelJudge
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.settings import Settings
from fcl.stagewise.targets import held_out
from fcl.stagewise.train import StagewiseRunOptions
from tests import by_name

N, P = 600, 12
RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((N, P)) < 0.4, RANDOM.normal(size=(N, P)), 0.0)
TRUE = np.where(np.arange(P) % 2, RANDOM.normal(size=P), 0.0)
LABELS = np.where(RANDOM.random(N) < expit(2 * X @ TRUE), 1, -1)
NUMBERS = X @ TRUE + 0.3 * RANDOM.normal(size=N)
CODES = (X @ RANDOM.normal(size=(P, 3)) + RANDOM.gumbel(size=(N, 3))).argmax(axis=1)
WEIGHTS = RANDOM.uniform(0.5, 2.0, N)


def trained(y: np.ndarray, **options: Any) -> tuple[fcl.DataSet, Model]:
    data = fcl.open_data(X, y=y, weights=WEIGHTS)
    options = {"C": 1.0, "tol": 1e-9, "driver": "inline", "memory": "1GiB"} | options
    return data, by_name.train(data, "columns", **options).model


@pytest.mark.parametrize("rounding", ["nearest", "random"])
@pytest.mark.parametrize("C", [1e-9, 1.0])
def test_a_model_whose_weights_do_not_matter(tmp_path: Path, C: float, rounding: str) -> None:
    """Empty, or with a loss that may rise without end: the fewest bits that a file can have."""
    data, model = trained(LABELS, C=C)
    assert (model.n_active == 0) is (C < 1.0)
    found = compact_model(model, data, max_loss=1e-3 if C < 1.0 else 1e9, rounding=rounding)
    tries = [encoding.m for encoding in found.tries]
    assert min(tries) >= -32 and max(tries) <= 52 and len(set(tries)) == len(tries)
    found.model.save(tmp_path / "small.fcl")
    again = fcl.load_model(tmp_path / "small.fcl")
    expected = np.full(N, model.intercept) if C < 1.0 else found.model.margins(data)
    np.testing.assert_array_equal(again.margins(data), expected)


def row_losses(loss: str, y: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """From the definitions, without code of fcl."""
    if loss == "softmax":
        return np.asarray(logsumexp(margins, axis=1) - margins[np.arange(N), y])
    if loss == "logistic":
        return np.logaddexp(0.0, -y * margins)
    return (y - margins) ** 2


KINDS: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "logistic": (LABELS, {}),
    "ridge": (LABELS, {"l1_ratio": 0.3, "class_weight": {-1: 1.0, 1: 3.0}}),
    "held out": (LABELS, {"valid_fraction": 0.25, "class_weight": "balanced"}),
    "squared": (NUMBERS, {"loss": "squared"}),
    "softmax": (CODES, {"loss": "softmax"}),
    "group": (CODES, {"loss": "softmax", "group": True}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounding", ["nearest", "random"])
def test_losses_and_the_certificate_are_those_of_the_rounded_model(
    kind: str, rounding: str
) -> None:
    y, options = KINDS[kind]
    data, model = trained(y, **options)
    found = compact_model(model, data, bits=3, rounding=rounding, seed=5).model
    encoding = found.encoding
    assert (found.weights * 8 == np.rint(found.weights * 8)).all() and not len(found.history)
    for shown, mean in ((model, encoding.loss_full), (found, encoding.loss)):
        margins = X[:, shown.ids] @ shown.weights + shown.intercept
        losses = row_losses(model.loss, y, margins)
        assert mean == pytest.approx(np.average(losses, weights=WEIGHTS), rel=1e-10)
    assert encoding.rows == N and encoding.fingerprint == data.fingerprint()
    square = np.square(X[:, model.ids]).sum(axis=1)
    trace = {"logistic": 0.25, "squared": 2.0, "softmax": 1.0}[model.loss]
    expected = trace * np.average(square, weights=WEIGHTS) / 64 / 8
    assert encoding.promise == pytest.approx(expected, rel=1e-10)

    s = WEIGHTS.copy()
    if kind == "ridge":
        s *= np.where(y > 0, 3.0, 1.0)
    if kind == "held out":
        s *= np.random.default_rng([0, 0xFC1]).random(N) >= 0.25
        sums = [s[y < 0].sum(), s[y > 0].sum()]
        s *= np.where(y > 0, sum(sums) / (2 * sums[1]), sum(sums) / (2 * sums[0]))
    rho, size = options.get("l1_ratio", 1.0), np.abs(found.weights)
    if "group" in options:
        size = np.linalg.norm(found.weights, axis=1)
    objective = (rho * size + (1 - rho) * size**2 / 2).sum() + model.C * float(s @ losses)
    certificate = found.certificate
    assert certificate.objective == pytest.approx(objective, rel=1e-10)
    assert certificate.bound == model.certificate.bound < certificate.objective
    assert certificate.gap == pytest.approx(1 - certificate.bound / objective, rel=1e-6)
    assert certificate.max_violation == np.inf


def test_the_certificate_is_unknown_on_other_rows(tmp_path: Path) -> None:
    data, model = trained(LABELS)
    others = fcl.open_data(X[:300], y=LABELS[:300])
    for found in (compact_model(model, others, bits=4).model, compact_model(model, bits=4).model):
        assert found.certificate.objective == found.certificate.gap == np.inf
        found.save(tmp_path / "c.fcl", overwrite=True)
        again = fcl.load_model(tmp_path / "c.fcl")
        assert isinstance(again, Model) and again.certificate == found.certificate
        shown = CliRunner().invoke(inspect_command, [str(tmp_path / "c.fcl")])
        assert "unknown: the model was rounded" in shown.output
    _, scaled = trained(LABELS, standardize=True)
    found = compact_model(scaled, data, bits=4).model
    assert found.certificate.gap == np.inf
    # a certificate that the data do not confirm is not carried over
    forged = replace(model, certificate=replace(model.certificate, objective=1.0, bound=0.5))
    assert compact_model(forged, data, bits=9).model.certificate.gap == np.inf


@pytest.mark.parametrize("kind", ["logistic", "squared", "softmax"])
@pytest.mark.parametrize("share", [1e-1, 1e-3, 1e-5])
def test_the_loss_is_kept_with_the_fewest_bits(kind: str, share: float) -> None:
    y, options = KINDS[kind]
    data, model = trained(y, **options)
    found = compact_model(model, data, max_loss=share)
    best = found.model.encoding
    assert best.loss is not None and best.loss_full is not None
    assert best.loss <= (1 + share) * best.loss_full
    assert len({tried.m for tried in found.tries}) <= module.MOST_TRIES
    assert best.loss == min(tried.loss or 0.0 for tried in found.tries if tried.m == best.m)
    fewer = [tried.loss for tried in found.tries if tried.m < best.m]
    assert all(loss > (1 + share) * best.loss_full for loss in fewer)


def test_a_loss_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = trained(LABELS)
    monkeypatch.setattr(
        ModelJudge, "measure", lambda self, model: (2.0 - (model is self.model), 0.0)
    )
    with pytest.raises(InputError, match="max_loss: expected a relative rise of the loss"):
        compact_model(model, data, max_loss=1e-3)


MODEL = trained(LABELS)


def test_a_loss_without_a_bound() -> None:
    data, model = trained(np.exp(NUMBERS - NUMBERS.max()), loss="poisson")
    found = compact_model(model, data, max_loss=1e-3).model.encoding
    assert found.promise is None and found.margin_bound is not None
    assert found.loss is not None and found.loss <= 1.001 * (found.loss_full or 0.0)


def test_offsets_covariates_and_names() -> None:
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(P)])
    data = fcl.open_data(frame, y=NUMBERS, offset=WEIGHTS, covariates=WEIGHTS[:, None] ** 2)
    model = fcl.train(data, "columns", C=1.0, loss="squared", driver="inline", tol=1e-9).model
    found = compact_model(model, data, bits=0, rounding="nearest").model
    assert 0 < len(found.ids) < len(model.ids)
    assert list(found.feature_names or ()) == [f"c{j}" for j in found.ids]
    full = np.mean((NUMBERS - model.margins(data)) ** 2)
    assert found.encoding.loss_full == pytest.approx(full, rel=1e-9)
    assert found.certificate.gap < 1.0
    moved = X[:, model.ids] @ (np.rint(model.weights) - model.weights)
    np.testing.assert_allclose(found.margins(data) - model.margins(data), moved, atol=1e-9)


# -- stagewise models ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"valid_fraction": 0.2, "class_weight": "balanced"}, {"update": "gls"}]
)
def test_stagewise_models(tmp_path: Path, options: dict[str, Any]) -> None:
    problem = Problem()
    data, running = problem.data(), StagewiseRunOptions(certify=True)
    settings = {"update": "ls", "block": 200, "alpha": 0.1} | options
    model = problem.train("fourier:n=600", running=running, **settings).model
    found = compact_model(model, data, max_loss=1e-3).model
    assert isinstance(found, StagewiseModel) and found.encoding is not None
    for shown, mean in ((model, found.encoding.loss_full), (found, found.encoding.loss)):
        losses = stagewise_losses(model, problem, shown.margins(data))
        assert mean == pytest.approx(np.average(losses, weights=problem.s), rel=1e-9)
    assert (found.encoding.loss or 0.0) <= 1.001 * (found.encoding.loss_full or 0.0)
    K = 2.0 / 2 if settings["update"] == "gls" else 3.0
    used, block = np.arange(200 * model.n_blocks), model.family.block_of(problem.x)
    square = np.square(model.family.columns(used, block, 0, 300))
    mean_square = np.average(square.sum(axis=1), weights=problem.s)
    promise = found.encoding.eps**2 * mean_square * K / 8
    assert found.encoding.promise == pytest.approx(promise, rel=1e-6)

    s = training_weights(problem, options)
    objective = s @ losses + 0.05 * np.square(found.weights.features).sum()
    assert found.certificate is not None and model.certificate is not None
    assert found.certificate.objective == pytest.approx(objective, rel=1e-9)
    assert found.certificate.bound == model.certificate.bound

    for saved, name in ((model, "full.fcl"), (found, "small.fcl")):
        saved.save(tmp_path / name)
    again = fcl.load_model(tmp_path / "small.fcl")
    assert isinstance(again, StagewiseModel) and again.encoding == found.encoding
    assert again.weights.features.tobytes() == found.weights.features.tobytes()
    assert (tmp_path / "small.fcl").stat().st_size < 0.4 * (tmp_path / "full.fcl").stat().st_size


def stagewise_losses(model: StagewiseModel, problem: Problem, margins: np.ndarray) -> np.ndarray:
    if model.settings.loss == "softmax":
        return np.asarray(logsumexp(margins, axis=1) - (problem.one_hot * margins).sum(axis=1))
    return np.square(margins - problem.one_hot).sum(axis=1) / 2


def training_weights(problem: Problem, options: dict[str, Any]) -> np.ndarray:
    s = problem.s.copy()
    if "valid_fraction" in options:
        codes = problem.one_hot.argmax(axis=1)
        s[held_out(codes, 0.2, Settings(**options).checked().seed)] = 0.0
        sums = np.bincount(codes, weights=s)
        s *= (sums.sum() / (3 * sums))[codes]
    return s


def test_a_stagewise_model_of_calibrated_blocks_promises_nothing() -> None:
    problem = Problem()
    model = problem.train(update="cls", rounds=3, block=15).model
    found = compact_model(model, problem.data(), bits=8).model
    assert found.encoding is not None and found.encoding.promise is None
    assert found.encoding.margin_bound is None and found.certificate is None


# -- the command ---------------------------------------------------------------------------------


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_command(tmp_path: Path) -> None:
    data, full, small = tmp_path / "data", tmp_path / "m.fcl", tmp_path / "s.fcl"
    data.mkdir()
    for name, array in (("X", X), ("y", LABELS), ("weights", WEIGHTS)):
        np.save(data / f"{name}.npy", array)
    MODEL[1].save(full)
    result = invoke(full, small, "--max-loss", 1e-3, "--data", data, "--weights", "weights")
    assert result.exit_code == 0, result.output
    for name in ("encoding", "weights", "size", "tried", "mean loss", "promise", "gap"):
        assert f"\n{name} " in result.output
    model: Any = fcl.load_model(small)
    assert isinstance(model.encoding, Encoding) and model.certificate.gap < 0.1
    shown = CliRunner().invoke(inspect_command, [str(small)])
    assert "fcl-model 4" in shown.output and "encoding     compact" in shown.output
    assert invoke(full, small, "--bits", 5).exit_code == 2
    assert invoke(full, small, "--bits", 5, "--overwrite", "--quiet").output == ""
