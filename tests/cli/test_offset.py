"""``--offset`` and ``--mean`` of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fcl
from tests.cli.conftest import ok


def test_poisson_with_offset(tmp_path: Path, run: Any) -> None:
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    X, o = random.normal(size=(200, 8)), random.normal(size=200)
    y = random.poisson(np.exp(X[:, 0] + o))
    for name, array in {"X": X, "y": y, "log_exposure": o}.items():
        np.save(folder / f"{name}.npy", array)
    out = tmp_path / "m.fcl"
    arguments = ("--features", "columns", "--C", 0.1, "--loss", "poisson", "--driver", "inline")
    result = run(
        "train", folder, *arguments, "--offset", "log_exposure", "--valid", folder, "--out", out
    )
    assert result.exit_code == 0 and "DEVIANCE" in result.stdout, result.stderr
    model = fcl.load_model(out)
    assert model.has_offset
    scores = tmp_path / "s.npy"
    result = run("predict", out, folder, "--out", scores)
    assert result.exit_code == 2 and "--offset" in result.stderr
    result = ok(run("predict", out, folder, "--offset", "log_exposure", "--mean", "--out", scores))
    np.testing.assert_allclose(np.load(scores), model.predict(X, offset=o), rtol=1e-14)
    result = run("inspect", out)
    assert "poisson, margins with an offset" in result.stdout
