"""Every file that fcl reads has a table of what it may contain: any other value gives one InputError.

A valid document of each kind gets one wrong value at a time, at each of its places. The file is then
read, and used, from Python and by a command. Some of these values are valid, such as null for an unknown
number; the others must be refused in one line, and nothing may raise another error.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import rewrite
from click.testing import CliRunner
from mutations import mutations, refusals

import fcl
from fcl.data.sparse import from_matrix
from fcl.drivers.online.stream import StreamBlock, learn_stream
from fcl.errors import InputError
from fcl.files.online import OnlineState
from fcl.model.foreign import load_weights
from fcl.online.ogd import Ogd
from fcl.options import OnlineOptions
from fcl.scoring.compact import compact_model
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise

N = 80
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 3))
Y = (X[:, 0] + 0.3 * RANDOM.normal(size=N) > 0).astype(np.int64)
CLASSES = np.array(["p", "q", "r"])[RANDOM.integers(0, 3, N)]
BLOCK = {"C": 1.0, "tol": 1e-9, "block_rows": 64}
STAGES = Settings(block=4, valid_fraction=0.25)


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    make : writes a file of this kind, and whatever else is needed, into the working folder; returns its
        path.
    load : the document in the file.
    store : writes another document.
    read : reads and uses the file; None if only a command does.
    command : the arguments of a command that reads the file at PATH; "" if only Python does.
    """

    make: Callable[[], str]
    load: Callable[[str], Any]
    store: Callable[[str, Any], None]
    read: Callable[[str], object] | None = None
    command: str = ""


# -- how documents are stored ------------------------------------------------------------------------


def in_zip(member: str, kept: str = "") -> dict[str, Any]:
    """A JSON member of a zip.

    kept : a copy of the folder of the file, which takes its place first, since jobs write to the folder.
    """

    def load(path: str) -> Any:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(member))

    def store(path: str, document: Any) -> None:
        content = json.dumps(document).encode()
        if kept:
            shutil.rmtree(Path(path).parent, ignore_errors=True)
            shutil.copytree(kept, Path(path).parent)
        rewrite(Path(path), lambda members: members.update({member: content}))

    return {"load": load, "store": store}


IN_JSON: dict[str, Any] = {
    "load": lambda path: json.loads(Path(path).read_text()),
    "store": lambda path, document: Path(path).write_text(json.dumps(document)),
}


def load_vw(path: str) -> dict[str, str]:
    """The header of a readable model, and its state."""
    lines = Path(path).read_text().splitlines()
    end = next(at for at, line in enumerate(lines) if line.startswith("options:"))
    pairs = [line.partition(":") for line in lines[: end + 1]]
    return {key: value for key, _, value in pairs} | {"l1_state": "0.5", "l2_state": "1.0"}


def store_vw(path: str, document: dict[str, Any]) -> None:
    state = {key: document[key] for key in ("l1_state", "l2_state") if key in document}
    lines = [f"{key}:{value}" for key, value in document.items() if key not in state]
    lines += [":1", *(f"{key} {value}" for key, value in state.items()), "a:92594:0.5"]
    Path(path).write_text("\n".join(lines) + "\n")


def store_toml(path: str, document: dict[str, Any]) -> None:
    lines = []
    for key, value in document.items():
        text = repr(value) if isinstance(value, float) else json.dumps(value)
        lines += [] if value is None else [f"{key} = {text}"]  # TOML has no null
    Path(path).write_text("\n".join(lines) + "\n")


def store_npy(path: str, document: dict[str, Any]) -> None:
    header = dict(document)
    if isinstance(header.get("shape"), list):
        header["shape"] = tuple(header["shape"])
    text = (repr(header) + "\n").encode()
    head = b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little")
    Path(path).write_bytes(head + text + X.tobytes())


# -- the kinds ---------------------------------------------------------------------------------------


def data(**arrays: Any) -> str:
    """A folder of arrays on disk."""
    folder = Path("data")
    folder.mkdir(exist_ok=True)
    for name, values in ({"X": X, "y": Y} | arrays).items():
        np.save(folder / f"{name}.npy", values)
    return "data"


def model(y: Any = Y, **options: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    covariates = options.pop("covariates", None)
    if covariates is not None:
        covariates = pandas.DataFrame({"k": covariates})
    rows = fcl.open_data(frame, y=y, covariates=covariates)
    return fcl.train(rows, "columns", **(BLOCK | {"max_passes": 2}), **options).model


def make_model(**options: Any) -> Callable[[], str]:
    def make() -> str:
        data()
        model(**options).save("m.fcl")
        return "m.fcl"

    return make


def make_compact() -> str:
    data()
    compact_model(model(), bits=8).model.save("m.fcl")
    return "m.fcl"


def make_stagewise() -> str:
    data()
    rows = fcl.open_data(X, y=CLASSES)
    train_stagewise(rows, "fourier:n=12", STAGES, running=StagewiseRunOptions(cores=1)).model.save(
        "m.fcl"
    )
    return "m.fcl"


def use_model(path: str) -> None:
    found: Any = fcl.load_model(path)
    rows = fcl.open_data(X, y=None)
    if found.covariate_names:
        pandas = pytest.importorskip("pandas")
        rows = fcl.open_data(X, y=None, covariates=pandas.DataFrame({"k": CLASSES}))
    found.predict(rows)
    repr(found)
    if hasattr(found.history, "to_dataframe"):
        found.history.to_dataframe()
        found.to_html()


def make_checkpoint() -> str:
    job = "--features columns --C 1 --max-passes 2 --tol 1e-9 --checkpoint ck"
    run(f"{TRAIN} {data()} {job}")
    *earlier, path = sorted(Path("ck").glob("*.fcl-ckpt"))
    for other in earlier:
        other.unlink()
    shutil.copytree("ck", "kept")
    return str(path)


def use_checkpoint(path: str) -> None:
    rows = fcl.open_data("data")
    fcl.train(rows, "columns", C=1.0, tol=1e-9, max_passes=3, resume="ck")


def make_stage_checkpoint() -> str:
    seen = iter([False, False, True])
    data(y=CLASSES)
    command: dict[str, Any] = dict.fromkeys(("weights", "offset", "valid"))
    command |= {"data": os.path.abspath("data"), "x": "X", "y": "y", "out": "m.fcl"}
    command |= {"features": "fourier:n=12", "regression": False}
    stop = {"should_stop": lambda: next(seen, True)}
    running = StagewiseRunOptions(cores=1, checkpoint=StateFolder("ck"), command=command, **stop)
    train_stagewise(fcl.open_data("data"), "fourier:n=12", STAGES, running=running)
    shutil.copytree("ck", "kept")
    return "ck/checkpoint-1.fcl-ckpt"


def use_stage_checkpoint(path: str) -> None:
    running = StagewiseRunOptions(cores=1, resume=StateFolder("ck").load(), max_time=1e-9)
    train_stagewise(fcl.open_data("data"), "fourier:n=12", STAGES, running=running)


def make_online(**options: Any) -> Callable[[], str]:
    def make() -> str:
        rows = fcl.open_data(data())
        fcl.train_online(rows, "columns", alpha=1e-3, certify=False, **options).save("m.fcl")
        return "m.fcl"

    return make


def use_online(path: str) -> None:
    fcl.train_online(fcl.open_data("data"), resume=path, passes=2, certify=False)


def block() -> StreamBlock:
    from scipy.sparse import csr_array

    rows = from_matrix(csr_array(X), "X")
    return StreamBlock(rows.read(0, N), Y.astype(np.float64), lambda row: row + 1)


def make_stream() -> str:
    found = learn_stream(iter([block()]), "columns", alpha=1e-3, class_weight={0: 1.0, 1: 2.0})
    found.save("m.fcl")
    return "m.fcl"


def use_stream(path: str) -> None:
    learn_stream(iter([block()]), resume=path)


OGD = OnlineOptions(alpha=1e-3, weights="q2.13")


def make_ogd() -> str:
    Ogd(5, OGD).save("t.fcl")
    return "t.fcl"


def make_path() -> str:
    rows = fcl.open_data(data())
    fcl.train_path(rows, "columns", points=2, max_passes=2, valid=rows, folder="m.fcl.path")
    shutil.copytree("m.fcl.path", "kept")
    return "m.fcl.path/path.json"


def use_path(path: str) -> None:
    table = Path(path).read_bytes()
    shutil.rmtree("m.fcl.path")
    shutil.copytree("kept", "m.fcl.path")
    Path(path).write_bytes(table)
    rows = fcl.open_data("data")
    fcl.train_path(rows, "columns", points=2, max_passes=2, valid=rows, folder="m.fcl.path")


def make_zarr(version: int, name: str) -> Callable[[], str]:
    def make() -> str:
        import zarr

        group = zarr.open_group("d.zarr", mode="w", zarr_format=version)
        group.create_array("X", data=X, chunks=(32, 3))
        group["y"] = Y
        group.create_group("var", attributes={"_index": "n"})["n"] = np.array(["a", "b", "c"])
        return f"d.zarr/{name}"

    return make


def use_data(path: str) -> None:
    with fcl.memory.allowance.within("64MiB"):
        found = fcl.open_data(path.partition("/")[0])
        for start in range(0, min(found.n_rows, 200), 50):
            found.rows.read(start, min(start + 50, found.n_rows))


def make_npy() -> str:
    data()
    return "data/X.npy"


def load_npy(path: str) -> dict[str, Any]:
    return {"descr": "<f8", "fortran_order": False, "shape": [N, 3]}


def make_vw() -> str:
    make_zarr(3, "")()
    shutil.copy(Path(__file__).parent / "model" / "vw" / "bare.txt", "vw.txt")
    return "vw.txt"


CONFIG = {"C": 1.0, "features": "columns", "max-passes": 2, "memory": "1GiB", "seed": 3,
          "max-time": "10s", "no-intercept": True, "l1-ratio": 0.5, "tol": 0.1}  # fmt: skip


def make_toml() -> str:
    data()
    store_toml("run.toml", CONFIG)
    return "run.toml"


OUT = "--out o.fcl --overwrite --quiet"
TRAIN = f"train --driver inline {OUT}"
RESUME_ONLINE = f"online data --resume PATH --passes 2 --no-certify {OUT}"
CERTIFY = "certify PATH d.zarr --features columns --C 1"
MODEL = {**in_zip("header.json"), "read": use_model, "command": "inspect PATH"}
ONLINE = {**in_zip("online.json"), "read": use_online, "command": RESUME_ONLINE}
STATE = in_zip("header.json", "kept")
WEIGHTED = {"class_weight": {0: 1.0, 1: 2.0}}
KINDS: dict[str, Kind] = {
    "model": Kind(make_model(**WEIGHTED), **MODEL),
    "model of classes": Kind(make_model(y=CLASSES, loss="softmax"), **MODEL),
    "model with covariates": Kind(make_model(covariates=CLASSES), **MODEL),
    "compact model": Kind(make_compact, **MODEL),
    "stagewise model": Kind(make_stagewise, **MODEL),
    "checkpoint": Kind(
        make_checkpoint, **STATE, read=use_checkpoint, command=f"{TRAIN} --resume ck --max-passes 2"
    ),
    "stagewise checkpoint": Kind(
        make_stage_checkpoint,
        **STATE,
        read=use_stage_checkpoint,
        command=f"stagewise --resume ck {OUT}",
    ),
    "online truncated": Kind(make_online(method="truncated-gradient", **WEIGHTED), **ONLINE),
    "online ball": Kind(make_online(method="ball", radius=2.0), **ONLINE),
    "online table": Kind(make_online(method="ogd", weights="q2.13", seed=1), **ONLINE),
    "online stream": Kind(make_stream, **in_zip("online.json"), read=use_stream),
    "table of weights": Kind(make_ogd, **in_zip("table.json"), read=lambda p: Ogd(5, OGD).load(p)),
    "path": Kind(make_path, **IN_JSON, read=use_path),
    "Zarr 3": Kind(make_zarr(3, "X/zarr.json"), **IN_JSON, read=use_data),
    "Zarr 3 group": Kind(make_zarr(3, "var/zarr.json"), **IN_JSON, read=use_data),
    "Zarr 2": Kind(make_zarr(2, "X/.zarray"), **IN_JSON, read=use_data),
    "npy": Kind(make_npy, load=load_npy, store=store_npy, read=use_data),
    "Vowpal Wabbit": Kind(
        make_vw, load=load_vw, store=store_vw, read=load_weights, command=CERTIFY
    ),
    "configuration": Kind(
        make_toml,
        load=lambda path: CONFIG,
        store=store_toml,
        command=f"{TRAIN} data --config PATH --no-checkpoint",
    ),
}


def run(command: str, path: str = "") -> Any:
    name, *arguments = command.replace("PATH", path).split()
    return CliRunner().invoke(import_module(f"fcl.cli.{name}").command, arguments)


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder, without warnings."""
    monkeypatch.chdir(tmp_path)
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.read])
def test_from_python(name: str) -> None:
    kind = KINDS[name]
    path = kind.make()
    document = kind.load(path)
    assert kind.read is not None
    kind.store(path, document)
    kind.read(path)  # valid as it is

    def read(changed: Any) -> None:
        kind.store(path, changed)
        kind.read(path)  # type: ignore[misc]

    every = bool(os.environ.get("FCL_TEST_THOROUGH"))
    found = refusals(document, read, every)
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.command])
def test_by_a_command(name: str) -> None:
    """One wrong value at each place: exit code 2, one line, and no traceback."""
    kind = KINDS[name]
    path = kind.make()
    document = kind.load(path)
    kind.store(path, document)
    valid = run(kind.command, path)
    assert valid.exit_code in (0, 3), valid.stderr
    step = 1 if os.environ.get("FCL_TEST_THOROUGH") else 23
    for words, changed in list(mutations(document))[::step]:
        kind.store(path, changed)
        result = run(kind.command, path)
        # 3: the passes are used up
        assert result.exit_code in (0, 2, 3), f"{words}: {result.exc_info}"
        assert "Traceback" not in result.stderr, words
        if result.exit_code == 2:
            assert result.stderr.count(" error: ") == 1, f"{words}: {result.stderr}"


def test_state_without_its_table_cannot_be_written() -> None:
    """What fcl writes, its table declares."""
    state = OnlineState({"method": "ftrl"}, np.arange(2), np.zeros((2, 2)), np.zeros(10))
    with pytest.raises(ValueError, match="is missing"):
        state.members()
    make_online(method="ftrl")()
    from fcl.files.online import read_state

    kept = read_state("m.fcl")
    more = OnlineState(kept.run | {"more": 1}, kept.ids, kept.table, kept.sums)
    with pytest.raises(ValueError, match=r"undeclared in the online\.json of a model file: more"):
        more.members()


SUMS = {"rows": 0, "weight": 1, "pending": 2, "growth": 4, "limit": 5, "intercept": 6, "squares": 7}


@pytest.mark.parametrize("method", ["ftrl", "ogd", "truncated-gradient", "ball"])
@pytest.mark.parametrize("place", SUMS)
def test_sums_of_an_online_state(method: str, place: str) -> None:
    """A state with another sum is refused, or learns with it as with any other number."""
    from fcl.online import make_learner

    more = {"radius": 2.0} if method == "ball" else {}
    learner = make_learner(method, 3, OnlineOptions(alpha=1e-3, **more))
    saved = learner.saved()
    learner.restore(saved)
    for value in (-1.0, np.nan, np.inf, 0.5, 1e300):
        saved["state"][SUMS[place]] = value
        allowed = {
            "rows": False,  # none of the values is a whole number of rows
            "limit": value >= 0.0,
            "growth": value >= (0.0 if method == "ball" else 1.0) and value < np.inf,
            "intercept": bool(np.isfinite(value)),
        }.get(place, bool(0.0 <= value < np.inf))
        if allowed:
            learner.restore(saved)
            continue
        with pytest.raises(InputError, match="the saved state is not one of"):
            learner.restore(saved)
