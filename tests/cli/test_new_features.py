"""``fcl new-features``: files that work before they are edited."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from tests.cli.conftest import ok


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows"), [("HighPairs", "numbers"), ("EqualLetters", "sequences")]
)
def test_written_files_pass_their_test_and_train(
    name: str, rows: str, tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ok(run("new_features", name, "--rows", rows))
    module = {"HighPairs": "high_pairs", "EqualLetters": "equal_letters"}[name]
    assert f"--features {module}:{name}" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{module}.py", f"test_{module}.py"]
    options = ["-q", "-p", "no:cacheprovider", f"test_{module}.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 6)) if rows == "numbers" else rng.integers(0, 4, (200, 30), np.uint8)
    data = fcl.open_data(X, y=np.where(X[:, 0] > np.median(X[:, 0]), 1, -1))
    monkeypatch.syspath_prepend(tmp_path)
    model = fcl.train(data, f"{module}:{name}", C=1.0, tol=1e-3).model
    assert model.n_active and model.describe()[0].feature


def test_refusals(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, message in (
        ("high_pairs", "expected the name of a class, such as HighPairs, got 'high_pairs'"),
        ("Numpy", "numpy is a word or a module of Python already; choose another name"),
        ("Class", "class is a word or a module of Python already"),
    ):
        result = run("new_features", name)
        assert result.exit_code == 2 and message in result.stderr, result.stderr
    ok(run("new_features", "Mine"))
    Path("mine.py").write_text("edited")
    result = run("new_features", "Mine")
    assert result.exit_code == 2 and "mine.py" in result.stderr
    assert Path("mine.py").read_text() == "edited"
    ok(run("new_features", "Mine", "--overwrite"))
    assert "class Mine(Generator)" in Path("mine.py").read_text()
