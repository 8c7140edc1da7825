"""The cache of compiled kernels, and the same tests with uncompiled and bounds-checked kernels."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from fcl.features import KmerFamily, Kmers
from fcl.kernels import compilation as kernels
from fcl.working_folder import NUMBA_SETTINGS
from tests.windows import CHECKED, INTERPRETED, make_windows

ROOT = Path(__file__).parents[2]
SETTINGS = ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK", "NUMBA_CACHE_DIR")
#: Tests that call kernels directly, without training.
FILES = (
    "kernels",
    "contracts/test_losses.py",
    "contracts/test_families.py",
    "cache/test_column_cache.py",
    *(f"features/{path.name}" for path in sorted((ROOT / "tests/features").glob("test_kmer_*.py"))),
    "features/test_product_prices.py",
)
inside = pytest.mark.skipif(INTERPRETED or CHECKED, reason="this is the inner run")


def python(*arguments: str, timeout: float, **settings: str) -> str:
    """Run a fresh interpreter in the repository; returns what it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment | settings,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


def run_tests(*names: str, timeout: float, **settings: str) -> None:
    """Run test files of this repository, in smaller sizes, with other settings of numba."""
    names = tuple(str(Path("tests") / name) for name in names)
    # plain numpy warns where unsigned numbers wrap around, which the hashes mean to
    wraps = "ignore:overflow encountered:RuntimeWarning"
    options = (
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-m",
        "not slow",
        "-W",
        wraps,
    )
    python("-m", "pytest", *options, *names, timeout=timeout, **settings)


@pytest.mark.slow
@inside
@pytest.mark.timeout(600)
def test_uncompiled_kernels_pass_the_same_tests(tmp_path: Path) -> None:
    """Numpy checks the bounds of indices, which compiled kernels do not."""
    run_tests(*FILES, timeout=580, NUMBA_DISABLE_JIT="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert not list(tmp_path.rglob("*.nbi"))


@inside
@pytest.mark.thorough  # compiles all kernels again, to find out of bounds what numpy finds above
@pytest.mark.timeout(600)
def test_bounds_checked_kernels_pass_the_same_tests(tmp_path: Path) -> None:
    # a folder of its own: what is found compiled was compiled with checks
    run_tests(*FILES, timeout=580, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert list(tmp_path.rglob("*.nbi"))


@pytest.mark.skipif(not CHECKED, reason="only with bounds checks")
def test_bounds_are_checked() -> None:
    from fcl.kernels.losses import side_sums

    with pytest.raises(IndexError):
        side_sums(np.zeros(9), np.zeros(1))


@pytest.mark.skipif(INTERPRETED, reason="minutes without compilation")
def test_a_small_job_runs_from_rows_to_predictions() -> None:
    from fcl.data import open_data
    from fcl.drivers.train import train

    X = make_windows(0, 800, 9, "few")
    noise = np.random.default_rng(0).random(800) < 0.1
    y = (X[:, 3] == 0) & (X[:, 5] != 1) ^ noise
    data = open_data(X, y=np.where(y, "yes", "no"))
    result = train(data, Kmers(3), C=0.3, block_rows=256, memory="768MiB", tol=1e-4)
    assert result.converged and result.certificate.gap <= 1e-4
    assert result.certificate.n_priced == KmerFamily(3, 9).n_features
    predicted = result.model.predict(data)
    assert ((predicted == "yes") == y).mean() > 0.85


def reached_from(name: str, sources: dict[str, str]) -> set[str]:
    """The files of kernels that a file imports, and those that they import."""
    found, new = set(), [name]
    while new:
        name = new.pop()
        found.add(name)
        for node in ast.walk(ast.parse(sources[name])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fcl.kernels"):
                names = {node.module.rpartition(".")[2], *(alias.name for alias in node.names)}
                new += names & sources.keys() - found
    return found


def test_the_folder_of_a_kernel_follows_its_sources(tmp_path: Path) -> None:
    """Its own file and those that it imports; neither other files nor the place."""
    source = Path(kernels.__file__).parent
    shutil.copytree(source, tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    before = kernels._digests(source)
    assert kernels._digests(tmp_path / "kernels") == before
    sources = {path.stem: path.read_text() for path in source.glob("*.py")}
    reached = {name: reached_from(name, sources) for name in before if name}
    for changed in ("bits", "losses", "tables"):
        path = tmp_path / "kernels" / f"{changed}.py"
        path.write_text(sources[changed] + "# changed\n")
        after = kernels._digests(tmp_path / "kernels")
        path.write_text(sources[changed])
        differ = {name for name in before if after[name] != before[name]}
        assert differ == {name for name in reached if changed in reached[name]} | {""}
    assert "kmers" not in reached["losses"] and "losses" in reached["online"]


COUNT = """
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
import numpy, fcl.kernels.descent
fcl.kernels.descent.soft_threshold(1.0, 2.0)
print(fcl.__file__, len(compiled))
"""


@pytest.mark.slow
@inside
def test_installations_share_kernels(tmp_path: Path) -> None:
    """Neither the place nor the time of an installation counts, only the sources."""
    shutil.copytree(ROOT / "fcl", tmp_path / "fcl", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (tmp_path / "fcl/kernels").glob("*.py"):
        os.utime(path, (1, 1))
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    first = python("-P", "-c", COUNT, timeout=100, PYTHONPATH=str(ROOT), **settings)
    second = python("-P", "-c", COUNT, timeout=100, PYTHONPATH=str(tmp_path), **settings)
    assert first.split()[0] != second.split()[0] and int(first.split()[1]) > 0
    assert second.split()[1] == "0"


def test_the_folder_of_all_follows_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {kernels._candidate_folders()[0].name}
    for name, value in (("BOUNDSCHECK", not numba.config.BOUNDSCHECK), ("OPT", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(numba.config, name, value)
            found.add(kernels._candidate_folders()[0].name)
    assert len(found) == 3


def test_a_folder_that_cannot_be_made_falls_back_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    bad, good = tmp_path / "file" / "kernels", tmp_path / "a" / "b"
    monkeypatch.setattr(kernels, "_candidate_folders", lambda: [bad, good])
    assert kernels._find_cache_folder() == good and good.is_dir()
    assert list(good.iterdir()) == []  # no trace of the trial
    monkeypatch.setattr(kernels, "_candidate_folders", lambda: [bad, bad])
    assert kernels._find_cache_folder() is None

    def homeless() -> list[Path]:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(kernels, "_candidate_folders", homeless)
    assert kernels._find_cache_folder() is None


def test_a_folder_that_others_can_replace_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Machine code of another user would run as this one's: the next folder is used, with one line."""
    open_to_all, good = tmp_path / "open", tmp_path / "good"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    folders = [open_to_all / "fcl-0" / "kernels", good]
    monkeypatch.setattr(kernels, "_candidate_folders", lambda: folders)
    assert kernels._find_cache_folder() == good
    assert len(caplog.messages) == 1
    assert f"other users can write to {open_to_all}" in caplog.text and str(good) in caplog.text
    caplog.clear()
    folders[1] = folders[0]
    assert kernels._find_cache_folder() is None
    assert len(caplog.messages) == 1 and "compiles them again" in caplog.text


def test_settings_of_the_working_folder_do_not_name_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "evil"))  # by the program
    assert str(kernels._candidate_folders()[0]).startswith(str(tmp_path / "evil"))
    (tmp_path / NUMBA_SETTINGS).write_text("cache_dir: evil\n")
    assert not any("evil" in str(folder) for folder in kernels._candidate_folders())
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    assert str(kernels._candidate_folders()[0]).startswith(str(tmp_path / "named"))


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_without_any_folder_kernels_are_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = numba.config.CACHE_DIR
    monkeypatch.setattr(kernels, "cache_folder", None)

    @kernels.kernel
    def twice(x):
        return x / (x - x)

    assert twice(3.0) == np.inf  # division as in numpy
    assert before == numba.config.CACHE_DIR


REPORT = """
import numba
{before}
import fcl.kernels.compilation as kernels
from fcl.kernels.losses import add
add(1.0, 0.0, 0.5)
print(kernels.cache_folder, numba.config.CACHE_DIR, sum(add.stats.cache_hits.values()))
"""


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
@inside
def test_kernels_are_kept_where_they_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    settings = {"XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "tmp")}
    settings["HOME"] = str(tmp_path / "file")
    before = f"numba.config.CACHE_DIR = {str(tmp_path / 'mine')!r}"
    for code, folder, setting in (
        (REPORT.format(before=""), tmp_path / "tmp" / f"fcl-{os.getuid()}", ""),
        (REPORT.format(before=before), tmp_path / "mine" / "fcl", str(tmp_path / "mine")),
    ):
        for hits in (0, 1):  # compiled once, then loaded
            out = python("-c", code, timeout=60, **settings).rstrip("\n").split(" ")
            assert Path(out[0]).parent == folder and Path(out[0]).name.startswith("kernels-")
            assert out[1] == setting  # the caller's own is as it was
            assert int(out[2]) == hits
        assert list(folder.rglob("*losses.add*.nbi"))


UPGRADED = """
import sys
from fcl.kernels import compilation as kernels
from fcl.kernels.losses import add
from fcl.kernels.hashing import place_of
add(1.0, 0.0, 0.5)
place_of(3, 8)
print(*(sum(each.stats.cache_hits.values()) for each in (add, place_of)))
"""


@pytest.mark.slow
@inside
@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
def test_an_upgrade_compiles_what_changed(tmp_path: Path) -> None:
    """The files of a reinstalled fcl have other times, which numba before 0.68 looks at."""
    there = tmp_path / "fcl"
    shutil.copytree(ROOT / "fcl", there, ignore=shutil.ignore_patterns("__pycache__"))
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    hits = []
    for changed in ("", "", "losses"):
        for path in (there / "kernels").glob("*.py"):
            if path.stem == changed:
                path.write_text(path.read_text() + "# changed\n")
            elif tuple(map(int, numba.__version__.split(".")[:2])) >= (0, 68):
                os.utime(path)
        hits.append(python("-P", "-c", UPGRADED, timeout=60, **settings).split())
    assert hits == [["0", "0"], ["1", "1"], ["0", "1"]]


@pytest.mark.parametrize("value", ["0", "-1", "abc", "", "1.5", "2"])
def test_a_number_of_threads_that_numba_refuses(value: str) -> None:
    """One message in place of numba's error while it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", "import fcl.kernels.compilation"],
        env={**os.environ, "NUMBA_NUM_THREADS": value},
        capture_output=True,
        text=True,
        timeout=60,
    )
    last = done.stderr.splitlines()[-1:] or [""]
    wanted = "fcl.errors.InputError: NUMBA_NUM_THREADS: expected a whole number above 0, got "
    assert last[0].startswith(wanted) is (value != "2") is (done.returncode != 0), done.stderr
