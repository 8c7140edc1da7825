"""Early stopping: the run ends when the held-out loss no longer falls, with the model of its lowest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.drivers.pass_time import measure_pass
from fcl.run import PassDone, StopReason
from tests import by_name

#: Three hundred columns of noise beside three of signal, which a large C fits.
_RANDOM = np.random.default_rng(4)
X = _RANDOM.standard_normal((400, 300))
SIGNAL = X[:, :3].sum(axis=1)
NOISE = 0.8 * _RANDOM.standard_normal(400)
TARGETS: dict[str, np.ndarray] = {
    "logistic": np.where(SIGNAL + NOISE > 0, 1, -1),
    "squared": SIGNAL + NOISE,
    "softmax": np.digitize(SIGNAL + NOISE, [-1.0, 1.0]),
}
SPLIT = 250
#: loss -> a C that fits the noise, patience, and the pass of the lowest held-out loss
CASES = {"logistic": (0.3, 2, 1), "squared": (0.1, 1, 1), "softmax": (1.0, 1, 0)}


def rows(loss: str, part: slice) -> fcl.DataSet:
    return fcl.open_data(X[part], y=TARGETS[loss][part])


def train(loss: str = "logistic", **more: Any) -> Any:
    given: dict[str, Any] = {
        "C": CASES[loss][0],
        "tol": 1e-9,
        "loss": loss,
        "memory": "1GiB",
        "warn": False,
    }
    valid = rows(loss, slice(SPLIT, None))
    return by_name.train(rows(loss, slice(SPLIT)), "columns", valid=valid, **given | more)


def held_out_loss(model: Any, loss: str) -> float:
    """The mean loss, from its formula."""
    y, m = TARGETS[loss][SPLIT:], model.margins(X[SPLIT:])
    if loss == "logistic":
        return float(np.logaddexp(0.0, -y * m).mean())
    if loss == "squared":
        return float(((y - m) ** 2).mean())
    shifted = m - m.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    return float((log_sum - shifted[np.arange(len(y)), y]).mean())


@pytest.mark.parametrize("loss", TARGETS)
def test_the_model_is_that_of_the_lowest_held_out_loss(loss: str) -> None:
    _, patience, expected = CASES[loss]
    result = train(loss, patience=patience)
    losses = [each["validation"]["loss"] for each in result.history]
    best = int(np.argmin(losses))
    assert result.reason is StopReason.PATIENCE and not result.converged
    assert result.best_pass == best == expected == len(losses) - 1 - patience
    assert f"the model is that of pass {best}" in result.message
    assert held_out_loss(result.model, loss) == pytest.approx(losses[best], rel=1e-9)
    facts = result.facts({"auprc": 0.0, "n_rows": 1})
    shown = {fact.name: fact.text for fact in facts}
    assert shown["validation"].endswith(f"over {len(X) - SPLIT:,} rows")
    # the model of a run that ends at this pass, bit for bit, and a certificate that holds
    if best:
        alike = train(loss, max_passes=best)
        np.testing.assert_array_equal(result.model.weights, alike.model.weights)
        objective = alike.certificate.objective
        assert result.certificate.objective == pytest.approx(objective, rel=1e-12)
    else:
        assert not result.model.n_active
    assert result.certificate.bound <= train(loss).certificate.objective


def test_a_run_that_converges_first_is_not_stopped() -> None:
    result = train(C=0.02, tol=1e-3, patience=50)
    assert result.converged and result.best_pass is None
    assert "loss" in result.history[-1]["validation"]
    assert "loss" not in train(C=0.02, tol=1e-3).history[-1]["validation"]


@pytest.mark.parametrize("end", ["max_passes", "callback"])
def test_other_ends_return_to_the_best_pass_too(end: str) -> None:
    whole = train(patience=2)
    last = whole.best_pass + 1

    def progress(event: Any) -> bool:
        return not (isinstance(event, PassDone) and event.number == last)

    more = {"max_passes": last} if end == "max_passes" else {"progress": progress}
    result = train(patience=9, **more)
    assert result.reason == end.replace("_", "-") and result.best_pass == whole.best_pass
    np.testing.assert_array_equal(result.model.weights, whole.model.weights)


@pytest.mark.parametrize("at", ["best", "after"])
def test_a_resumed_run_ends_at_the_same_pass(tmp_path: Path, at: str) -> None:
    whole = train(patience=3)
    last = whole.best_pass + (at == "after")
    train(patience=3, max_passes=last, checkpoint=tmp_path / "state")
    result = train(patience=3, resume=tmp_path / "state")
    assert result.reason is StopReason.PATIENCE and result.best_pass == whole.best_pass
    assert result.passes == whole.passes
    np.testing.assert_array_equal(result.model.weights, whole.model.weights)
    other = train(patience=1, resume=tmp_path / "state")  # the option may change
    assert other.best_pass == whole.best_pass and other.passes <= whole.passes


def test_processes_stop_early(tmp_path: Path) -> None:
    given: dict[str, Any] = {"driver": "processes", "writers": 1, "checkpoint": tmp_path / "state"}
    result = train(patience=1, **given)
    assert result.reason in (StopReason.PATIENCE, StopReason.TOLERANCE)
    if result.reason is StopReason.PATIENCE:
        scored = {
            each["number"]: each["validation"]["loss"]
            for each in result.history
            if each["validation"]
        }
        assert result.best_pass == min(scored, key=scored.__getitem__)
        best = scored[result.best_pass]
        assert held_out_loss(result.model, "logistic") == pytest.approx(best, rel=1e-9)
    again = train(patience=9, max_passes=result.passes, resume=tmp_path / "state", driver="inline")
    assert again.passes >= result.passes


def test_patience_needs_held_out_rows() -> None:
    data = rows("logistic", slice(None))
    with pytest.raises(fcl.InputError, match="patience: expected held-out rows beside 3, got none"):
        fcl.train(data, "columns", C=1.0, patience=3)
    with pytest.raises(TypeError, match="patience"):
        fcl.train_online(data, "columns", C=1.0, patience=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("logistic", {}),
        ("squared", {"standardize": True, "valid_fraction": 0.2, "threads": 2}),
        ("softmax", {"block_rows": 64, "driver": "processes"}),
    ],
)
def test_the_time_of_a_pass_is_measured(loss: str, options: dict[str, Any]) -> None:
    found = measure_pass(rows(loss, slice(None)), "columns", C=1.0, loss=loss, **options)
    assert found is not None and found.seconds > 0.0 and found.reading >= 0.0
    n = 329 if "valid_fraction" in options else 400  # each row is set aside with this probability
    assert found.n_rows == n and found.n_measured == min(n, 3 * options.get("block_rows", 65_536))
    assert found.text.startswith("about ") and f"of {n} rows" in found.text
