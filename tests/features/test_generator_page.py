"""The page for authors of classes: its code equals the examples, and all its commands are run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.forked_commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "own_features.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "generators"
BLOCKS = re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^(fcl \w+ .*)$", PAGE, re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the page's classes, as it prints them, and a table."""
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    for block in BLOCKS:
        if name := _file_of(block):
            (folder / name).write_text(block)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4))
    m = 2.0 * (X[:, 0] > 0.3) - 1.5 * (X[:, 2] > -0.4) + 0.3 * rng.normal(size=700)
    np.save(folder / "data" / "X.npy", X)
    np.save(folder / "data" / "y.npy", np.where(m > 0.0, 1, 0))
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name in ("train", "predict", "inspect"):  # as pip makes them: their folder is on the path
        code = f"from fcl.cli.{name} import main\nmain()\n"
        (scripts / f"fcl-{name}").write_text(code)
    return folder


def _file_of(block: str) -> str | None:
    return next((p.name for p in EXAMPLES.glob("*.py") if p.read_text() == block), None)


def command(line: str, place: Path, expect: int = 0, **variables: str) -> str:
    """Run a command as a script in another folder than the repository."""
    name, *arguments = shlex.split(re.sub("^fcl ", "fcl-", line))
    done = subprocess.run(
        [sys.executable, str(place.parent / "bin" / name), *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def python(code: str, place: Path) -> str:
    """Run code as a module in the folder, so that its processes find the other modules there."""
    (place / "page.py").write_text(
        f"def main():\n{_indented(code)}\n\nif __name__ == '__main__':\n    main()\n"
    )
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


def test_every_example_is_on_the_page() -> None:
    names = {_file_of(block) for block in BLOCKS}
    # the page only names those for stagewise models, whose test is in tests/stagewise
    others = {"rocket.py", "random_features.py"}
    assert names - {None} == {path.name for path in EXAMPLES.glob("*.py")} - others
    for path in EXAMPLES.glob("*.py"):
        assert f"examples/generators/{path.name}" in PAGE


def test_the_class_has_to_be_there(place: Path) -> None:
    command(COMMANDS[0], place)
    shutil.move(place / "thresholds.py", place / "elsewhere.py")
    said = command(COMMANDS[2], place, expect=2)
    assert "expected a module that is installed or in the working folder" in said
    assert "got 'thresholds'" in said
    said = command(COMMANDS[0] + " --overwrite", place, expect=2)
    assert "No module named 'thresholds'" in said


@pytest.mark.slow
def test_sequences(place: Path) -> None:
    from rows import acceptors

    codes, labels = acceptors(12, 400)
    np.save(place / "data" / "X.npy", codes)
    np.save(place / "data" / "y.npy", labels)
    features = "--features spaced_pairs:SpacedPairs:k=1,gap=3"
    command(
        f"fcl-train data {features} --C 0.5 --out m.fcl --tol 1e-4 --driver processes:writers=1",
        place,
    )
    assert re.search(
        r"[ACGT] at \d, [ACGT] at \d", command("fcl-inspect m.fcl --import spaced_pairs", place)
    )
    command("fcl-predict m.fcl data --out scores.npy --import spaced_pairs", place)
    # and against the matrix
    sys.path.insert(0, str(EXAMPLES))
    try:
        from spaced_pairs import SpacedPairs

        import fcl
        from fcl.testing import check_generator

        report = check_generator(SpacedPairs(k=1, gap=3), codes, training=False)
        model = fcl.load_model(place / "m.fcl")
    finally:
        sys.path.remove(str(EXAMPLES))
    assert not report.faults
    phi = np.array([_pair(codes, SpacedPairs(1, 3), 9, j) for j in model.ids]).T
    margins = phi @ model.weights + model.intercept
    np.testing.assert_allclose(np.load(place / "scores.npy"), margins, atol=1e-12)


def _pair(codes: np.ndarray, pairs: object, places: int, feature: int) -> np.ndarray:
    """The feature values, computed from the text of the description alone."""
    pairs.places_ = places  # type: ignore[attr-defined]
    said = pairs.describe(int(feature))  # type: ignore[attr-defined]
    hit = np.ones(len(codes), bool)
    for part in said.split(", "):
        letter, at = part.split(" at ")
        hit &= codes[:, int(at)] == "ACGT".index(letter)
    return hit


@pytest.mark.slow
def test_an_installed_family_has_a_name_of_its_own(place: Path, tmp_path: Path) -> None:
    """An entry point of a distribution that lies along the path."""
    site = tmp_path / "site"
    info = site / "steps-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: steps\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fcl.generators]\nsteps = steps.family:Steps\n")
    (site / "steps").mkdir()
    (site / "steps" / "__init__.py").write_text("")
    code = (EXAMPLES / "thresholds.py").read_text().replace("class Thresholds", "class Steps")
    code = code.replace('rows = "numbers"', 'name = "steps"\n    rows = "numbers"')
    (site / "steps" / "family.py").write_text(code)
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    (place / "thresholds.py").unlink()
    command(
        "fcl-train data --features steps:n=8 --C 0.1 --out m.fcl --driver processes:writers=1",
        place,
        **path,
    )
    command("fcl-train --resume m.fcl.checkpoint --tol 1e-6", place, **path)
    said = command("fcl-inspect m.fcl", place, **path)
    assert "steps" in said and "x0 > " in said
    command("fcl-predict m.fcl data --out scores.npy", place, **path)
    said = command("fcl-predict m.fcl data --out s.npy", place, expect=2)
    assert "unknown family 'steps'" in said
