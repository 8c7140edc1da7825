"""``fcl online --loss hinge``: stored rows, a stream, and the commands that read its model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import fcl

N, P = 300, 8
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(N, P))
Y = np.where(X[:, 0] - X[:, 1] + RANDOM.logistic(size=N) > 0.0, 1, -1)


def test_command(run: Callable[..., Result], tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", Y)
    given = ("--features", "columns", "--alpha", 0.01, "--loss", "hinge", "--overwrite")
    result = run("online", tmp_path, *given, "--out", tmp_path / "m.fcl")
    assert result.exit_code == 0 and "certificate" in result.output, result.output
    result = run("inspect", tmp_path / "m.fcl")
    assert result.exit_code == 0 and "hinge" in result.output, result.output
    result = run("certify", tmp_path / "m.fcl", tmp_path)
    assert result.exit_code == 0 and "best C" in result.output, result.output


@pytest.mark.slow
def test_stream(tmp_path: Path) -> None:
    lines = [
        f"{y} " + " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row.tolist()))
        for row, y in zip(X, Y.tolist(), strict=True)
    ]
    command = ("-m", "fcl", "online", "-", "--columns", str(P), "--features", "columns")
    given = (
        "--alpha",
        "0.01",
        "--loss",
        "hinge",
        "--rate",
        "0.5",
        "--out",
        str(tmp_path / "m.fcl"),
    )
    subprocess.run(
        [sys.executable, *command, *given], input="\n".join(lines), text=True, check=True,
        capture_output=True,
    )  # fmt: skip
    rows = fcl.train_online(
        fcl.open_data(X, y=Y), "columns", alpha=0.01, loss="hinge", rate=0.5, shuffle=False
    )
    assert fcl.load_model(tmp_path / "m.fcl").weights.tolist() == rows.model.weights.tolist()
