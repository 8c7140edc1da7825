"""Commands run no module of the working folder but those that the user named, and what these import."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fcl
from fcl import working_folder
from fcl.features import family_from_config, parse_features
from fcl.run_as_module import runs_module, without_working_folder

#: Optional modules of the libraries that fcl uses, libraries, and modules of Python.
POISONED = (
    "bokeh", "brotli", "chardet", "colorama", "cramjam", "crc32c", "cupy", "cython", "dask",
    "distributed", "fsspec", "google_crc32c", "gssapi", "h5py", "hdf5plugin", "IPython",
    "ipywidgets", "isal", "jax", "lz4", "matplotlib", "mpi4py", "msgpack", "ndonnx",
    "numcodecs", "numexpr", "obstore", "org", "pandas", "pcodec", "pydantic", "pyodide",
    "pysqlite2", "python_snappy", "pytz", "setproctitle", "tblib", "torch", "typing_extensions",
    "uvloop", "xarray", "yaml", "zfpy", "zstandard", "zstd", "array", "csv", "dbm", "gzip",
    "html", "lzma", "netrc", "pdb", "queue", "secrets", "sqlite3", "tomllib", "uuid", "xml",
    "zipfile",
)  # fmt: skip
POISON = """
import pathlib, sys
name = f"RAN-{__name__}-{'-'.join(sys.argv)}".replace("/", "_")[:200]
pathlib.Path(__file__).with_name(name).write_text("")
raise ImportError("poisoned")
"""
FASTA = "".join(f">{i}\n{'ACGT'[i % 4]}{'AC'[i % 2]}GTACGT{'ACG'[i % 3]}TTGA\n" for i in range(12))


@pytest.fixture
def folder(tmp_path: Path, data: Path, model_file: Path) -> Path:
    """A stranger's data: beside it lie modules that leave a mark when they are run."""
    del data, model_file  # in this folder
    for name in POISONED:
        (tmp_path / f"{name}.py").write_text(POISON)
    (tmp_path / working_folder.NUMBA_SETTINGS).write_text("cache_dir: evil\nopt: [\n")
    (tmp_path / "positive.fa").write_text(FASTA)
    (tmp_path / "negative.fa").write_text(FASTA[::-1].translate(str.maketrans("\n>", ">\n"))[1:])
    (tmp_path / "numbers").mkdir()
    np.save(tmp_path / "numbers" / "X.npy", np.random.default_rng(0).normal(size=(60, 3)))
    np.save(tmp_path / "numbers" / "y.npy", np.arange(60) % 2)
    (tmp_path / "t.csv").write_text("a,b,label\n" + "1.5,x,0\n2.5,y,1\n" * 20)
    (tmp_path / "rows.svm").write_text("1 1:0.5 3:1\n0 2:1\n" * 20)
    return tmp_path


def marks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("RAN-*"))


KMERS = ("--features", "kmers:d=2", "--C", "0.1", "--max-passes", "2")
COMMANDS = {
    "train": ("train", "data", *KMERS, "--driver", "processes", "--out", "o.fcl"),
    "path": ("train", "data", *KMERS[:2], "--path", "2", "--cv", "2", "--out", "o.fcl", "--report",
             "r.html"),
    "predict": ("predict", "m.fcl", "data", "--out", "s.zarr"),
    "predict sequences": ("predict", "m.fcl", "positive.fa", "--length", "12", "--out", "-"),
    "inspect": ("inspect", "m.fcl"),
    "certify": ("certify", "m.fcl", "data"),
    "stagewise": ("stagewise", "numbers", "--features", "fourier:n=8", "--out", "o.fcl"),
    "online": ("online", "data", *KMERS[:4], "--out", "o.fcl"),
    "convert table": ("convert", "t.csv", "o.zarr", "--y", "label"),
    "convert svmlight": ("convert", "rows.svm", "o.zarr"),
    "report": ("report", "m.fcl", "--data", "data", "--out", "r.html"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.fresh_interpreters
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_a_module_of_the_folder(name: str, folder: Path) -> None:
    script = str(Path(sys.executable).with_name("fcl"))
    result = run(folder, script, *COMMANDS[name])
    assert result.returncode in (0, 3), result.stderr
    assert marks(folder) == [] and not (folder / "evil").exists()
    assert "Traceback" not in result.stderr and "Numba config" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module", ["fcl", "fcl.cli.inspect"])
def test_python_m_runs_none_either(module: str, folder: Path) -> None:
    more = ["inspect"] if module == "fcl" else []
    # what Python itself imports before it knows fcl is out of reach
    result = run(folder, sys.executable, "-m", module, *more, "m.fcl")
    assert result.returncode == 0, result.stderr
    assert marks(folder) == []


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("python -m fcl train x", True),
        ("python -X dev -W error -m fcl.cli.train", True),
        ("python -Bm fcl", True),
        ("python -mfcl", True),
        ("python -m pytest -m fcl", False),
        ("python -m fclone", False),
        ("python script.py -m other", False),
        ("python -c pass", False),
    ],
)
def test_command_lines_that_run_fcl(words: str, expected: bool) -> None:
    assert runs_module(words.split(), "fcl") is expected


def test_the_folder_of_fcl_stays_on_the_path() -> None:
    assert without_working_folder(["/data", "/lib"], "/home/fcl") == ["/lib"]
    assert without_working_folder(["/home/fcl", "/lib"], "/home/fcl/.") == ["/lib", "/home/fcl"]


# -- modules that the user named

MINE = """
import helper
import parts.deep
from parts import deep as same
from parts.deep import CUT
from fcl.features import Generator

assert parts.deep is same

class Halves(Generator):
    def fit(self, sample):
        import first_later
        self.n_features = sample.shape[1]

    def columns(self, ids, block):
        from parts import second_later
        return block[:, ids] > helper.cut(CUT) + second_later.ZERO
"""
FILES = {
    "mine.py": MINE,
    "helper.py": "import numba\n@numba.njit\ndef cut(x):\n    return abs(x)\n",
    "first_later.py": "",
    "parts/__init__.py": "",
    "parts/deep.py": "from . import zero\nimport helper\nCUT = 1.5\n",
    "parts/zero.py": "import mine\n",
    "parts/second_later.py": "ZERO = 0\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.slow
@pytest.mark.fresh_interpreters
@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_a_named_module_finds_its_helpers(driver: str, folder: Path) -> None:
    write(folder, FILES)
    script = str(Path(sys.executable).with_name("fcl"))
    named = ("--features", "mine:Halves", "--C", "0.1", "--driver", driver)
    result = run(folder, script, "train", "data", *named, "--out", "o.fcl")
    assert result.returncode == 0, result.stderr
    assert "fcl train --resume o.fcl.checkpoint --import mine)" in result.stdout
    again = run(folder, script, "predict", "o.fcl", "data", "--import", "mine", "--out", "s.npy")
    assert again.returncode == 0, again.stderr
    assert marks(folder) == []
    X = np.load(folder / "data" / "X.npy")
    with pytest.raises(fcl.ModelFileError, match="class Halves of the module mine"):
        fcl.load_model(folder / "o.fcl")  # it is known by its plain name
    assert len(np.load(folder / "s.npy")) == len(X)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    before = dict(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def test_no_library_gets_a_helper(here: Path) -> None:
    """What the user's own module imports is not there for others, neither before nor after."""
    write(here, {
        "mine.py": "import cupy\nfrom fcl.features import Columns\nclass A(Columns):\n    pass\n",
        "cupy.py": "NAME = 'helper'\n",
        "lz4.py": "raise AssertionError\n",
    })  # fmt: skip
    with working_folder.protected():
        parse_features("mine:A")
        assert sys.modules["mine"].cupy.NAME == "helper"
        for name in ("cupy", "lz4"):
            assert name not in sys.modules
            with pytest.raises(ModuleNotFoundError):
                __import__(name)
    with pytest.raises(ModuleNotFoundError):
        __import__("mine.cupy")


def test_what_is_installed_comes_first(here: Path) -> None:
    write(here, {"mine.py": "import csv, pandas\n", "csv.py": "1 / 0\n", "pandas.py": "1 / 0\n"})
    with working_folder.protected():
        assert "site-packages" in working_folder.import_module("mine").pandas.__file__


@pytest.mark.parametrize(
    ("files", "features", "message"),
    [
        ({"mine.py": "import nowhere\n"}, "mine:A", "No module named 'nowhere'"),
        ({"mine.py": "import importlib\nimportlib.import_module('other')\n", "other.py": ""}, "mine:A",
         "other is in the working folder.*PYTHONPATH"),
        ({"mine.py": "import pickle\npickle.loads(b'cother\\nA\\n.')\n", "other.py": "A = 1\n"}, "mine:A",
         "other is in the working folder.*PYTHONPATH"),
        ({}, "mine:A", "is its module installed, or in the current folder"),
        ({}, "mine.py:A", "; write mine:A"),
    ],
)  # fmt: skip
def test_what_is_not_found(files: dict[str, str], features: str, message: str, here: Path) -> None:
    write(here, files)
    with working_folder.protected(), pytest.raises(fcl.InputError, match=message):
        parse_features(features)


def test_a_file_does_not_name_a_module(here: Path) -> None:
    write(here, {"mine.py": "raise AssertionError\n"})
    config = {"family": "mine:A", "options": {}, "state": {}, "form": {}}
    with working_folder.protected(), pytest.raises(fcl.InputError, match="--import mine"):
        family_from_config(config, ())


def test_python_programs_are_not_affected(here: Path) -> None:
    """Only commands look into the working folder; a program has its own path of imports."""
    write(here, {"mine.py": "X = 1\n"})
    with pytest.raises(ModuleNotFoundError):
        working_folder.import_module("mine")
    path = list(sys.path)
    with working_folder.protected():
        assert sys.path == path and working_folder.import_module("mine").X == 1
        assert working_folder.handed_on() == {"folder": os.getcwd(), "named": ["mine"]}
    assert working_folder.handed_on() == {}
