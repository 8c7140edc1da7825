"""Penalty factors of single features: features left out, and the model file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import fcl
from fcl.features import Columns

M = 40


def test_they_are_kept_with_the_model(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    X = random.normal(size=(900, M))
    y = np.where(X[:, :8] @ random.normal(size=8) + random.logistic(size=900) > 0.0, 1.0, -1.0)
    f = np.exp(random.normal(size=M))
    f[3] = np.inf
    result = fcl.train(fcl.open_data(X, y=y), Columns(factors=f), C=0.05, tol=1e-3)
    assert len(result.model.ids) and 3 not in result.model.ids
    json.loads(json.dumps(result.model.family.to_config(), allow_nan=False))
    result.model.save(tmp_path / "model.fcl")
    loaded = fcl.load_model(tmp_path / "model.fcl")
    assert (loaded.family.penalty_factors(np.arange(M)) == f).all()
    assert (loaded.margins(X) == result.model.margins(X)).all()
