"""The certificate at the end of online learning: that of ``fcl.certify``, or the reason why none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fcl
from fcl.cli.online import command
from fcl.drivers.online import train
from fcl.model.certificate import Scope

N, P, C = 800, 15, 0.05
RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(N, P))
Y = np.where(X[:, :3].sum(axis=1) + RANDOM.logistic(size=N) > 0.0, 1, 0)
S = RANDOM.choice([0.0, 1.0, 3.0], N)


def learn(**options: Any) -> fcl.OnlineResult:
    data = fcl.open_data(X, y=Y, weights=S)
    return fcl.train_online(data, "columns", **{"C": C, "rate": 0.3, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"valid_fraction": 0.2, "seed": 3},
        {"class_weight": "balanced", "method": "truncated-gradient"},
        {"l1_ratio": 0.5},
        {"method": "ball", "radius": 1.0, "intercept": False},
        {"shuffle": False, "block_rows": 128, "passes": 2},
    ],
)
def test_it_is_that_of_certify(options: dict[str, Any]) -> None:
    result = learn(**options)
    own = result.model.certificate
    assert result.uncertified is None and own.scope is Scope.FAMILY
    proof = fcl.certify(learn(**options, certify=False).model, fcl.open_data(X, y=Y, weights=S))
    assert (own.objective, own.bound) == (proof.objective, proof.bound)
    assert own.gap == proof.gap and result.model.C == proof.C
    assert result.model.intercept == pytest.approx(proof.intercept, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("rho", [1.0, 0.5])
def test_objective_by_recomputation(rho: float, tmp_path: Path) -> None:
    learn(l1_ratio=rho).save(tmp_path / "m.fcl")
    model = fcl.load_model(tmp_path / "m.fcl")  # the file has the certificate
    w = np.zeros(P)
    w[model.ids] = model.weights
    margins = X @ w + model.intercept
    losses = S @ np.logaddexp(0.0, -(2.0 * Y - 1.0) * margins)
    objective = np.sum(rho * np.abs(w) + (1.0 - rho) * w**2 / 2.0) + C * losses
    assert model.certificate.objective == pytest.approx(objective, rel=1e-12)
    data = fcl.open_data(X, y=Y, weights=S)
    optimum = fcl.train(data, "columns", C=C, l1_ratio=rho, tol=1e-8).certificate.objective
    assert model.certificate.bound <= optimum <= objective * (1.0 + 1e-12)


def test_the_reason_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert learn(certify=False).uncertified == "the certificate was declined"
    assert "before its passes" in str(learn(should_stop=lambda: True).uncertified)

    def unreadable(*args: Any, **options: Any) -> Any:
        raise fcl.InputError("rows.h5: the file is gone")

    monkeypatch.setattr(train, "certify_model", unreadable)
    result = learn()
    assert result.uncertified == "rows.h5: the file is gone"
    assert result.model.certificate.scope is Scope.UNKNOWN and result.model.n_active


def test_command_prints_it(tmp_path: Path) -> None:
    for name, array in {"X": X, "y": Y}.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [str(tmp_path), "--features", "columns", "--C", str(C), "--rate", "0.3", "--out"]
    done = CliRunner().invoke(command, [*given, str(tmp_path / "m.fcl")])
    assert done.exit_code == 0, done.output
    own = fcl.load_model(tmp_path / "m.fcl").certificate
    for name, value in (("objective", own.objective), ("bound", own.bound)):
        assert f"{name:<12} {value:.10g}\n" in done.output
    assert f"{own.gap:.3g} relative, over all features of the family" in done.output
    done = CliRunner().invoke(command, [*given, str(tmp_path / "n.fcl"), "--no-certify"])
    assert "not certified: the certificate was declined" in done.output
