"""Families other than positional k-mers, and several of them, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import fcl
from tests.cli.conftest import ok

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("features", "shown", "name"),
    [
        ("bag:d=3,strands=both", "bag (length=12, d=3, value=count, strands=both, ", "strand"),
        (
            "kmers:d=2 + bag:d=3 * 0.5",
            "kmers (d=2, length=12, origin=0) * 1 + bag (length=12, ",
            ": ",
        ),
    ],
)
def test_from_training_to_prediction(
    data: Path, tmp_path: Path, run: Run, features: str, shown: str, name: str
) -> None:
    out, folder = tmp_path / "m.fcl", tmp_path / "checkpoints"
    arguments = ("--features", features, "--C", 1, "--memory", "1GiB", "--driver", "inline")
    ok(run("train", data, *arguments, "--out", out, "--checkpoint", folder, "--tol", "1e-4"))
    seen = run("inspect", out)
    assert seen.exit_code == 0 and shown in seen.stdout and name in seen.stdout
    assert run("predict", out, data, "--out", tmp_path / "s.npy", "--margins").exit_code == 0
    margins = fcl.load_model(out).margins(np.load(data / "X.npy"))
    assert np.array_equal(np.load(tmp_path / "s.npy"), margins)
    # the text that a checkpoint keeps makes the same family again
    ok(run("train", "--resume", folder, "--overwrite"))
