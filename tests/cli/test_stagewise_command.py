"""``fcl stagewise``: from data on disk to a model, resumed with the same bits, one message for errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from waves import Problem

from fcl.stagewise.model import load_stagewise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    problem = Problem()
    data = tmp_path / "data"
    data.mkdir()
    for name, values in {"X": problem.x, "y": problem.y, "s": problem.s}.items():
        np.save(data / f"{name}.npy", values)
    np.save(data / "t.npy", problem.numbers[:, 0])
    return tmp_path


OPTIONS = ("--features", "waves:Waves", "--block", 8, "--weights", "s")


def test_a_resumed_command_gives_the_same_model(
    run: Callable[..., Result], folder: Path, monkeypatch: Any
) -> None:
    data, out = folder / "data", folder / "m.fcl"
    result = run("stagewise", data, *OPTIONS, "--certify", "--out", out)
    assert result.exit_code == 0, result.output
    assert "to the joint optimum over 30 features; a further visit takes" in result.output
    assert result.output.count("validation loss") > 8 and " left" in result.output
    whole = load_stagewise(out)
    assert whole.certificate is not None
    part = folder / "part.fcl"
    stopped = run("stagewise", data, *OPTIONS, "--max-time", "0.000001s", "--out", part)
    assert stopped.exit_code == 0 and "max-time after 1 blocks" in stopped.output
    refused = run("stagewise", "--resume", f"{part}.checkpoint", "--alpha", 2)
    assert refused.exit_code == 2 and "--alpha: a resumed job keeps" in refused.output
    args = ("--resume", f"{part}.checkpoint", "--import", "waves", "--overwrite")
    resumed = run("stagewise", *args)
    assert resumed.exit_code == 0, resumed.output
    assert np.array_equal(load_stagewise(part).weights.features, whole.weights.features)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--features", "columns"), "--out is missing"),
        (("--out", "OUT"), "--features is missing"),
        (("--features", "fourier", "--out", "OUT"), "expected a family with a number of features"),
        (("--features", "kmers:d=3", "--out", "OUT"), "expected|kmers"),
        ((*OPTIONS, "--out", "OUT", "--alpha", "-1"), "--alpha"),
        ((*OPTIONS, "--out", "OUT", "--penalty", "l1"), "--penalty"),
        ((*OPTIONS, "--out", "OUT", "--memory", "1MiB"), "expected at least"),
        ((*OPTIONS, "--out", "OUT", "--y", "t", "--valid-fraction", "0.1"), "rows of each class"),
        ((*OPTIONS, "--out", "OUT", "--valid", "none.zarr"), "none.zarr does not exist"),
        ((*OPTIONS, "--out", "OUT", "--update", "cls", "--certify"), "certify: "),
        (("--resume", "nowhere"), "holds no checkpoint"),
    ],
)
def test_one_message_and_no_file(
    run: Callable[..., Result], folder: Path, more: tuple[Any, ...], message: str
) -> None:
    before = sorted(folder.iterdir())
    arguments = [folder / "m.fcl" if a == "OUT" else a for a in more]
    result = run("stagewise", folder / "data", *arguments)
    assert result.exit_code == 2, result.output
    line = [row for row in result.output.splitlines() if "error" in row]
    assert len(line) == 1 and any(word in line[0] for word in message.split("|"))
    assert sorted(folder.iterdir()) == before


def test_regression_and_the_plan(run: Callable[..., Result], folder: Path) -> None:
    arguments = (folder / "data", *OPTIONS, "--regression", "--y", "t")
    plan = run("stagewise", *arguments, "--plan")
    assert plan.exit_code == 0 and "Gram matrix" in plan.output and "budget" in plan.output
    result = run("stagewise", *arguments, "--quiet", "--out", folder / "r.fcl")
    assert result.exit_code == 0 and not result.output
    assert load_stagewise(folder / "r.fcl").labels is None
