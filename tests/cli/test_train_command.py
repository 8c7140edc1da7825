"""fcl train with a fake trainer: options, errors, outputs, exit codes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl.errors import BudgetError, CheckpointError, InputError, RepeatedDeaths
from fcl.model import load_model
from fcl.objective import LOSSES
from tests.cli.conftest import Job, ok

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., Result]


def test_a_run(data: Path, tmp_path: Path, driver: Any, run: Run) -> None:
    out, log = tmp_path / "o.fcl", tmp_path / "log.jsonl"
    result = ok(run(
        "train", data, "--features", "kmers:d=3,origin=5", "--C", 0.1, "--weights", "s",
        "--max-time", "2h", "--memory", "1GiB", "--valid", data, "--block-rows", 256,
        "--seed", 4, "--scratch", tmp_path, "--out", out, "--log-json", log,
    ))  # fmt: skip
    call = driver.calls[-1]
    assert call["data"].n_rows == 600 and call["data"].weights is not None
    assert call["valid"].n_rows == 600 and call["features"].d == 3
    np.testing.assert_array_equal(call["valid"].weights, np.load(data / "s.npy"))
    wanted = {
        "C": 0.1, "alpha": None, "loss": "logistic", "intercept": True, "tol": 1e-3,
        "memory": 1 << 30, "max_time": 7200.0, "max_passes": None, "seed": 4, "block_rows": 256,
        "scratch": str(tmp_path), "driver": "auto", "writers": None, "resume": None,
        "checkpoint": f"{out}.checkpoint", "checkpoint_every": 300.0, "share_cores": True,
        "shared_files": None, "row_view": "auto",
    }  # fmt: skip
    assert {name: call[name] for name in wanted} == wanted
    assert call["valid_fraction"] is None
    assert load_model(out).n_active == 3

    lines = result.stderr.splitlines()
    assert lines[0] == f"fcl train: reading {data}"
    passes = [line for line in lines if line.startswith("pass ")]
    assert len(passes) == 3
    for word in ("objective 12.5", "bound 12.4", "gap 0.008", "violation 1.01", "active 3",
                 "cached 20", "priced 1,000", "cache 0%", "rows/s 1,000,000", "memory 256 MiB",
                 "left 5.00 s"):  # fmt: skip
        assert word in passes[0], word
    assert "AUPRC" not in passes[0]
    assert "AUPRC 0.7500" in passes[1] and "AUPRC 0.7500" in passes[2]

    for text in ("why it stopped", "12.5", "0.008 relative, over all features",
                 "3 of 1,000 priced features", "AUPRC 0.7500 over 600 rows", "pass 1.50 s",
                 "peak 256 MiB of 1 GiB", str(out), "strongest features"):  # fmt: skip
        assert text in result.stdout, text

    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["event"] for record in records] == [
        "Options", "Started", "Prepared", "PassDone", "PassDone", "PassDone", "Stopped",
    ]  # fmt: skip
    assert records[0]["options"]["memory"] == 1 << 30 and records[0]["options"]["seed"] == 4
    assert records[1]["plan"]["lines"] == {"column cache": 1 << 20, "interpreter": 2 << 20}
    assert records[4]["validation"] == {"auprc": 0.75, "n_rows": 600}
    assert records[-1]["certificate"]["objective"] == 12.5


def test_options_of_the_penalty(job: Job, driver: Any, run: Run) -> None:
    assert run(*job).exit_code == 0
    call = driver.calls[-1]
    assert call["l1_ratio"] == 1.0 and call["class_weight"] is None
    assert call["standardize"] is False and run(*job, "--standardize", "--overwrite")
    assert driver.calls[-1]["standardize"] is driver.calls[-1]["command"]["standardize"] is True
    for text, weights in (
        ("balanced", "balanced"),
        ("0=1,1=20", {"0": 1.0, "1": 20.0}),
        ("a=b=0.5", {"a=b": 0.5}),
    ):
        ok(run(*job, "--overwrite", "--penalty", "elastic", "--class-weight", text))
        call = driver.calls[-1]
        assert call["l1_ratio"] == 0.5 and call["class_weight"] == weights
        assert call["command"]["l1_ratio"] == 0.5 and call["command"]["class_weight"] == weights


def test_validation_rows_without_weights_count_equally(
    data: Path, tmp_path: Path, driver: Any, run: Run
) -> None:
    other = tmp_path / "other"
    shutil.copytree(data, other)
    (other / "s.npy").unlink()
    options = ("--features", "kmers:d=3", "--C", 0.1, "--weights", "s", "--out", tmp_path / "v.fcl")
    result = run("train", data, *options, "--valid", other)
    assert result.exit_code == 0 and driver.calls[-1]["valid"].weights is None
    assert f'{other}: no array "s" of 600 weights, so that all rows count equally' in result.stderr


def test_options_of_the_driver(job: Job, tmp_path: Path, driver: Any, run: Run) -> None:
    result = ok(run(
        *job, "--checkpoint", tmp_path / "c", "--checkpoint-every", "90s",
        "--driver", f"processes:writers=3,share_cores=false,shared_files={tmp_path}",
    ))  # fmt: skip
    call = driver.calls[-1]
    assert call["writers"] == 3 and call["share_cores"] is False
    assert call["checkpoint"] == str(tmp_path / "c") and call["checkpoint_every"] == 90.0
    assert call["shared_files"] == str(tmp_path)
    assert call["should_checkpoint"]() is False and call["should_stop"]() is False
    assert f"resume with: fcl train --resume {tmp_path / 'c'}" in result.stdout

    result = ok(run(*job, "--no-checkpoint", "--driver", "inline", "--overwrite"))
    assert driver.calls[-1]["checkpoint"] is None and driver.calls[-1]["driver"] == "inline"
    assert "--resume" not in result.stdout


def test_options_of_benchmarks_are_not_shown(run: Run) -> None:
    text = run("train", "--help").stdout
    assert "share-cores" not in text and "--shared-files" not in text
    assert "--driver" in text and "--checkpoint-every" in text and "SIGUSR1" in text


def test_an_earlier_checkpoint_is_not_lost(job: Job, tmp_path: Path, driver: Any, run: Run) -> None:
    folder = tmp_path / "o.fcl.checkpoint"
    folder.mkdir()
    (folder / "checkpoint-3.fcl-ckpt").write_text("hours of work")
    result = run(*job)
    assert result.exit_code == 2 and driver.calls == []
    assert f"holds the checkpoint of an earlier job; resume it (--resume {folder})" in (
        result.stderr
    )
    for more in (["--overwrite"], ["--no-checkpoint", "--overwrite"], ["--plan"]):
        assert run(*job, *more).exit_code == 0
    assert (folder / "checkpoint-3.fcl-ckpt").read_text() == "hours of work"  # it is kept


def test_the_checkpoint_of_a_job_that_converged_gives_way(
    job: Job, tmp_path: Path, run: Run
) -> None:
    """The same command again after its model was deleted; with the real driver."""
    out = tmp_path / "o.fcl"
    folder = tmp_path / "o.fcl.checkpoint"
    own = (*job, "--features", "kmers:d=1", "--C", 0.1, "--driver", "inline")
    stopped = run(*own, "--max-passes", 1, "--tol", 1e-9)
    assert stopped.exit_code == 0 and "stopped early" in stopped.stderr
    out.unlink()
    refused = run(*own)
    assert refused.exit_code == 2 and "start over (--overwrite)" in refused.stderr
    assert run("train", "--resume", folder, "--tol", 1e-3, "--max-passes", 50).exit_code == 0
    before = {path.name: path.read_bytes() for path in folder.glob("*.fcl-ckpt")}
    assert run(*own).exit_code == 2  # the model exists already
    out.unlink()
    assert run(*own, "--alpha", 3).exit_code == 2  # a wrong command removes no checkpoint
    assert {path.name: path.read_bytes() for path in folder.glob("*.fcl-ckpt")} == before
    again = ok(run(*own))
    assert f"{folder}: the job there has reached its tolerance" in again.stderr
    assert f"fcl train --resume {folder} --tol SMALLER" in again.stderr
    assert not before.keys() & {path.name for path in folder.glob("*.fcl-ckpt")}
    out.unlink()
    quiet = run(*own, "--quiet", "--max-passes", 1, "--tol", 1e-9)
    assert quiet.stderr.count("\n") == 1 and "stopped early" in quiet.stderr
    out.unlink()
    assert run(*own).exit_code == 2  # the job there has not converged


def test_quiet_and_verbose(job: Job, driver: Any, run: Run) -> None:
    assert run(*job, "--quiet").output == ""
    result = run(*job, "--overwrite", "--verbose")
    assert json.loads(result.stderr.splitlines()[0])["C"] == 1.0


@pytest.mark.parametrize(("reason", "code"), [("max-time", 0), ("max-passes", 0), ("stalled", 3)])
def test_early_stop_warns(
    job: Job, tmp_path: Path, driver: Any, run: Run, reason: str, code: int
) -> None:
    driver.reason = reason
    out = tmp_path / "o.fcl"
    result = run(*job, "--quiet")
    assert result.exit_code == code and out.exists()
    assert result.stderr.count("\n") == 1
    assert (
        f"warning: stopped early ({reason}) with gap 0.008 where 0.001 was requested"
        in result.stderr
    )
    assert ("--tol" if reason == "stalled" else f"--{reason}") in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BudgetError("memory: 1 MiB is too small"), 2, "memory: 1 MiB is too small"),
        (OSError(28, "No space left on device", "scratch"), 1, "scratch: No space left on device"),
        (MemoryError("4 GiB"), 1, "out of memory"),
        (RepeatedDeaths("writer 1 was killed by signal 9"), 5, "writer 1 was killed by signal 9"),
        (CheckpointError("c: could not be written"), 6, "c: could not be written"),
    ],
    ids=["memory", "disk", "machine", "deaths", "checkpoint"],
)
def test_errors_of_the_trainer_leave_nothing(
    job: Job,
    tmp_path: Path,
    driver: Any,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("fcl.drivers.train.run_training", fail)
    before = sorted(tmp_path.rglob("*"))
    result = run(
        *job,
        "--log-json", tmp_path / "log",
    )  # fmt: skip
    assert result.exit_code == code
    last = result.stderr.splitlines()[-1]
    assert last.startswith("fcl train: error: ") and message in last
    assert sorted(tmp_path.rglob("*")) == before


def test_repeated_deaths_leave_a_checkpoint(
    job: Job, tmp_path: Path, driver: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, checkpoint: str, **__: Any) -> None:
        Path(checkpoint).mkdir()
        (Path(checkpoint) / "checkpoint-1.fcl-ckpt").touch()
        raise RepeatedDeaths("the trainer died three times")

    monkeypatch.setattr("fcl.drivers.train.run_training", fail)
    out = tmp_path / "o.fcl"
    result = run(*job)
    assert result.exit_code == 5 and not out.exists()
    assert f"resume with: fcl train --resume {out}.checkpoint" in result.stderr


@pytest.mark.parametrize("reason", ["tolerance", "max-time"])
def test_the_model_is_written_though_the_last_checkpoint_is_not(
    job: Job, tmp_path: Path, driver: Any, run: Run, reason: str
) -> None:
    driver.reason, driver.checkpoint_failed = reason, True
    out = tmp_path / "o.fcl"
    result = run(*job)
    assert result.exit_code == 6 and load_model(out).n_active == 3
    assert "error: the last checkpoint could not be written" in result.stderr
    assert "--resume" not in result.stdout


def test_a_bug_keeps_its_traceback(
    job: Job, driver: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("fcl.drivers.train.run_training", bug)
    result = run(*job)
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_model_that_cannot_be_written_is_rescued(
    job: Job, tmp_path: Path, driver: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o.fcl"
    (tmp_path / "rescue").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "rescue"))
    driver.before_end = lambda arguments: out.mkdir()
    result = run(*job)
    assert result.exit_code == 1
    assert "the model could not be written" in result.stderr
    (rescued,) = (tmp_path / "rescue").rglob("o.fcl")
    assert str(rescued) in result.stderr and str(rescued) in result.stdout
    assert load_model(rescued).n_active == 3


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_waited_for(
    job: Job, tmp_path: Path, driver: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room again at the third try."""
    tries: list[float] = []
    fsync = os.fsync

    def filling(descriptor: int) -> None:
        tries.append(0.0)
        full_disk() if len(tries) <= 3 else fsync(descriptor)

    monkeypatch.setattr("fcl.files.atomic._TRY_EVERY", 0.0)
    driver.before_end = lambda arguments: monkeypatch.setattr(os, "fsync", filling)
    out = tmp_path / "o.fcl"
    result = ok(run(*job))
    words = "No space left on device: make room; retrying for 60 s"
    assert result.stderr.count(words) == 1 and len(tries) > 3
    assert load_model(out).n_active == 3
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_no_place_for_the_model(
    job: Job, tmp_path: Path, driver: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left anywhere, and the message says where the weights are."""
    rescue = tmp_path / "rescue"
    rescue.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(rescue))
    monkeypatch.setenv("HOME", str(rescue))
    monkeypatch.chdir(rescue)
    monkeypatch.setattr("fcl.files.atomic._TRY_EVERY", 0.0)
    driver.before_end = lambda arguments: monkeypatch.setattr(os, "fsync", full_disk)
    out = tmp_path / "o.fcl"
    result = run(*job, "--disk-wait", "1s")
    assert result.exit_code == 1
    assert f"fcl train --resume {out}.checkpoint --out FILE" in result.stderr
    assert list(rescue.iterdir()) == [] and not out.exists()


def test_a_log_on_a_full_disk_does_not_lose_the_model(
    job: Job, data: Path, tmp_path: Path, driver: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unwritten data stay in the buffer of the file, and closing the file tries to write them again."""
    full = open("/dev/full", "w")  # noqa: SIM115  (the log closes it)
    monkeypatch.setattr("fcl.cli.progress.open", lambda *_, **__: full, raising=False)
    out = tmp_path / "o.fcl"
    result = run(*job, "--log-json", tmp_path / "l")
    assert result.exit_code == 0 and out.exists()
    assert result.stderr.count("No space left on device; the log ends here") == 1


def test_a_log_that_fails_does_not_end_the_run(
    job: Job, tmp_path: Path, driver: Any, run: Run
) -> None:
    log = tmp_path / "gone" / "log"
    log.parent.mkdir()
    original = driver.train

    def train(*arguments: Any, **named: Any) -> Any:
        os.rmdir(log.parent)
        return original(*arguments, **named)

    import fcl.drivers.train

    fcl.drivers.train.run_training = train  # in the fake module, which the fixture removes
    out = tmp_path / "o.fcl"
    result = run(*job, "--log-json", log)
    assert result.exit_code == 0 and out.exists()
    assert result.stderr.count("the log ends here") == 1


def test_from_python_exceptions_pass(tmp_path: Path, driver: Any) -> None:
    from fcl.cli.train import command

    arguments = ["nowhere", "--features", "kmers:d=3", "--C", "1", "--out", str(tmp_path / "o")]
    with pytest.raises(InputError, match="nowhere does not exist"):
        command.main(arguments, standalone_mode=False)


def test_help_and_pages_name_all_losses() -> None:
    from fcl.cli.train import command

    (loss,) = [param for param in command.params if param.name == "loss"]
    reference = ROOT / "docs" / "reference"
    pages = [reference / "losses.md", reference / "model_file.md"]
    texts = [loss.to_info_dict()["help"], fcl.train.__doc__, *(p.read_text() for p in pages)]
    for name, kind in LOSSES.items():
        estimator = fcl.FCLClassifier if kind.classifies else fcl.FCLRegressor
        for text in (*texts, estimator.__doc__):
            assert name in str(text)
