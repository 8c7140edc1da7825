"""The folder of checkpoints: whole or absent, the last two, the lock, what may change."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import resource
import subprocess
import sys
import zipfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pytest
from checkpoints import set_header, state

from fcl.errors import CheckpointError, InputError
from fcl.files.checkpoint import compared_options
from fcl.files.folder import Checkpoint, CheckpointFolder
from fcl.files.same_job import JobFacts
from tests.model.conftest import make_checkpoint


def files(folder: CheckpointFolder) -> list[str]:
    return sorted(os.listdir(folder.path))


def contents(folder: CheckpointFolder) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.path.iterdir() if p.name != "lock"}


def save(folder: CheckpointFolder, *elapsed: float) -> Path:
    """Save a checkpoint for each time; returns the file of the last one."""
    return [folder.save(make_checkpoint(elapsed=each)) for each in elapsed][-1]


# -- round trip


def test_round_trip(folder: CheckpointFolder) -> None:
    saved = make_checkpoint()
    assert folder.save(saved).name == "checkpoint-1.fcl-ckpt"
    again = folder.load()
    assert again.number == 1
    for field in fields(Checkpoint):
        if field.name not in ("number", "arrays", "block_checksums"):
            assert getattr(again, field.name) == getattr(saved, field.name), field.name
    assert np.array_equal(again.block_checksums, saved.block_checksums)
    assert again.arrays.keys() == saved.arrays.keys()
    for name, array in saved.arrays.items():
        assert again.arrays[name].dtype == array.dtype and again.arrays[name].shape == array.shape
        assert again.arrays[name].tobytes() == array.tobytes()
        assert again.arrays[name].flags.writeable


def test_numpy_scalars_and_other_layouts(folder: CheckpointFolder) -> None:
    arrays = {"cached": np.arange(9)[::3], "seen": np.ones(3, bool)}
    arrays |= {"ids": np.arange(3, dtype=">i4"), "weights": np.ones(3, np.float32)}
    folder.save(make_checkpoint(arrays=arrays, state=state(idle=np.int64(2), gap=np.float64(0.1))))
    again = folder.load()
    assert again.state == state(idle=2, gap=0.1)
    for name, array in arrays.items():
        assert np.array_equal(again.arrays[name], array)
    assert again.arrays["ids"].dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": state(beta=object())}, "a header cannot hold object"),
        ({"state": state(mu=0.5)}, "undeclared in the header.json of a checkpoint: state.mu"),
        ({"state": state(sharpness=0.0)}, "state.sharpness: expected a finite number"),
        ({"arrays": checkpoints.arrays(more=np.zeros(1))}, "undeclared arrays of a checkpoint: more"),
        ({"arrays": checkpoints.arrays(ids=np.array([object()]))}, "Cannot cast .*'O'"),
        ({"arrays": checkpoints.arrays(ids=np.zeros(3))}, "Cannot cast .*'float64'"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_a_bug(
    folder: CheckpointFolder, changes: dict[str, Any], message: str
) -> None:
    folder.save(make_checkpoint())
    before = contents(folder)
    with pytest.raises((TypeError, ValueError), match=message):
        folder.save(make_checkpoint(**changes))
    assert contents(folder) == before


def test_the_page_names_every_key(folder: CheckpointFolder) -> None:
    with zipfile.ZipFile(folder.save(make_checkpoint())) as archive:
        header = json.loads(archive.read("header.json"))
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    page = (Path(__file__).parents[2] / "docs/reference/checkpoint.md").read_text()
    assert all(f"`{key}`" in page for key in header)


# -- the last two


def test_the_last_two_are_kept(folder: CheckpointFolder) -> None:
    save(folder, 0.0, 1.0, 2.0, 3.0, 4.0)
    assert files(folder) == ["checkpoint-4.fcl-ckpt", "checkpoint-5.fcl-ckpt", "lock"]
    assert folder.load().elapsed == 4.0


@pytest.mark.parametrize(
    ("number", "after"), [("9", 10), ("9223372036854775807", 1), ("001", 1), ("0", 1)]
)
def test_numbers_are_those_that_jobs_give(
    folder: CheckpointFolder, number: str, after: int
) -> None:
    """Files of other numbers are not of a job."""
    save(folder, 0.0).rename(folder.path / f"checkpoint-{number}.fcl-ckpt")
    assert folder.numbers() == [after - 1][: after - 1]
    assert save(folder, 1.0).name == f"checkpoint-{after}.fcl-ckpt"
    assert folder.load().elapsed == 1.0


def test_a_new_job_keeps_older_ones_until_its_own_is_safe(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, 99.0, 100.0)
    folder.begin(None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken_disk)
        with pytest.raises(CheckpointError, match="Input/output error"):
            save(folder, 0.0)
    assert folder.load().elapsed == 100.0
    save(folder, 1.0)
    assert files(folder) == ["checkpoint-3.fcl-ckpt", "lock"]
    save(folder, 2.0, 3.0)
    assert files(folder) == ["checkpoint-4.fcl-ckpt", "checkpoint-5.fcl-ckpt", "lock"]


def test_a_job_is_complete_until_the_next_save(folder: CheckpointFolder) -> None:
    folder.mark_complete()
    assert not folder.is_complete  # there is no checkpoint to be replaced
    save(folder, 0.0)
    folder.mark_complete()
    assert folder.is_complete
    folder.begin(None)
    assert folder.is_complete  # the checkpoints are still those of the earlier job
    save(folder, 1.0)
    assert not folder.is_complete
    folder.begin(None)
    folder.mark_complete()  # a job that saved nothing says nothing of the earlier one
    assert not folder.is_complete


def test_a_resumed_job_replaces_the_torn_one_first(folder: CheckpointFolder) -> None:
    save(folder, 1.0, 2.0).write_bytes(b"torn")
    folder.begin(folder.load())
    save(folder, 3.0)
    assert files(folder) == ["checkpoint-1.fcl-ckpt", "checkpoint-3.fcl-ckpt", "lock"]


# -- failing writes


def broken_disk(*_: Any) -> None:
    raise OSError(5, "Input/output error")


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("name", "fail", "words"),
    [
        *(
            (f"os.{name}", broken_disk, "Input/output error")
            for name in ("fsync", "link", "listdir")
        ),
        *((name, full_disk, "No space left") for name in ("os.open", "zipfile.ZipFile.writestr")),
    ],
)
def test_a_failed_save_leaves_the_earlier_two(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, name: str, fail: Any, words: str
) -> None:
    save(folder, 1.0, 2.0)
    before = contents(folder)
    with monkeypatch.context() as patch:
        patch.setattr(name, fail)
        with pytest.raises(CheckpointError, match=f"ckpt: the checkpoint.*{words}.*are kept"):
            save(folder, 3.0)
    # no temporary file either
    assert contents(folder) == before and folder.load().elapsed == 2.0
    save(folder, 4.0)  # and it is tried again
    assert folder.load().elapsed == 4.0


def test_a_disk_that_is_full_half_way(folder: CheckpointFolder) -> None:
    """The system limits the size of files, so buffered writes may fail at any point."""
    save(folder, 1.0, 2.0)
    before, n = contents(folder), 100_000
    many = make_checkpoint(arrays=checkpoints.arrays(ids=np.arange(n), weights=np.ones(n)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"File too large: .* at most 300,000 bytes"):
            folder.save(many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert contents(folder) == before and folder.load().elapsed == 2.0


def test_an_old_file_that_stays_is_removed_later(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder, 1.0, 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", broken_disk)
        save(folder, 3.0)
    assert folder.numbers() == [1, 2, 3]
    save(folder, 4.0)
    assert folder.numbers() == [3, 4]


def test_a_folder_that_vanished(folder: CheckpointFolder, tmp_path: Path) -> None:
    folder.path.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"ckpt: .*the folder .* does not exist"):
        save(folder, 0.0)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_read_only_folder(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "ckpt")
    with folder:
        save(folder, 0.0)
        folder.path.chmod(0o500)
        with pytest.raises(CheckpointError, match="not writable"):
            save(folder, 1.0)
    with pytest.raises(InputError, match="not writable"):
        folder.lock()
    assert folder.load().number == 1
    folder.path.chmod(0o700)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match="not writable"):
            CheckpointFolder(tmp_path / "new").lock()
    finally:
        tmp_path.chmod(0o700)


# -- damaged files


@pytest.mark.slow
def test_every_flipped_byte_is_noticed_or_harmless(folder: CheckpointFolder) -> None:
    saved = make_checkpoint()
    path = folder.save(saved)
    good = path.read_bytes()
    noticed = 0
    for position in range(0, len(good), 3):
        damaged = bytearray(good)
        damaged[position] ^= 0x41
        path.write_bytes(damaged)
        try:
            again = folder.load()
        except InputError:
            noticed += 1
            continue
        # dates and attributes of the zip mean nothing
        assert again.state == saved.state and again.options == saved.options
        assert again.arrays["ids"].tolist() == [3, 7, 1 << 40] and again.n_rows == 600
    assert noticed > 0.25 * len(good)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999, "FIFO"])
def test_a_torn_file_is_passed_over(
    folder: CheckpointFolder, caplog: pytest.LogCaptureFixture, share: Any
) -> None:
    newest = save(folder, 1.0, 2.0)
    if share == "FIFO":
        newest.unlink()
        os.mkfifo(newest)
    else:
        newest.write_bytes(newest.read_bytes()[: int(share * newest.stat().st_size)])
    with caplog.at_level(logging.WARNING, "fcl"):
        assert folder.load().elapsed == 1.0
    (record,) = caplog.records
    why = "not a regular file)" if share == "FIFO" else ""
    assert f"checkpoint-2.fcl-ckpt: damaged ({why}" in record.getMessage()


def test_a_newer_version_is_not_passed_over(folder: CheckpointFolder) -> None:
    set_header(save(folder, 1.0, 2.0), version=3, fcl_version="9.9")
    with pytest.raises(InputError, match=r"version 3, this fcl reads up to 2.*newer fcl.*'9\.9'"):
        folder.load()


BAD_NUMBERS: list[Any] = [..., None, "0.5", [], True, math.nan, math.inf, -math.inf, 10**400]
WHOLES = ("drawn", "idle", "evicted")


@pytest.mark.parametrize("name", sorted(checkpoints.state()))
def test_every_key_of_the_state_is_validated(
    folder: CheckpointFolder, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Missing, of another type, not finite: the checkpoint before is taken, and the key is named."""
    newest = save(folder, 1.0, 2.0)
    good = newest.read_bytes()
    for value in [*BAD_NUMBERS, *([0.5, -1, 1 << 70] if name in WHOLES else [])]:
        infinite = isinstance(value, float) and math.isinf(value)
        if (infinite and name in ("bound", "gap")) or (name, value) == ("max_violation", math.inf):
            continue
        caplog.clear()
        set_header(newest, "state", **{name: value})
        assert folder.load().elapsed == 1.0, value
        assert f"checkpoint-2.fcl-ckpt: damaged (header.json: state.{name}" in caplog.text
        newest.write_bytes(good)
    assert folder.load().elapsed == 2.0


def test_what_is_not_declared_is_left_out(folder: CheckpointFolder) -> None:
    set_header(save(folder, 0.0), "state", C_min=0.5)
    assert folder.load().state == make_checkpoint().state


# measured beside the interpreter and its imports, which take 100 MB themselves
LIMITED = """
import resource, sys
import numpy, fcl.files.folder as module, fcl.files.model, fcl.features
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    {call}
except fcl.errors.InputError as error:
    print("refused:", str(error)[:300])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", ["compressed", "values", "deep", "text", "zeros"])
def test_bombs(folder: CheckpointFolder, tmp_path: Path, kind: str) -> None:
    """Neither a header nor an array takes memory that its file does not have."""
    path, size = save(folder, 0.0), 200 << 20
    name, content = {
        "compressed": lambda: ("header.json", b"{" + b" " * size + b"}"),
        "values": lambda: ("header.json", b'{"state": [' + b"{}," * (4 << 20) + b"{}]}"),
        "deep": lambda: ("header.json", b'{"state": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        "text": lambda: ("header.json", b'{"state": "' + b"x" * (65 << 20) + b'"}'),
        "zeros": lambda: (
            "arrays/ids.npy",
            checkpoints.npy(np.zeros(size, np.int8))[:128].replace(b"|i1", b"<i8"),
        ),
    }[kind]()
    compress = zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED
    checkpoints.rewrite(path, lambda members: members.update({name: content}), compress)
    code = LIMITED.format(call=f"module.CheckpointFolder({str(folder.path)!r}).load()")
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert "refused: " in result.stdout and "no intact checkpoint" in result.stdout


# -- the lock

HOLD = """
import sys
from fcl.files.checkpoint import compared_options
from fcl.files.same_job import JobFacts
from fcl.files.folder import CheckpointFolder
CheckpointFolder({path!r}).lock()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.forked_commands
def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ckpt"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD.format(path=str(path))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        with pytest.raises(InputError, match=f"ckpt: in use by process {process.pid}; wait"):
            CheckpointFolder(path).lock()
        process.kill()  # no chance to release it
        process.wait()
        with CheckpointFolder(path) as folder:
            save(folder, 0.0)


def test_release(folder: CheckpointFolder) -> None:
    save(folder, 0.0)
    folder.release()
    folder.release()
    with CheckpointFolder(folder.path):
        pass
    assert (folder.path / "lock").read_bytes() == b""


def test_a_job_that_saved_nothing_leaves_nothing(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "ckpt")
    with folder:
        pass
    assert os.listdir(tmp_path) == []
    folder.path.mkdir()
    (folder.path / "notes.txt").write_text("mine")
    with folder:
        pass
    assert files(folder) == ["notes.txt"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_that_loses_its_name_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """The holder exits and removes the file after we open it and before we lock it."""
    holder, folder, third = (CheckpointFolder(tmp_path / "c") for _ in range(3))
    holder.lock()
    flock, calls = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            holder.release()
            if replaced:
                third.lock()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    first, second = (third, folder) if replaced else (folder, third)
    if not replaced:
        folder.lock()
    with pytest.raises(InputError, match=f"in use by process {os.getpid()}"):
        second.lock()
    first.release()


def test_children_do_not_keep_the_lock(tmp_path: Path) -> None:
    with CheckpointFolder(tmp_path / "ckpt") as folder:
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
    try:
        with CheckpointFolder(folder.path):
            pass
    finally:
        child.communicate()


def test_saving_without_the_lock_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="lock the folder"):
        save(CheckpointFolder(tmp_path), 0.0)


def test_leftovers_of_a_killed_job_go(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    (tmp_path / ".checkpoint-3.fcl-ckpt.812-00ff.tmp").write_text("half")
    (tmp_path / "notes.txt").write_text("mine")
    with folder:
        assert files(folder) == ["lock", "notes.txt"]


# -- resuming


def test_what_may_change() -> None:
    options = {
        "C": 0.1, "seed": 3, "block_rows": 256, "tol": 1e-6, "memory": 1, "writers": 7,
        "max_time": 5, "max_passes": None, "checkpoint_every": 1, "driver": "processes",
        "a new option": 1,
    }  # fmt: skip
    saved = make_checkpoint()
    other = make_checkpoint(
        options={**saved.options, "writers": 1, "max_time": None, "driver": "x"}
    )
    now = JobFacts(compared_options(options), saved.fingerprint, checksums=saved.block_checksums)
    other.check_job(now)
    with pytest.raises(
        InputError, match=r"^checkpoint 0 of .* is of another job: seed was 3, is 4\."
    ):
        other.check_job(replace(now, options={**now.options, "seed": 4}))
