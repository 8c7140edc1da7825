"""What fcl says without being asked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fcl
from fcl.config import say, silence
from fcl.kernels.compilation import cache_folder


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = fcl.get_config()
    yield
    fcl.set_config(**before)


def test_lines_and_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FCL_QUIET", raising=False)
    say("one")
    fcl.set_config(verbose=0)
    say("two")
    fcl.set_config(verbose=1)
    monkeypatch.setenv("FCL_QUIET", "1")
    say("three")
    assert capsys.readouterr().err == "fcl: one\n"
    assert fcl.get_config() == {"verbose": 1}


@pytest.mark.parametrize("verbose", [-1, 0.5, "loud"])
def test_bad_settings(verbose: object) -> None:
    with pytest.raises(fcl.InputError, match="verbose"):
        fcl.set_config(verbose=verbose)  # type: ignore[arg-type]


@pytest.mark.slow
def test_compiling_is_announced_once(tmp_path: Path) -> None:
    """Not by the child that compiles for other processes, either."""
    script = """
import numpy as np, fcl
x = np.random.default_rng(0).normal(size=(64, 3))
if __name__ == "__main__":
    for driver in ("inline", "processes"):
        fcl.train(fcl.open_data(x, y=(x[:, 0] > 0) * 1), "columns", C=0.1, driver=driver)
"""
    file = tmp_path / "script.py"
    file.write_text(script)
    # what the inline driver lacks, and what writers lack beside it
    lacking = shutil.ignore_patterns("losses-*", "encoding-*", "complete*", "*.tmp.*")
    shutil.copytree(cache_folder, tmp_path / "fcl" / cache_folder.name, ignore=lacking)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "FCL_QUIET": ""}
    done = subprocess.run([sys.executable, file], env=env, stderr=subprocess.PIPE, check=True)
    first, *others = done.stderr.decode().splitlines()
    assert first.startswith("fcl: compiling kernels, once")
    assert len(others) == 2 and all("fcl: kernels compiled in" in line for line in others)


def test_silence() -> None:
    with silence():
        assert fcl.get_config() == {"verbose": 0}
    assert fcl.get_config() == {"verbose": 1}
