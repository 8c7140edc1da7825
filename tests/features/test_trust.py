"""A file that names a class of features does not cause its module to be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import set_header

import fcl
from fcl.errors import InputError, ModelFileError
from fcl.features import family_from_config, parse_features
from fcl.model import Model, load_model

pytestmark = pytest.mark.forked_commands

MODULE = """
from pathlib import Path
from fcl.features import Generator
Path(__file__).with_name("was_run").write_text("")

class Halves(Generator):
    def fit(self, sample):
        self.n_features = sample.shape[1]
    def columns(self, ids, block):
        return block[:, ids] > 0.5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a stranger's files: a model, and the module that it names."""
    (tmp_path / "halves_of_mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    X = rng.uniform(size=(100, 4))
    np.save("data/X.npy", X)
    np.save("data/y.npy", (X[:, 0] > 0.6).astype(int))
    result = command(
        "train", "data", "--features", "halves_of_mine:Halves", "--C", "1", "--out", "m.fcl",
        "--driver", "inline", "--quiet",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (tmp_path / "was_run").unlink()
    return tmp_path


def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"fcl.cli.{name}", *arguments], capture_output=True, text=True
    )


def refused(result: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr and "--import halves_of_mine" in result.stderr
    assert not (folder / "was_run").exists()


@pytest.mark.slow
def test_the_commands(folder: Path) -> None:
    refused(command("inspect", "m.fcl"), folder)
    refused(command("predict", "m.fcl", "data", "--out", "s.npy"), folder)
    refused(command("train", "--resume", "m.fcl.checkpoint"), folder)
    toml = 'data = "data"\nfeatures = "halves_of_mine:Halves"\nC = 1\n'
    (folder / "run.toml").write_text(toml)
    refused(command("train", "--config", "run.toml", "--out", "n.fcl"), folder)
    assert not (folder / "n.fcl").exists() and not (folder / "s.npy").exists()
    trusted = ("--import", "halves_of_mine")
    shown = command("inspect", "m.fcl", *trusted)
    assert shown.returncode == 0 and "halves_of_mine:Halves" in shown.stdout, shown.stderr
    assert (folder / "was_run").exists()
    for arguments in (("--resume", "m.fcl.checkpoint"), ("--config", "run.toml", "--out", "n.fcl")):
        result = command("train", *arguments, *trusted, "--driver", "inline", "--tol", "1e-4")
        assert result.returncode == 0, result.stderr
    (folder / "run.toml").write_text(toml + 'import = ["halves_of_mine"]\n')
    itself = command("train", "--config", "run.toml", "--overwrite")
    assert itself.returncode == 2 and "import is not a setting of a run" in itself.stderr


@pytest.mark.slow
def test_metadata_in_the_folder_is_not_an_installation(folder: Path) -> None:
    info = folder / "halves-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fcl.generators]\nhalves = halves_of_mine:Halves\n")
    refused(command("inspect", "m.fcl"), folder)
    set_header(folder / "m.fcl", "family", family="halves")
    unknown = command("inspect", "m.fcl")
    assert unknown.returncode == 2 and "unknown family 'halves'" in unknown.stderr
    assert not (folder / "was_run").exists()


def test_from_python(folder: Path) -> None:
    code = (
        "import sys, fcl\n"
        "sys.path.append('.')\n"
        "try: fcl.load_model('m.fcl')\n"
        "except fcl.ModelFileError as error: print('refused')\n"
        "assert 'halves_of_mine' not in sys.modules\n"
        "print(fcl.load_model('m.fcl', trusted=['halves_of_mine']).family.name)\n"
        "print(fcl.load_model('m.fcl').family.name)\n"  # loaded by now: nothing more is run
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["refused", "Halves", "Halves"], result.stderr


def test_packages_around_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    text = "package_of_mine.part:Halves"
    with pytest.raises(InputError, match=r"--import package_of_mine\.part"):
        parse_features(text, ["package_of", "package_of_mine.part.more"])
    assert not (package / "was_run").exists()
    assert parse_features(text, ["package_of_mine"]) == parse_features(text)


# -- configurations of the families that come with fcl

COLUMNS = {"options": {}, "form": {"rows": "numbers", "width": 3, "dtype": "<f8"}, "probe": []}
COLUMNS |= {"family": "columns", "state": {"n_features": 3}}
PRODUCTS = COLUMNS | {"family": "products", "options": {"degree": 2, "binary": False}}
PRODUCTS |= {"state": {"n_features": 9, "columns_": 3}}


def array(values: Any, dtype: str = "<f8", shape: Any = (3,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "values": values}


FOURIER = COLUMNS | {"family": "fourier", "options": {"n": 50}}
LEARNT = {"n_features": 50, "gamma_": 0.5, "mean_": array([0.0] * 3), "scale_": array([1.0] * 3)}
FOURIER |= {"state": LEARNT}
KMERS = {"family": "kmers", "d": 3, "length": 12, "origin": 0}
BAG = {"family": "bag", "d": 3, "length": 12}


def test_the_good_ones_are_good() -> None:
    for config in (COLUMNS, PRODUCTS, FOURIER, KMERS, BAG):
        both = {"family": "concat", "members": [config, config], "factors": [1.0, 2.0]}
        for good in (config, both):
            family = family_from_config(json.loads(json.dumps(good)), ())
            assert family.describe(0)


@pytest.mark.parametrize("config", [
    *(KMERS | {"d": d} for d in (10**9, 14, 0, -1, 3.0, "3", None, True, [3], 10**400)),
    *(KMERS | {"length": length} for length in (2, 12.0, None, 10**18, "12")),
    *(KMERS | {"origin": origin} for origin in (0.5, 10**4000, None)),
    KMERS | {"more": 1}, {"family": "kmers"},
    *(BAG | change for change in (
        {"d": 10**9}, {"d": 3.0}, {"length": 1}, {"value": "both"}, {"strands": 2},
        {"wildcards": 1}, {"d": 11, "wildcards": True},
    )),
    *(COLUMNS | change for change in (
        {"state": {"n_features": 10**9}}, {"state": {"n_features": 3.0}}, {"state": {}},
        {"state": {"n_features": 3, "columns": 5}}, {"state": {"n_features": 3, "_x": 5}},
        {"state": {"n_features": 3, "__class__": 5}}, {"state": 7}, {"options": {"x": 1}},
        {"options": None}, {"options": {"factors": [1.0]}}, {"form": {}}, {"form": None},
        {"form": {"rows": "numbers", "width": 10**18, "dtype": "<f8"}},
        {"form": {"rows": "numbers", "width": 3, "dtype": "O"}},
        {"form": {"rows": "numbers", "width": 3, "dtype": "<f8", "more": 1}},
        {"form": {"rows": ["numbers"], "width": 3, "dtype": "<f8"}},
        {"record": {"width": 3}}, {"record": {"width": 3, "dtype": "V1000000000"}},
        {"record": {"width": -3, "dtype": "<f4"}}, {"probe": ["a"]}, {"probe": 3},
    )),
    *(PRODUCTS | {"state": state} for state in (
        {"n_features": 9}, {"n_features": 10, "columns_": 3}, {"n_features": 9, "columns_": "3"},
        {"n_features": 9, "columns_": 10**12},
    )),
    PRODUCTS | {"options": {"degree": 10**9}}, PRODUCTS | {"options": {"degree": 2.0}},
    *(FOURIER | {"state": LEARNT | change} for change in (
        {"gamma_": 0.0}, {"gamma_": None}, {"mean_": 0.0}, {"scale_": array([0.0, 1.0, 1.0])},
        {"scale_": array(["inf", 1.0, 1.0])}, {"mean_": array([0.0] * 4, shape=(4,))},
        {"mean_": array([0.0] * 3, shape=(4,))}, {"mean_": array([1], "V1000000000", (1,))},
        {"mean_": array(["a"], "U100000000", (1,))}, {"mean_": array([1], "O", (1,))},
        {"mean_": array([[1], [2, 3]], shape=(2,))}, {"mean_": array([0.0] * 3, shape=(-1,))},
        {"n_features": 51},
    )),
    {"family": "concat"}, {"family": "concat", "members": [], "factors": []},
    {"family": "concat", "members": [KMERS], "factors": [1.0, 2.0]},
    {"family": "concat", "members": [KMERS], "factors": [0.0]},
    {"family": "concat", "members": [KMERS, COLUMNS], "factors": [1.0, 1.0]},
    {"family": "concat", "members": KMERS, "factors": [1.0]},
    {"family": "concat", "members": [3], "factors": [1.0]},
], ids=lambda config: f"{config['family']}")  # fmt: skip
def test_configurations_that_no_user_could_give(config: dict[str, Any]) -> None:
    """Such configurations once hung, took unlimited memory, or ended in a traceback."""
    with pytest.raises(InputError) as caught:
        family_from_config(config, ())
    assert len(str(caught.value)) < 1000


@pytest.mark.slow
def test_in_a_model_file(tmp_path: Path) -> None:
    from fcl.features import KmerFamily
    from fcl.model import Certificate

    family = KmerFamily(3, 12)
    Model(
        family, [3], [1.0], [2], 0.0, "logistic", 1.0, 1.0, ("a", "b"), 9, 9.0, "",
        Certificate(1.0, 1.0, 0.0, 1.0, 8),
    ).save(tmp_path / "m.fcl")  # fmt: skip
    path = tmp_path / "m.fcl"
    set_header(path, "family", d=10**9)
    with pytest.raises(ModelFileError, match=r"m\.fcl: kmers: d must be from 1 to 12, got 10000"):
        load_model(path)
    set_header(path, "family", d=3)
    set_header(path, labels=["x" * 160_000, "\x1b[2J"], created="y" * 160_000)
    shown = command("inspect", str(path))
    assert shown.returncode == 0 and len(shown.stdout) < 5000, shown.stderr
    assert "\x1b" not in shown.stdout
    assert fcl.load_model(path).labels == ("x" * 160_000, "\x1b[2J")
