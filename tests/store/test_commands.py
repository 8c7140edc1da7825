"""The commands, with data, models and scores in an S3 store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl.store import default_options
from tests.s3_server import S3Server
from tests.store.conftest import Upload, invoke

Run = Callable[..., Result]


@pytest.fixture
def run(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder of its own, with the options of the server."""
    monkeypatch.chdir(tmp_path)

    def do(name: str, *arguments: str, code: int = 0) -> Result:
        options = [f"--storage-option={k}={v}" for k, v in server.options().items()]
        result = invoke(name, *arguments, *options, code=code)
        assert not default_options()
        return result

    return do


TRAIN = ("--features", "kmers:d=2", "--C", "0.05", "--memory", "1GiB", "--driver", "inline")


@pytest.mark.slow
def test_a_whole_job(
    run: Run, server: S3Server, folder: Path, upload: Upload, tmp_path: Path
) -> None:
    data = upload(folder, "train.zarr")
    out = f"s3://{server.bucket}/out"
    run("train", data, *TRAIN, "--out", f"{out}/m.fcl", "--valid", data)
    run("train", str(folder), *TRAIN, "--out", "local.fcl")
    model = fcl.load_model(fcl.locate(f"{out}/m.fcl", server.options()))
    local = fcl.load_model("local.fcl")
    np.testing.assert_array_equal(model.weights, local.weights)
    # checkpoints of a remote model are in the working folder
    assert os.listdir("m.fcl.checkpoint")
    result = run("train", data, *TRAIN, "--out", f"{out}/m.fcl", code=2)
    assert "exists already" in result.output
    run("train", data, *TRAIN, "--out", f"{out}/m.fcl", "--overwrite", "--checkpoint", "state")
    assert os.listdir("state")
    initial = ("--initial", f"{out}/m.fcl", "--no-checkpoint")
    run("train", data, *TRAIN, "--out", f"{out}/n.fcl", *initial)

    run("predict", f"{out}/m.fcl", data, "--out", f"{out}/scores.npy")
    run("predict", "local.fcl", str(folder), "--out", "scores.npy")
    upload_path = fcl.locate(f"{out}/scores.npy", server.options())
    with upload_path.open("rb") as file:
        assert file.read() == Path("scores.npy").read_bytes()
    run("predict", f"{out}/m.fcl", data, "--out", f"{out}/scores.zarr")
    run("predict", f"{out}/m.fcl", data, "--out", f"{out}/why.tsv", "--explain", "2")

    assert "kmers" in run("inspect", f"{out}/m.fcl").output
    outputs = ("--out", f"{out}/c.fcl", "--json", f"{out}/c.json")
    certified = run("certify", f"{out}/m.fcl", data, *outputs)
    assert "certif" in certified.output or "gap" in certified.output
    with fcl.locate(f"{out}/c.json", server.options()).open("rb") as file:
        assert json.load(file)["own_gap"] < 1e-3
    names = "".join(f"{row.feature}\t{row.weight}\n" for row in model.describe())
    Path("w.tsv").write_text(f"{names}(intercept)\t{model.intercept}\n")
    weights = upload(Path("w.tsv"), "w.tsv")
    run("certify", weights, data, "--features", "kmers:d=2", "--C", "0.05", "--quiet")
    run("report", f"{out}/m.fcl", "--data", data, "--out", f"{out}/report.html")
    run("convert", f"{out}/m.fcl", f"{out}/small.fcl", "--bits", "8")


@pytest.mark.slow
def test_resume(run: Run, server: S3Server, folder: Path, upload: Upload) -> None:
    data, out = upload(folder, "train.zarr"), f"s3://{server.bucket}/m.fcl"
    run("train", data, *TRAIN, "--out", out, "--max-passes", "2")
    before = fcl.load_model(fcl.locate(out, server.options())).certificate
    run("train", "--resume", "m.fcl.checkpoint", "--max-passes", "100")
    after = fcl.load_model(fcl.locate(out, server.options())).certificate
    assert after.gap < before.gap
    (folder / "X" / "c" / "7" / "0").write_bytes((folder / "X" / "c" / "8" / "0").read_bytes())
    upload(folder, "train.zarr")
    result = run("train", "--resume", "m.fcl.checkpoint", "--tol", "1e-6", code=2)
    assert "is of another job" in result.output


@pytest.mark.slow
def test_online_and_stagewise(run: Run, server: S3Server, folder: Path, upload: Upload) -> None:
    data, out = upload(folder, "train.zarr"), f"s3://{server.bucket}/out"
    online = ("--features", "kmers:d=2", "--alpha", "1e-4", "--passes", "1")
    run("online", data, *online, "--out", f"{out}/o.fcl")
    run("online", data, *online, "--out", "o.fcl")
    found = fcl.load_model(fcl.locate(f"{out}/o.fcl", server.options()))
    np.testing.assert_array_equal(found.margins(folder), fcl.load_model("o.fcl").margins(folder))
    assert fcl.locate(f"{out}/o.fcl", server.options()).is_file()


def test_convert_into_a_store(run: Run, server: S3Server, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("pos", "neg"):
        lines = [f">{i}\n{''.join(rng.choice(list('ACGT'), 20))}\n" for i in range(50)]
        (tmp_path / f"{name}.fa").write_text("".join(lines))
    out = f"s3://{server.bucket}/a.zarr"
    run("convert", "pos.fa", "neg.fa", out)
    run("convert", "pos.fa", "neg.fa", "b.zarr")
    data = fcl.open_data(out, storage_options=server.options())
    assert data.fingerprint() == fcl.open_data("b.zarr").fingerprint()


@pytest.mark.slow
def test_a_process_of_its_own(
    server: S3Server, folder: Path, upload: Upload, tmp_path: Path
) -> None:
    """The driver with writers, as users start it, with the endpoint in the environment."""
    data = upload(folder, "train.zarr")
    line = [sys.executable, "-m", "fcl", "train", data, "--features", "kmers:d=2", "--C", "0.05"]
    line += [
        "--memory",
        "1GiB",
        "--driver",
        "processes:writers=2",
        "--out",
        f"s3://{server.bucket}/m.fcl",
    ]
    found = os.environ | {"AWS_ENDPOINT_URL": server.endpoint}
    done = subprocess.run(line, cwd=tmp_path, env=found, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model = fcl.load_model(fcl.locate(f"s3://{server.bucket}/m.fcl", server.options()))
    assert model.fingerprint == fcl.open_data(folder).fingerprint()
