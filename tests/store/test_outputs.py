"""Models and scores in an S3 store, which appear when they are complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import fcl
from fcl.errors import OutputExistsError
from fcl.files.atomic import atomic_file, atomic_folder, check_output
from fcl.files.model import read_model
from fcl.model.scores import write_scores
from fcl.store import RemotePath, usual_options
from tests.s3_server import S3Server


@pytest.fixture
def place(server: S3Server) -> RemotePath:
    """A folder in the bucket."""
    found = fcl.locate(f"s3://{server.bucket}/out", server.options())
    assert isinstance(found, RemotePath)
    return found


@pytest.fixture
def model(folder: Path) -> fcl.Model:
    return fcl.train(fcl.open_data(folder), "kmers:d=2", C=0.05, memory="1GiB").model


def content(path: Any) -> bytes:
    with path.open() as file:
        return bytes(file.read())


def keys(place: RemotePath) -> set[str]:
    return {info.key for info in place.list()}


def test_a_model(place: RemotePath, model: fcl.Model, tmp_path: Path, server: S3Server) -> None:
    model.save(place / "m.fcl")
    model.save(tmp_path / "m.fcl")
    assert content(place / "m.fcl") == (tmp_path / "m.fcl").read_bytes()
    assert keys(place) == {"m.fcl"}
    server.fail("503", "m.fcl")
    server.fail("truncate", "m.fcl")
    again = fcl.load_model(place / "m.fcl")
    np.testing.assert_array_equal(again.weights, model.weights)
    with pytest.raises(fcl.InputError, match="exists already"):
        model.save(place / "m.fcl")
    options = server.options()
    model.save(str(place / "m.fcl"), overwrite=True, storage_options=options)
    np.testing.assert_array_equal(fcl.load_model(str(place / "m.fcl"), (), options).ids, model.ids)
    with usual_options(server.options()):
        assert read_model(str(place / "m.fcl"))[0]["fingerprint"] == model.fingerprint


@pytest.mark.thin(2)
@pytest.mark.parametrize("suffix", [".npy", ".tsv", ".tsv.gz", ".zarr"])
def test_scores(
    place: RemotePath, model: fcl.Model, folder: Path, tmp_path: Path, suffix: str, server: S3Server
) -> None:
    out = place / f"scores{suffix}"
    check_output(out, overwrite=False, folder=suffix == ".zarr")
    assert write_scores(model, str(folder), out) == 6000
    write_scores(model, str(folder), tmp_path / f"scores{suffix}")
    if suffix == ".zarr":
        from fcl.data.zarr_place import place_of

        array = zarr.open(store=place_of(out).open(), mode="r")
        assert isinstance(array, zarr.Array) and array.attrs["kind"] == "margin"
        np.testing.assert_array_equal(array[:], model.margins(str(folder)))
    else:
        assert content(out) == (tmp_path / f"scores{suffix}").read_bytes()
    with pytest.raises(fcl.InputError, match="exists already"):
        write_scores(model, str(folder), out)
    write_scores(model, str(folder), out, overwrite=True)


def test_a_failure_leaves_nothing(place: RemotePath, tmp_path: Path) -> None:
    def fail(make: Any) -> None:
        with make(place / "x.zarr") as made:
            if isinstance(made, Path):
                (made / "zarr.json").write_text("{}")
            raise ZeroDivisionError

    for make in (atomic_file, atomic_folder):
        with pytest.raises(ZeroDivisionError):
            fail(make)
    assert keys(place) == set()


def test_an_earlier_store_is_replaced_completely(place: RemotePath) -> None:
    for names in (("c/0", "c/1", "zarr.json"), ("c/0", "zarr.json")):
        with atomic_folder(place / "x.zarr", overwrite=True) as made:
            for name in names:
                (made / name).parent.mkdir(exist_ok=True)
                (made / name).write_text("{}")
        assert keys(place) == {f"x.zarr/{name}" for name in names}


def test_metadata_are_sent_last(place: RemotePath, server: S3Server) -> None:
    with atomic_folder(place / "x.zarr") as made:
        zarr.open_group(made, mode="w").create_array("a/b", data=np.arange(100), chunks=(7,))
    sent = [path for method, path in server.requests if method == "PUT"]
    # the first object takes the name, and the last one replaces it
    assert sent[0].endswith("x.zarr/zarr.json") and sent[-1] == sent[0]
    metadata = [path.endswith("zarr.json") for path in sent[1:]]
    assert len(metadata) == 15 + 3 and metadata == sorted(metadata)


def test_another_process_was_faster(place: RemotePath) -> None:
    def write_late() -> None:
        with atomic_file(place / "x") as file:
            file.write(b"mine")
            place.bucket.client.put((place / "x").key, b"theirs", overwrite=False)

    with pytest.raises(OutputExistsError, match="another process has written this file") as caught:
        write_late()
    assert caught.value.kept == str(place / "x.1")
    assert (content(place / "x"), content(place / "x.1")) == (b"theirs", b"mine")


def test_another_process_was_faster_with_a_store(
    place: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either had sent anything; neither mixes its chunks with the other's."""

    def write(text: str) -> None:
        with atomic_folder(place / "x.zarr") as made:
            (made / "c").write_text(text)
            (made / "zarr.json").write_text(text)
            if text == "mine":
                write("theirs")

    monkeypatch.setattr(RemotePath, "kind", lambda path: "")
    with pytest.raises(OutputExistsError) as caught:
        write("mine")
    assert caught.value.kept == str(place / "x.1.zarr")
    for name, text in (("x.zarr", b"theirs"), ("x.1.zarr", b"mine")):
        assert [content(place / name / part) for part in ("c", "zarr.json")] == [text, text]


def test_a_large_file_takes_its_name_first(
    place: RemotePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcl.store.clients._LARGEST_PUT", 10)
    client = place.bucket.client
    with atomic_file(place / "x") as file:
        file.write(b"more than ten bytes")
    with pytest.raises(FileExistsError):
        client.put((place / "x").key, Path(__file__), overwrite=False)
    assert content(place / "x") == b"more than ten bytes"


def test_large_files_are_sent_in_parts(place: RemotePath, server: S3Server) -> None:
    large = np.random.default_rng(0).bytes(33 << 20)
    with atomic_file(place / "x") as file:
        file.write(large)
    assert sum(method == "PUT" for method, _ in server.requests) > 3
    assert content(place / "x") == large
