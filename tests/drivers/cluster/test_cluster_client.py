"""Connections: addresses, certificates, plans, the command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import distributed
import pytest
from click.testing import CliRunner
from dask_cluster import own_cluster

import fcl
from fcl import working_folder
from fcl.cli.train import command
from fcl.drivers.cluster.connect import Tls, connected
from fcl.drivers.train import plan_training
from fcl.errors import InputError
from tests import by_name

from .runs import bits, train


def certificates(place: Path) -> Tls:
    """A self-signed certificate, which is its own authority, and its key."""
    cert, key = place / "cert.pem", place / "key.pem"
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    made = (
        f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    )
    subprocess.run([openssl, *made.split()], check=True, capture_output=True)
    return Tls(str(cert), str(cert), str(key))


@pytest.mark.slow
def test_encrypted_connection(folder: Path, tmp_path: Path) -> None:
    tls = certificates(tmp_path)
    security = distributed.security.Security(
        tls_ca_file=tls.ca,
        tls_scheduler_cert=tls.cert,
        tls_scheduler_key=tls.key,
        tls_worker_cert=tls.cert,
        tls_worker_key=tls.key,
        tls_client_cert=tls.cert,
        tls_client_key=tls.key,
        require_encryption=True,
    )
    with own_cluster(protocol="tls", security=security) as own:
        address = own.scheduler_address
        assert address.startswith("tls://")
        files = f"{tls.ca},{tls.cert},{tls.key}"
        job: dict[str, Any] = {"max_passes": 1, "warn": False}
        result = train(folder, dask=address, dask_tls=files, **job)
        assert bits(result) == bits(train(folder, **job))
        with pytest.raises(InputError, match="no scheduler answers"), connected(address):
            pass


@pytest.mark.slow
def test_command(folder: Path, tmp_path: Path) -> None:
    """From a scheduler file, with a log; the checkpoint then continues in one process."""
    out, log = tmp_path / "model.fcl", tmp_path / "log.json"
    with own_cluster() as own:
        place = tmp_path / "scheduler.json"
        place.write_text(json.dumps({"address": own.scheduler_address}))
        line = f"{folder} --features kmers:d=3 --C 0.5 --tol 1e-2 --block-rows 64 --quiet"
        given = [
            *line.split(),
            "--driver",
            f"dask:address={place}",
            "--out",
            str(out),
            "--log-json",
            str(log),
        ]
        answer = CliRunner().invoke(command, given)
        assert answer.exit_code == 0, answer.output
    events = [json.loads(text) for text in log.read_text().splitlines()]
    (first, *_) = [event for event in events if event["event"] == "Workers"]
    assert (first["workers"], first["threads"], first["shards"]) == (1, 1, 3)
    found = fcl.load_model(out)
    here = train(folder, tol=1e-2, max_passes=None).model
    assert found.weights.tobytes() == here.weights.tobytes()
    again = ["--resume", f"{out}.checkpoint", "--tol", "1e-3", "--quiet"]
    answer = CliRunner().invoke(command, again)
    assert answer.exit_code == 2 and "name another driver" in answer.output
    answer = CliRunner().invoke(command, [*again, "--driver", "inline"])
    assert answer.exit_code == 0, answer.output
    assert fcl.load_model(out).certificate.gap <= 1e-3


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        ("inline:address=local:1", "expected no options, got 'address=local:1'"),
        ("dask:writers=2", "expected address=VALUE, tls=VALUE"),
    ],
)
def test_commands_that_are_refused(driver: str, message: str, folder: Path) -> None:
    line = f"{folder} --features kmers:d=3 --C 0.5 --driver {driver} --out m.fcl"
    answer = CliRunner().invoke(command, line.split())
    assert answer.exit_code == 2 and message in answer.output.replace("\n", " ")


def test_plan_without_the_rows(folder: Path) -> None:
    """The budget of the client covers neither vectors nor rows that are on the workers."""
    data = fcl.open_data(folder)
    given: dict[str, Any] = {"C": 1.0, "row_view": 256, "block_rows": 64}
    here = dict(plan_training(data, "kmers:d=3", **given).parts)
    there = dict(by_name.plan_training(data, "kmers:d=3", dask="local:1", **given).parts)
    assert here["margins and residuals"] == 40 * 2100
    assert there["margins and residuals"] == there["prepared rows"] == 0


@pytest.mark.slow
def test_modules_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this machine get those that the user named, and no others; other workers get none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_here.py").write_text("import helper_here\nVALUE = helper_here.VALUE\n")
    (tmp_path / "helper_here.py").write_text("VALUE = 7\n")
    for name in (
        "multiprocessing",
        "org",
        "yaml",
        "msgpack",
    ):  # workers import these at their start
        (tmp_path / f"{name}.py").write_text("open('RAN', 'w')\n")
    (tmp_path / "not_named.py").write_text("")
    with working_folder.protected():
        assert working_folder.import_module("named_here").VALUE == 7
        with pytest.raises(InputError, match=r"named_here is in the working folder.*PYTHONPATH"):
            connected("tcp://127.0.0.1:1").__enter__()
        with connected("local:1") as cluster:
            asked = ["__import__('named_here').VALUE"]
            asked += [
                f"__import__('importlib.util').util.find_spec({name!r})"
                for name in ("not_named", "org")
            ]
            found = cluster.gather(cluster.submit_all(eval, [(text,) for text in asked]))
    assert found == [7, None, None] and not (tmp_path / "RAN").exists()
    for name in ("named_here", "working_folder", "working_folder.helper_here"):
        del sys.modules[name]
