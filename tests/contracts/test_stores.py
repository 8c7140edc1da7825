"""What a store gives equals the local folder: rows, targets, training by every driver, models."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_cluster import client, cluster, cluster_of_threads  # noqa: F401

import fcl
from fcl.store import RemotePath
from fcl.store.writing import remote_folder
from tests import by_name
from tests.drivers.cluster.runs import bits
from tests.s3_server import CREDENTIALS
from tests.same_optimum import same_optimum
from tests.store.conftest import (  # noqa: F401
    codes,
    folder,
    running_server,
    server,
    site,
    state_folder,
    toy,
    upload,
)

STORES = ("file", "memory", "http", "fsspec", "s3")
JOB: dict[str, Any] = {"C": 0.05, "memory": "1GiB", "warn": False}
Stored = tuple[str, dict[str, str] | None]


def put(kind: str, folder: Path, request: pytest.FixtureRequest) -> Stored:  # noqa: F811
    """Put the folder into a store; returns its URL and the options."""
    if kind == "file":
        return folder.rename(folder.with_name("a b.zarr")).as_uri(), None
    if kind == "http":
        return f"{request.getfixturevalue('site').url}/train.zarr", None
    if kind == "s3":
        found = request.getfixturevalue("upload")(folder, "in/train.zarr")
        return found, request.getfixturevalue("server").options()
    found = (
        f"{request.getfixturevalue('toy')}/in.zarr"
        if kind == "fsspec"
        else "memory://bucket/in.zarr"
    )
    place = fcl.locate(found)
    assert isinstance(place, RemotePath)
    with remote_folder(place, overwrite=True) as made:
        shutil.copytree(folder, made, dirs_exist_ok=True)
    return found, None


@pytest.fixture
def local(folder: Path, tmp_path: Path) -> fcl.DataSet:  # noqa: F811
    """A copy of the folder, where it stays."""
    return fcl.open_data(shutil.copytree(folder, tmp_path / "copy" / "train.zarr"))


@pytest.mark.thin(2)
@pytest.mark.parametrize("kind", STORES)
def test_rows_and_a_model(
    kind: str,
    folder: Path,  # noqa: F811
    local: fcl.DataSet,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    url, options = put(kind, folder, request)
    data = fcl.open_data(url, storage_options=options)
    assert data.fingerprint() == local.fingerprint()
    np.testing.assert_array_equal(data.target, local.target)
    keep = np.random.default_rng(0).random(local.n_rows) < 0.01
    for some in (None, keep):
        np.testing.assert_array_equal(codes(data, keep=some), codes(local, keep=some))
    data.check_unchanged()
    runs = [by_name.train(rows, "kmers:d=2", driver="inline", **JOB) for rows in (data, local)]
    assert bits(runs[0]) == bits(runs[1])
    for name, message in (("train.zarr", 'no array "Z"'), ("none.zarr", "does not exist")):
        wrong = url if name == "train.zarr" else f"{url.rpartition('/')[0]}/{name}"
        with pytest.raises(fcl.InputError, match=message):
            fcl.open_data(wrong, x="Z", storage_options=options)
    place = fcl.locate(f"{url.rpartition('/')[0]}/m.fcl", options)
    runs[0].model.save(tmp_path / "m.fcl" if kind == "http" else place)
    again = fcl.load_model(place)
    np.testing.assert_array_equal(again.margins(data), runs[1].model.margins(local))
    assert (data.source is None) == (kind == "memory")  # which no other process sees
    if data.source is not None:  # workers on other machines open the same rows
        source = pickle.loads(pickle.dumps(data.source))
        np.testing.assert_array_equal(codes(fcl.open_data(**source, y=None)), codes(local))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_processes(
    kind: str,
    folder: Path,  # noqa: F811
    local: fcl.DataSet,
    request: pytest.FixtureRequest,
) -> None:
    """Writers read what they see; the supervisor reads for them what only its process sees."""
    url, options = put(kind, folder, request)
    data = fcl.open_data(url, storage_options=options)
    result = by_name.train(data, "kmers:d=3", driver="processes", writers=2, **JOB)
    same_optimum(result, by_name.train(local, "kmers:d=3", driver="inline", **JOB))
    assert result.model.fingerprint == local.fingerprint()


@pytest.mark.slow
def test_dask(
    folder: Path,  # noqa: F811
    local: fcl.DataSet,
    request: pytest.FixtureRequest,
    client: Any,  # noqa: F811
) -> None:
    url, options = put("s3", folder, request)
    # the workers have started without these credentials
    keys = {name.lower(): value for name, value in CREDENTIALS.items() if "KEY" in name}
    data = fcl.open_data(url, storage_options={**(options or {}), **keys})
    found = by_name.train(data, "kmers:d=3", **JOB, client=client)
    assert bits(found) == bits(by_name.train(local, "kmers:d=3", **JOB, driver="inline"))
    path = {"C_max": 0.5, "points": 2, "cv": 2, "memory": "1GiB", "warn": False}
    there = by_name.train_path(data, "kmers:d=3", client=client, **path)
    here = by_name.train_path(local, "kmers:d=3", **path)
    assert [point.C for point in there.points] == [point.C for point in here.points]
    assert there.chosen.model.weights.tobytes() == here.chosen.model.weights.tobytes()
