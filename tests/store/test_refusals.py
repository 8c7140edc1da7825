"""What a store does not have, does not allow, or must not get: one message each."""

from __future__ import annotations

import builtins
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import fcl
from fcl.cli.convert import command
from fcl.files.atomic import atomic_file, check_output
from fcl.store import clients
from tests.s3_server import S3Server
from tests.store.conftest import Upload, invoke

JOB = {"features": "kmers:d=2", "C": 0.05, "memory": "1GiB"}
TRAIN = ("--features", "kmers:d=2", "--C", "0.05", "--memory", "1GiB", "--driver", "inline")
DENIED = "access is denied; give credentials in the environment"


@pytest.fixture
def fill(url: str, server: S3Server, folder: Path) -> Callable[[str], str]:
    """Put the URLs and the folder of the test into a text."""
    names = {"URL": url, "BUCKET": f"s3://{server.bucket}", "FOLDER": str(folder)}

    def do(text: str) -> str:
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    return do


#: source, name of X, and the message of Python and of the command
SOURCES = {
    "store": ("BUCKET/in/test.zarr", "X", r"test\.zarr does not exist; check bucket, path"),
    "bucket": ("s3://nowhere/a.zarr", "X", "there is no such bucket"),
    "group": ("URL::/fold", "X", "no Zarr group at /fold"),
    "no bucket": ("s3:///a.zarr", "X", "no bucket or host"),
    "query": ("URL?versionId=1", "X", "without [?] and #"),
    "array": ("URL", "Z", 'no array "Z"; it holds "X", "y"'),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SOURCES)
def test_sources(name: str, fill: Callable[[str], str], server: S3Server) -> None:
    source, x, message = SOURCES[name]
    with pytest.raises(fcl.InputError, match=message) as caught:
        fcl.open_data(fill(source), x=x, storage_options=server.options())
    options = [f"--storage-option={key}={value}" for key, value in server.options().items()]
    result = invoke("train", fill(source), "--x", x, *TRAIN, "--out=m.fcl", *options, code=2)
    assert str(caught.value) in result.stderr


OPTIONS: dict[str, tuple[str, Any, str]] = {
    "unknown": ("URL", {"colour": "red"}, "cannot be opened: .*'colour' is not valid"),
    "no requests": ("URL", {"requests": 0}, "requests must be a whole number from 1 to 256, got 0"),
    "list": ("URL", {"endpoint": ["a"]}, "expected text, numbers and booleans by name"),
    "text": ("URL", "anon", "expected a dict"),
    "local path": ("FOLDER", {"anon": True}, "the local path"),
    "scheme": ("nosuch://a/b.zarr", None, "nosuch://a: fsspec cannot open it"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str, fill: Callable[[str], str]) -> None:
    source, options, message = OPTIONS[name]
    with pytest.raises(fcl.InputError, match=message):
        fcl.open_data(fill(source), storage_options=options)


def test_access_is_denied(server: S3Server, url: str) -> None:
    server.fail("403", "", 1000)
    with pytest.raises(fcl.InputError, match=DENIED):
        fcl.open_data(url, storage_options=server.options())


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_MOST_RETRIES", 1)
    options = {"endpoint": "http://127.0.0.1:9", "region": "x", "anon": True}
    with pytest.raises(fcl.StoreError, match=r"s3://no/a.zarr: the store failed"):
        fcl.open_data("s3://no/a.zarr", storage_options=options)


@pytest.mark.parametrize(
    ("name", "url", "message"),
    [
        ("obstore", "gs://a/b.zarr", r"gs:// needs obstore .*pip install 'fcl\[cloud\]'"),
        ("fsspec", "nosuch://a/b.zarr", "obstore does not know nosuch://.*other schemes need fsspec"),
    ],
)  # fmt: skip
def test_missing_packages(
    name: str, url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(module: str, *args: Any, **kwargs: Any) -> Any:
        if module.partition(".")[0] == name:
            raise ImportError(f"No module named {name!r}")
        return real(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(fcl.InputError, match=message):
        fcl.open_data(url, storage_options={"requests": 3})


#: a whole command, and its message
LINES = {
    "model in the data": ("train URL --out=URL/m.fcl", "would replace data"),
    "checkpoint": ("train URL --out=OUT --checkpoint=BUCKET/c", "checkpoints are kept on a local disk"),
    "log": ("train URL --out=OUT --log-json=BUCKET/l", "logs are kept on a local disk"),
    "scratch": ("train URL --out=OUT --scratch=BUCKET/l", "expected a writable folder"),
    "option without a value": ("train URL --out=OUT --storage-option=anon", "expected KEY=VALUE"),
    "secret": ("train URL --out=OUT --storage-option=secret_access_key=x", "give it in the environment"),
    "unknown option": ("train URL --out=OUT --storage-option=color=x", "'color' is not valid for"),
    "no such bucket": ("train URL --out=s3://nowhere/m.fcl", "there is no such bucket"),
    "model that is not there": ("predict m.fcl BUCKET/a.fa --out=s.tsv", "m.fcl: no such model file"),
    "file to convert": ("convert BUCKET/a.fa a.zarr", "expected a local path here, got a URL"),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_lines(
    case: str, fill: Callable[[str], str], server: S3Server, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    line, message = LINES[case]
    name, *arguments = fill(line.replace("OUT", "BUCKET/m.fcl")).split()
    options = [f"--storage-option={key}={value}" for key, value in server.options().items()]
    more = TRAIN if name == "train" else ()
    result = invoke(name, *arguments, *more, *options, code=2)
    assert re.search(message, " ".join(result.output.split())), result.output


def test_other_formats(
    tmp_path: Path, upload: Upload, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.fa").write_text(">a\nACGT\n")
    (tmp_path / "a.bin").write_bytes(b"\0" * 50)
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.open_group(store, mode="a").create_array("X", data=np.ones((3, 2)))
    with h5py.File(tmp_path / "my data.h5", "w") as file:
        file["X"] = np.random.default_rng(0).integers(0, 4, (50, 12)).astype(np.uint8)
        file["y"] = np.arange(50) % 2
    for name, words in (
        ("a.fa", r"a FASTA file; copy it to this machine, and convert it first: fcl convert a.fa"),
        ("a.bin", "in no format that fcl reads from a store"),
        ("a.zip", "copy it to this machine, or unzip it in the store"),
        ("my data.h5", "copy it to this machine, and convert it: "),
    ):
        found = upload(tmp_path / name, name)
        with pytest.raises(fcl.InputError, match=words) as raised:
            fcl.open_data(found, storage_options=server.options())
    _, _, line = str(raised.value).partition("convert it: fcl convert ")
    assert line == "'my data.h5' 'my data.zarr'"
    monkeypatch.chdir(tmp_path)
    command.main(shlex.split(line), standalone_mode=False)  # the line as it was given
    converted = upload(tmp_path / "my data.zarr", "h5.zarr")
    data = fcl.open_data(converted, storage_options=server.options())
    assert data.fingerprint() == fcl.open_data(tmp_path / "my data.h5").fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda whole: b"no zip", "not a model file"),
        (lambda whole: whole[:-100], "not a model file"),
        (lambda whole: whole.replace(b"fingerprint", b"fingerpront"), "damaged|header"),
    ],
)
def test_models(
    change: Any, message: str, folder: Path, upload: Upload, tmp_path: Path, server: S3Server
) -> None:
    fcl.train(fcl.open_data(folder), **JOB).model.save(tmp_path / "m.fcl")
    (tmp_path / "x.fcl").write_bytes(change((tmp_path / "m.fcl").read_bytes()))
    place = fcl.locate(upload(tmp_path / "x.fcl", "x.fcl"), server.options())
    with pytest.raises(fcl.InputError, match=message):
        fcl.load_model(place)


@pytest.mark.slow
def test_models_that_are_not_there(folder: Path, upload: Upload, server: S3Server) -> None:
    with pytest.raises(fcl.InputError, match="no such model file"):
        fcl.load_model(f"s3://{server.bucket}/none.fcl", storage_options=server.options())
    place = fcl.locate(upload(folder / "zarr.json", "x.fcl"), server.options())
    server.fail("503", "x.fcl", 1000)
    with pytest.raises(fcl.StoreError, match=r"x.fcl: the store failed"):
        fcl.load_model(place)


#: an output beside the file a/b, whether it is a folder, whether it may be replaced, and the message
OUTPUTS = {
    "folder for a file": ("BUCKET/out/a", False, False, "is a folder"),
    "folder of no store": ("BUCKET/out/a", True, True, "other than a Zarr store"),
    "file for a folder": ("BUCKET/out/a/b", True, False, "exists already"),
    "file": ("BUCKET/out/a/b", False, False, "exists already"),
    "bucket": ("BUCKET", False, False, "got a bucket"),
    "no such bucket": ("s3://nowhere/x", False, False, "there is no such bucket"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name: str, server: S3Server) -> None:
    place, is_folder, overwrite, message = OUTPUTS[name]
    bucket, options = f"s3://{server.bucket}", server.options()
    with atomic_file(fcl.locate(f"{bucket}/out/a/b", options)) as file:
        file.write(b"x")
    path = fcl.locate(place.replace("BUCKET", bucket), options)
    with pytest.raises(fcl.InputError, match=message):
        check_output(path, overwrite=overwrite, folder=is_folder)


def test_what_stays_on_the_local_disk(server: S3Server, folder: Path) -> None:
    data, place = fcl.open_data(folder), fcl.locate(f"s3://{server.bucket}/out", server.options())
    with pytest.raises(fcl.InputError, match="checkpoints are kept on a local disk"):
        fcl.train(data, **JOB, checkpoint=place)
    with pytest.raises(fcl.InputError, match="the points of a path are kept on a local disk"):
        fcl.train_path(data, "kmers:d=2", points=2, memory="1GiB", folder=place)
