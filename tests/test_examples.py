"""The examples run from any folder, without a download or a warning, and show what their page says."""

from __future__ import annotations

import math
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from click.testing import CliRunner
from scipy.ndimage import affine_transform

from fcl.cli.umbrella import command as fcl_command

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")
#: Scripts that take the name of a picture.
PICTURES = {"own_features": "effects.svg"}
#: The lowest scikit-learn of scripts that need more than fcl does.
NEEDED = {"any_model": (1, 8)}
LARGEST_PICTURE, LARGEST_DATA = 100_000, 300_000
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


def blocks(title: str, language: str) -> list[str]:
    """The lines of the fenced blocks of a section of the page."""
    section = re.split(r"^## ", PAGE.partition(f"## {title}\n")[2], maxsplit=1, flags=re.M)[0]
    found = re.findall(rf"^```{language}\n(.*?)^```", section, flags=re.M | re.S)
    return [line for block in found for line in block.splitlines()]


def shown(line: str, output: str) -> bool:
    """Whether an output has a line that begins so: the same words, and closely the same numbers."""
    return any(_alike(line, other) for other in output.splitlines())


def _alike(line: str, other: str) -> bool:
    words = [NUMBER.sub("#", text).split() for text in (line, other)]
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(text)] for text in (line, other)]
    return words[0] == words[1][: len(words[0])] and all(
        # the last features, and gaps below the tolerance, differ from processor to processor
        math.isclose(a, b, rel_tol=0.03, abs_tol=1e-3)
        for a, b in zip(*numbers, strict=False)
    )


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    if tuple(map(int, sklearn.__version__.split(".")[:2])) < NEEDED.get(script.stem, (0, 0)):
        pytest.skip("needs a newer scikit-learn, as its first lines say")
    arguments = [PICTURES[script.stem]] if script.stem in PICTURES else []
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= 7  # what was found, and the five strongest features
    assert [path.name for path in tmp_path.iterdir()] == arguments
    if script.stem == "own_features":
        lines = blocks("Your own features", "text")
        assert lines and [line for line in lines if not shown(line, done.stdout)] == []


@pytest.mark.slow
@pytest.mark.parametrize("title", ["Sequences of two classes", "A table with categories"])
def test_commands_of_the_page(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    (tmp_path / "out").mkdir()
    output = ""
    commands = [shlex.split(line) for line in blocks(title, "sh")]
    assert [words[1] for words in commands if words[0] == "fcl"][-1] == "report"
    for program, *arguments in commands:
        if program == "cp":  # the picture of the page is one that the commands made
            assert Path(arguments[0]).is_file() and Path(arguments[1]).is_file()
            continue
        result = CliRunner().invoke(fcl_command, arguments)
        assert result.exit_code == 0, result.output
        output += result.stdout
    lines = blocks(title, "text")
    assert len(lines) >= 5 and [line for line in lines if not shown(line, output)] == []


DIGITS = ROOT.parent / "shared" / "data" / "mnist.npz"


@pytest.mark.slow
@pytest.mark.skipif(not DIGITS.exists(), reason="shared/data/mnist.npz is missing")
@pytest.mark.parametrize(
    ("command", "options", "most"),
    [
        ("train", ["--features", "256", "--visits", "2", "--deskew", "--seeds", "3"], 10.0),
        ("choose", ["--features", "128", "--visits", "1", "--gammas", "0.006"], 15.0),
        ("lasso", ["--features", "300", "--C", "0.02"], 30.0),
    ],
)
def test_digits(
    command: str, options: list[str], most: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of examples/mnist on the first rows and few features."""
    run = runpy.run_path(str(EXAMPLES / "mnist" / "digits.py"))["main"]
    run([command, "--data", str(DIGITS), "--rows", "3000", *options])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "3,000 training rows, 10,000 test rows"
    errors = [float(text) for line in lines for text in re.findall(r"error ([\d.]+)%", line)]
    assert len(errors) == len(lines) == 1 and 0.0 < errors[0] < most, lines
    if command == "lasso":
        gap = re.search(r"relative gap (\S+) over 300 features", lines[0])
        assert gap is not None and float(gap[1]) <= 1e-2


def test_deskewed_digits_are_upright_and_centred() -> None:
    """A sheared or moved image returns to what it was, and an upright one stays."""
    change = runpy.run_path(str(EXAMPLES / "mnist" / "digits.py"))["deskewed"]
    upright = np.zeros((28, 28), np.float32)
    upright[6:23, 12:17] = 1.0
    line = np.arange(28)
    slanted = affine_transform(upright, [[1, 0], [0.4, 1]], [0, -0.4 * 14.0], order=1)
    moved = np.roll(upright, (3, -2), axis=(0, 1))
    found = change(np.stack([upright, slanted, moved]).reshape(3, 784)).reshape(3, 28, 28)
    assert np.abs(found[::2] - upright).max() < 1e-5
    assert np.abs(slanted - upright).mean() > 5.0 * np.abs(found[1] - upright).mean()
    for image, most in ((slanted, 10.0), (found[1], 0.1)):
        mass = image.sum()
        rows, columns = line @ image.sum(axis=1) / mass, line @ image.sum(axis=0) / mass
        covariance = (line - rows) @ image @ (line - columns) / mass
        assert abs(covariance) < most and (most < 1.0 or abs(covariance) > 1.0)


def test_page_names_all_examples_and_has_small_pictures() -> None:
    assert SCRIPTS
    assert [script.name for script in SCRIPTS if f"({script.name})" not in PAGE] == []
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 3
    assert all((EXAMPLES / name).stat().st_size <= LARGEST_PICTURE for name in pictures)
    packed = [path.stat().st_size for path in EXAMPLES.glob("*/*.gz")]
    assert packed and max(packed) <= LARGEST_DATA
    assert "(examples/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
