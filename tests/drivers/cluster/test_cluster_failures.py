"""Workers die, leave and join, and cluster or client go: no bit changes, and no work is lost."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from dask_cluster import own_cluster
from worker_faults import Fault

import fcl
from fcl.cli.train import command as fcl_train
from fcl.drivers.cluster import client as connections
from fcl.drivers.cluster import connect, tasks
from fcl.errors import BudgetError, ClusterLost, InputError
from fcl.files.folder import CheckpointFolder
from fcl.run.events import PassDone

from .runs import bits, train

#: A job by rows with a sample of rows, and one by features; the kinds of tasks at which workers die.
BY_ROWS: dict[str, Any] = {"row_view": 600, "C": 1.0, "warn": False, "valid_fraction": 0.2}
BY_FEATURES: dict[str, Any] = {
    "x": "numbers",
    "features": "columns",
    "C": 0.01,
    "warn": False,
    "max_passes": 2,
}
KINDS = [
    ("prepare margins subtract", BY_ROWS),
    ("start_margins block_sums features", BY_ROWS),
    ("residuals tables identity", BY_ROWS),
    ("watched add_group", {**BY_ROWS, "features": "kmers:d=5"}),
    ("scan pick take", BY_ROWS),
    ("join whole price", BY_FEATURES),
]


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, Any]:
    """The bits of the jobs without faults."""
    jobs = {id(job): job for _, job in KINDS}
    return {name: bits(train(folder, **job)) for name, job in jobs.items()}


def arm(client: Any, place: Path, kind: str, times: int, action: int = signal.SIGKILL) -> None:
    """Let workers fail at their next tasks of a kind."""
    place.mkdir(exist_ok=True)
    for k in range(times):
        (place / f"fault-{k}").touch()
    client.register_plugin(Fault(kind, place, action))


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "job"), KINDS, ids=[kinds for kinds, _ in KINDS])
def test_killed_workers(
    kinds: str,
    job: dict[str, Any],
    folder: Path,
    client: Any,
    tmp_path: Path,
    expected: dict[int, Any],
) -> None:
    for kind in kinds.split():
        assert hasattr(tasks, kind)
        arm(client, tmp_path / kind, kind, 1)
    assert bits(train(folder, client=client, **job)) == expected[id(job)]
    # a worker did die for each kind, except that new workers are spared for a while
    assert len(list(tmp_path.glob("*/fault-*"))) <= 1


def in_pass(number: int, act: Callable[[], Any]) -> Callable[[Any], None]:
    """A callback that acts after a pass."""

    def progress(event: Any) -> None:
        if isinstance(event, PassDone) and event.number == number:
            act()

    return progress


@pytest.mark.slow
def test_restarted_and_retired_workers(
    folder: Path, cluster: Any, client: Any, expected: Any
) -> None:
    def restart() -> None:
        client.restart_workers([next(iter(client.nthreads()))])

    def retire() -> None:
        client.retire_workers([next(iter(client.nthreads()))])

    for act in (restart, retire):
        result = train(folder, client=client, progress=in_pass(1, act), **BY_ROWS)
        assert bits(result) == expected[id(BY_ROWS)]
    cluster.scale(0)  # it has not noticed that a worker has retired


@pytest.mark.slow
def test_a_task_that_always_kills(folder: Path, client: Any, tmp_path: Path, expected: Any) -> None:
    """The job ends with a checkpoint, from which any driver continues with the same bits."""
    job = {**BY_ROWS, "checkpoint": str(tmp_path / "checkpoint")}

    def doom() -> None:
        client.run_on_scheduler(_allow_failures, 1)
        arm(client, tmp_path / "faults", "scan", 20)

    with pytest.raises(ClusterLost, match=r"2 workers died in the task fcl_\w+.*memory"):
        train(folder, client=client, progress=in_pass(1, doom), **job)
    for token in (tmp_path / "faults").iterdir():
        token.unlink(missing_ok=True)  # a worker takes it, too
    client.run_on_scheduler(_allow_failures, 3)
    check_resumed(folder, tmp_path / "checkpoint", expected, driver="inline")


def _allow_failures(n: int, dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = n


def check_resumed(folder: Path, place: Path, expected: Any, **driver: Any) -> None:
    """A driver continues from a checkpoint, and ends like a run that nothing disturbed."""
    saved = CheckpointFolder(place).load()
    assert saved.history
    found = bits(train(folder, resume=saved, **driver, **BY_ROWS))
    whole = expected[id(BY_ROWS)]
    assert found[:4] == whole[:4] and found[5:] == whole[5:]


@pytest.mark.slow
def test_closed_client(
    folder: Path, cluster: Any, client: Any, tmp_path: Path, expected: Any
) -> None:
    job = {**BY_ROWS, "checkpoint": str(tmp_path / "checkpoint")}
    other = distributed.Client(cluster, set_as_default=False)
    with pytest.raises(ClusterLost, match=r"client is closed|connection to the scheduler"):
        train(folder, client=other, progress=in_pass(1, other.close), **job)
    check_resumed(folder, tmp_path / "checkpoint", expected, client=client)


@pytest.mark.slow
def test_scheduler_gone(folder: Path, tmp_path: Path) -> None:
    """Within seconds, although tasks wait."""
    job = {**BY_ROWS, "checkpoint": str(tmp_path / "checkpoint")}
    with own_cluster() as own:
        other = distributed.Client(own, set_as_default=False)
        with pytest.raises(ClusterLost, match=r"scheduler|closed"):
            train(folder, client=other, progress=in_pass(1, own.close), **job)
        assert CheckpointFolder(tmp_path / "checkpoint").load().history
        other.close()


@pytest.mark.slow
def test_stopped_worker(folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ANSWER", 2.0)
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(
            ClusterLost, match=rf"1 worker of 3 did not answer within 2 s \({address}"
        ):
            train(folder, client=client, **BY_ROWS)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_all_workers_leave(
    folder: Path,
    cluster: Any,
    client: Any,
    tmp_path: Path,
    expected: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = {**BY_ROWS, "checkpoint": str(tmp_path / "checkpoint")}
    monkeypatch.setattr(connections, "PATIENCE", 1.0)
    with pytest.raises(ClusterLost, match="no worker"):
        train(folder, client=client, progress=in_pass(1, lambda: cluster.scale(0)), **job)
    check_resumed(folder, tmp_path / "checkpoint", expected, driver="inline")


def test_no_workers(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    out = str(tmp_path / "model")
    with own_cluster(0) as empty:
        where = empty.scheduler_address
        line = [str(folder), "--features", "kmers:d=2", "--C", "1", "--out", out]
        line += ["--driver", f"dask:address={where}"]
        answer = CliRunner().invoke(fcl_train, line)
    assert answer.exit_code == 5
    assert "the scheduler has no workers; start some" in answer.output.replace("\n", " ")


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.slow
def test_other_version(folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {**connections._versions(), "numpy": "1.0"}
    monkeypatch.setattr(connections, "_versions", lambda: mine)
    with pytest.raises(InputError, match=r"worker tcp://\S+ has numpy \S+, the client has 1\.0"):
        train(folder, client=client)
    # a worker that joins later is met by a task
    link = connections.Cluster(client)
    with pytest.raises(InputError, match=r"worker tcp://\S+ has numpy"):
        link.gather([link.submit(abs, -1)])
    link.release()


@pytest.mark.slow
def test_data_that_workers_do_not_see(
    folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = tasks.RowSource.of(fcl.open_data(folder))
    for change, message in (
        ({"path": str(tmp_path / "nothing")}, "sees no .*nothing"),
        ({"fingerprint": "0"}, "sees other data"),
    ):
        changed = dataclasses.replace(source, **change)
        monkeypatch.setattr(tasks.RowSource, "of", lambda data, changed=changed: changed)
        with pytest.raises(InputError, match=rf"worker tcp://\S+: {message}"):
            train(folder, client=client)


def test_too_little_memory(folder: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    monkeypatch.setattr(connections, "MEMORY_SHARE", 1e-4)
    with pytest.raises(BudgetError, match=r"expected workers with .* of memory together"):
        train(folder, client=client)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"driver": "dask"}, "either an address .* or a client, got neither"),
        ({"dask": "local:0"}, "expected tcp://HOST:8786, .* with N from 1"),
        ({"dask": "nowhere"}, "there is no such file"),
        ({"dask": "local:1", "dask_tls": "a,b"}, "expected three files"),
        ({"dask": "tcp://h:1", "dask_tls": f"{__file__}," * 2 + __file__}, "in PEM format"),
        ({"dask": __file__}, "is not a scheduler file"),
        ({"dask": "http://127.0.0.1:1"}, "expected tcp://HOST:8786"),
        ({"dask": "tcp://127.0.0.1:9", "monkey": True}, "no scheduler answers"),
        ({"client": 3}, "expected a distributed.Client, got int"),
        (
            {"dask": "local:1", "standardize": True, "x": "numbers", "features": "columns"},
            "standard",
        ),
        (
            {"dask": "local:1", "y": "label3", "loss": "softmax"},
            "expected one output with the driver dask.*, got 3",
        ),
    ],
)
def test_refused(
    given: dict[str, Any], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given.get("y"):
        np.save(folder / "label3.npy", np.arange(2100) % 3)
    if given.pop("monkey", False):
        monkeypatch.setattr(connect, "CONNECT", 1.0)
    with pytest.raises(InputError, match=message):
        train(folder, **given)


def test_arrays_in_memory_are_refused() -> None:
    data = fcl.open_data(np.zeros((64, 8), np.uint8), y=np.arange(64) % 2)
    with pytest.raises(InputError, match="rows in files that all workers see"):
        fcl.train(data, "kmers:d=2", C=1.0, driver="dask:address=local:1")
