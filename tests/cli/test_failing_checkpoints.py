"""A checkpoint that cannot be written ends no job: the model is written, and the exit code is 6."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from waves import Problem

import fcl
from fcl.files import atomic
from tests.cli.conftest import save

Run = Callable[..., Result]
JOBS: dict[str, tuple[Any, ...]] = {
    "train": ("--features", "kmers:d=2", "--C", 0.05, "--driver", "inline"),
    "path": ("--features", "kmers:d=2", "--path", 3, "--driver", "inline"),
    "stagewise": ("--features", "waves:Waves", "--block", 8, "--checkpoint-every", "0.000001s"),
    "online": ("--features", "kmers:d=2", "--alpha", 0.01, "--no-certify"),
}


def job(name: str, data: Path, tmp_path: Path, *more: Any) -> tuple[Any, ...]:
    out = tmp_path / "o.fcl"
    place = data
    if name == "stagewise":
        problem = Problem()
        place = save(tmp_path / "waves", X=problem.x, y=problem.y)
    command = "train" if name == "path" else name
    return (command, place, *JOBS[name], "--out", out, *more)


@pytest.mark.parametrize("link", ["nowhere", "checkpoint-9.fcl-ckpt", "a" * 1000])
@pytest.mark.parametrize("name", ["train", "stagewise"])
def test_links_that_lead_nowhere_among_checkpoints(
    name: str, link: str, data: Path, tmp_path: Path, run: Run
) -> None:
    folder, out = tmp_path / "c", ("--out", tmp_path / "o.fcl", "--overwrite")
    more = ("--max-passes", 1) if name == "train" else ("--visits", 1)
    saved = ("--checkpoint", folder, "--checkpoint-every", "0.000001s")
    assert run(*job(name, data, tmp_path, *more, *saved)).exit_code in (0, 3)
    (folder / "checkpoint-9.fcl-ckpt").symlink_to(link)
    if name == "train":
        result = run("train", "--resume", folder, "--max-passes", 50, *out)
        assert result.exit_code == 0 and "it is skipped" in result.stderr, result.output
        return
    (folder / "checkpoint-1.fcl-ckpt").unlink()
    (folder / "checkpoint-9.fcl-ckpt").rename(folder / "checkpoint-1.fcl-ckpt")
    result = run("stagewise", "--resume", folder, *out)
    assert result.exit_code == 2 and "holds no checkpoint" in result.stderr, result.output


@pytest.mark.parametrize("name", JOBS)
def test_a_disk_that_is_full_until_the_end(
    name: str, data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out = atomic._make_locked, tmp_path / "o.fcl"

    def full(target: Path, folder: bool) -> Any:
        final = name != "online" or not saving
        if target == out and final:
            return made(target, folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    saving: list[int] = []  # whether the learner writes its model while it learns
    if name == "online":
        from fcl.drivers.online import run as loop

        write = loop.write_model

        def while_learning(*args: Any) -> bool:
            saving.append(1)
            written = write(*args)
            saving.clear()
            tried.append(written)
            return written

        tried: list[bool] = []
        monkeypatch.setattr("fcl.drivers.online.train.write_model", while_learning)
        monkeypatch.setattr(loop, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(atomic, "_make_locked", full)
    result = run(*job(name, data, tmp_path))
    assert "the newest state could not be saved: " in result.stderr
    assert "No space left on device" in result.stderr and "Traceback" not in result.stderr
    assert fcl.load_model(out, ("waves",)) is not None
    if name == "online":  # the last state is in the model file
        assert result.exit_code == 0 and tried == [False] * len(tried) != []
    else:
        assert result.exit_code == 6, result.output
        assert re.search("error: .*could not be written", result.stderr)


GENERATOR = """
import numpy as np
from fcl import Generator

class Moody(Generator):
    '''Letters at positions, until a number of calls.'''
    rows = "sequences"
    calls = 0

    def fit(self, sample):
        self.n_features = 48

    def columns(self, ids, block):
        type(self).calls += 1
        out = np.array([block[:, i % 12] == i // 12 for i in ids], np.float64).T
        return np.full_like(out, np.nan) if type(self).calls > {most} else out
"""


@pytest.mark.parametrize(("most", "left"), [(0, False), (12, True)])
def test_a_refused_job_leaves_nothing_or_says_what(
    most: int, left: bool, data: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"moody{most}"
    (tmp_path / f"{module}.py").write_text(GENERATOR.format(most=most))
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "o.fcl"
    result = run(
        "train", data, "--features", f"{module}:Moody", "--C", 0.5, "--tol", "1e-9",
        "--driver", "inline", "--out", out, "--quiet",
    )  # fmt: skip
    assert result.exit_code == 2, result.output
    assert "is nan" in result.stderr or "finite" in result.stderr
    folder = tmp_path / "o.fcl.checkpoint"
    assert folder.exists() is left and not out.exists()
    assert (f"fcl train --resume {folder}" in result.stderr) is left
