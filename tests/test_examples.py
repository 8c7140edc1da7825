"""The scripts in examples/ run from any folder, without a download or a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= 7  # what was found, and the five strongest features
    assert list(tmp_path.iterdir()) == []


def test_front_page_names_the_examples() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert SCRIPTS
    assert [script.name for script in SCRIPTS if f"(examples/{script.name})" not in page] == []
