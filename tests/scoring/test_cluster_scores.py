"""Scores from a cluster are those of this process, in every format, however the rows are divided."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from worker_faults import Fault

import fcl
from fcl.cli.predict import command
from fcl.drivers.cluster.connect import connected
from fcl.model import scores as local
from fcl.scoring import cluster as scoring
from tests import by_name

distributed = pytest.importorskip("distributed")

N = 700


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> None:
    """The workers stay until the end of the module."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    ) as found:
        yield found.scheduler_address


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scores") / "rows"
    place.mkdir()
    random = np.random.default_rng(0)
    codes = random.integers(0, 5, (N, 10)).astype(np.uint8)
    numbers = random.normal(size=(N, 7))
    arrays = {
        "X": codes,
        "numbers": numbers,
        "y": (codes[:, 3] == 1) * 1.0,
        "classes": np.minimum(codes[:, 2], 2),
        "offset": random.normal(size=N),
        "age": random.normal(size=N),
    }
    for name, values in arrays.items():
        np.save(place / f"{name}.npy", values)
    return place


def cut_small(patch: pytest.MonkeyPatch) -> None:
    """Blocks of 64 rows, two of them in a task and in a chunk."""
    patch.setattr(scoring, "score_block_rows", lambda model: 64)
    patch.setattr(scoring, "TASK_NUMBERS", 128)
    patch.setattr(local, "ZARR_CHUNK_NUMBERS", 128)
    patch.setattr(local, "BLOCK_ROWS", 64)


def model_of(rows: Path, features: str, y: str = "y", **options: Any) -> fcl.Model:
    opened = {name: options.pop(name) for name in ("x", "offset", "covariates") if name in options}
    data = fcl.open_data(rows, y=y, **opened)
    return by_name.train(data, features, C=0.1, memory="1GiB", warn=False, **options).model


MODELS: dict[str, tuple[Callable[[Path], fcl.Model], list[str]]] = {
    "k-mers": (lambda rows: model_of(rows, "kmers:d=2"), []),
    "numbers": (lambda rows: model_of(rows, "columns", x="numbers"), ["--x", "numbers"]),
    "classes": (
        lambda rows: model_of(rows, "columns", "classes", x="numbers", loss="softmax"),
        ["--x", "numbers", "--y", "classes", "--probability"],
    ),
    "offset and covariates": (
        lambda rows: model_of(rows, "kmers:d=2", offset="offset", covariates="age"),
        ["--offset", "offset", "--mean"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MODELS)
def test_files_are_those_of_one_process(
    case: str, rows: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch)
    make, options = MODELS[case]
    name = str(tmp_path / "m.fcl")
    make(rows).save(name)
    for suffix in (".zarr", ".npy", ".tsv"):
        said = []
        for number, more in enumerate(([], ["--dask", address])):
            out = str(tmp_path / f"{number}{suffix}")
            found = CliRunner().invoke(command, [name, str(rows), "--out", out, *options, *more])
            assert found.exit_code == 0, found.output
            said.append(
                [line for line in found.output.splitlines() if "AU" in line or "loss" in line]
            )
        assert said[0] == said[1]
        one, other = tmp_path / f"0{suffix}", tmp_path / f"1{suffix}"
        if suffix == ".zarr":
            files = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file())
            assert files == sorted(p.relative_to(other) for p in other.rglob("*") if p.is_file())
            assert all((one / p).read_bytes() == (other / p).read_bytes() for p in files)
            assert zarr.open_array(other, mode="r").chunks[0] in (128, 32)
        else:
            assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
def test_tasks_write_chunks_of_their_own(
    rows: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a target nothing comes back; with chunks across two ranges the client writes."""
    cut_small(monkeypatch)
    model, data = model_of(rows, "kmers:d=2"), fcl.open_data(rows, y=None)
    expected = model.margins(data)
    seen: list[Any] = []
    written = scoring.write_scores
    monkeypatch.setattr(scoring, "write_scores", lambda *a, **k: seen.append(1) or written(*a, **k))
    with connected(address) as cluster:
        predictor = scoring.ClusterPredictor(model, data, cluster)
        assert [found for _, _, found in predictor.ranges(64, nothing)] == [None] * 6
        faults = tmp_path / "faults"
        faults.mkdir()
        (faults / "fault-0").touch()
        cluster.client.register_plugin(Fault("on_worker", faults, signal.SIGKILL))
        for chunk, by_client in ((128, 0), (512, 1)):
            monkeypatch.setattr(local, "ZARR_CHUNK_NUMBERS", chunk)
            out = tmp_path / f"{chunk}.zarr"
            scoring.write_score_chunks(predictor, data, out, "margin", False, None)
            assert zarr.open_array(out, mode="r")[:].tobytes() == expected.tobytes()
            assert len(seen) == by_client
        deadline = time.monotonic() + 30.0
        while list(faults.iterdir()):  # until a worker has died: those that are new are spared
            assert time.monotonic() < deadline
            scoring.write_score_chunks(predictor, data, out, "margin", True, None)
            assert zarr.open_array(out, mode="r")[:].tobytes() == expected.tobytes()


def nothing(shared: Any, first: int, last: int) -> None:
    assert last - first in (128, N % 128)
