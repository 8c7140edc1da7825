"""The examples run without a download or a warning."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("plot_*.py"))
#: The lowest scikit-learn of scripts that need more than fcl does.
NEEDED = {"plot_any_model": (1, 8)}
#: Scripts that print distances from an optimum instead of the gap of a model.
WITHOUT_GAP = {"plot_any_model", "plot_online"}
#: Runs a script. Without a screen, plt.show() warns that nobody sees the picture.
RUN = """import runpy, sys, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "FigureCanvasAgg")
runpy.run_path(sys.argv[1], run_name="__main__")"""
LARGEST_PICTURE, LARGEST_DATA = 100_000, 300_000


@pytest.mark.slow
@pytest.mark.forked_commands
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    if tuple(map(int, sklearn.__version__.split(".")[:2])) < NEEDED.get(script.stem, (0, 0)):
        pytest.skip("needs a newer scikit-learn, as its first lines say")
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(script)],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg", "FCL_QUIET": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    gaps = re.findall(r"gaps? (\S+)", done.stdout)
    assert gaps or script.stem in WITHOUT_GAP


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


def test_gallery_has_ten_examples_and_small_pictures() -> None:
    assert len(SCRIPTS) == 10
    for script in SCRIPTS:
        title = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        assert re.match(r".+\n=+\n\n.+", title), script
    pictures = list(EXAMPLES.rglob("*.svg"))
    assert len(pictures) == 4
    assert [p for p in pictures if p.stat().st_size > LARGEST_PICTURE] == []
    packed = [path.stat().st_size for path in EXAMPLES.glob("*/*.gz")]
    assert packed and max(packed) <= LARGEST_DATA
