"""Features as text: a checkpoint and a model show them, and the checkpoint resumes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.conftest import ok


@pytest.mark.parametrize(
    ("features", "shown", "name"),
    [
        ("bag:d=3,strands=both", "bag (length=12, d=3, value=count, strands=both, ", "strand"),
        ("kmers:d=2 + bag:d=3 * 0.5", "kmers (d=2, length=12, origin=0) * 1 + bag (length=12, ", ": "),
    ],
)  # fmt: skip
def test_the_text_of_features(
    data: Path, tmp_path: Path, run: Callable[..., Result], features: str, shown: str, name: str
) -> None:
    out, folder = tmp_path / "m.fcl", tmp_path / "checkpoints"
    arguments = ("--features", features, "--C", 1, "--memory", "1GiB", "--driver", "inline")
    ok(run("train", data, *arguments, "--out", out, "--checkpoint", folder, "--tol", "1e-2"))
    seen = ok(run("inspect", out))
    assert shown in seen.stdout and name in seen.stdout
    ok(run("train", "--resume", folder, "--overwrite"))
