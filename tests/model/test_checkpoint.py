"""The folder of checkpoints: whole or absent, the last two, the lock, what may change."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import checkpoints
import numpy as np
import pytest
from checkpoints import set_array, set_header, state

from fcl.errors import CheckpointError, InputError
from fcl.model.checkpoint import Checkpoint, CheckpointFolder

Make = Callable[..., Checkpoint]


@pytest.fixture
def make() -> Make:
    def make(**changes: Any) -> Checkpoint:
        values: dict[str, Any] = {
            "options": {"C": 0.1, "seed": 3, "block_rows": 256, "tol": 1e-3, "memory": 1 << 30},
            "family": {"family": "kmers", "d": 3},
            "fingerprint": "ab" * 32,
            "n_rows": 600,
            "block_checksums": np.array([1, 2**64 - 1, 3], np.uint64),
            "state": checkpoints.state(),
            "arrays": checkpoints.arrays(),
            "history": [{"number": 1, "gap": 0.1}],
            "elapsed": 12.25,
            "driver": "inline",
        }
        return Checkpoint(**(values | changes))

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    with CheckpointFolder(tmp_path / "ckpt") as folder:
        yield folder


def files(folder: CheckpointFolder) -> list[str]:
    return sorted(os.listdir(folder.path))


def contents(folder: CheckpointFolder) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.path.iterdir() if p.name != "lock"}


# -- round trip


def test_round_trip(folder: CheckpointFolder, make: Make) -> None:
    saved = make()
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


def test_numpy_scalars_and_other_layouts(folder: CheckpointFolder, make: Make) -> None:
    arrays = {"cached": np.arange(9)[::3], "seen": np.ones(3, bool)}
    arrays |= {"ids": np.arange(3, dtype=">i4"), "weights": np.ones(3, np.float32)}
    folder.save(make(arrays=arrays, state=state(idle=np.int64(2), gap=np.float64(0.1))))
    again = folder.load()
    assert again.state == state(idle=2, gap=0.1)
    for name, array in arrays.items():
        assert np.array_equal(again.arrays[name], array)
    assert again.arrays["ids"].dtype == np.int64


@pytest.mark.parametrize(
    "changes",
    [
        {"state": state(beta=object())},
        {"state": state(mu=0.5)},
        {"state": state(sharpness=0.0)},
        {"arrays": checkpoints.arrays(more=np.zeros(1))},
        {"arrays": checkpoints.arrays(ids=np.array([object()]))},
        {"arrays": checkpoints.arrays(ids=np.zeros(3))},
    ],
)
def test_what_cannot_be_kept_is_a_bug(
    folder: CheckpointFolder, make: Make, changes: dict[str, Any]
) -> None:
    folder.save(make())
    before = contents(folder)
    with pytest.raises((TypeError, ValueError)):
        folder.save(make(**changes))
    assert contents(folder) == before


def test_the_page_names_every_key(folder: CheckpointFolder, make: Make) -> None:
    with zipfile.ZipFile(folder.save(make())) as archive:
        header = json.loads(archive.read("header.json"))
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
    page = (Path(__file__).parents[2] / "fcl/model/CHECKPOINT.md").read_text()
    assert all(f"`{key}`" in page for key in header)


# -- the last two


def test_the_last_two_are_kept(folder: CheckpointFolder, make: Make) -> None:
    for elapsed in range(5):
        folder.save(make(elapsed=float(elapsed)))
    assert files(folder) == ["checkpoint-4.fcl-ckpt", "checkpoint-5.fcl-ckpt", "lock"]
    assert folder.load().elapsed == 4.0


def test_numbers_are_numbers(folder: CheckpointFolder, make: Make) -> None:
    path = folder.save(make())
    path.rename(folder.path / "checkpoint-9.fcl-ckpt")
    assert folder.save(make(elapsed=1.0)).name == "checkpoint-10.fcl-ckpt"
    assert folder.load().elapsed == 1.0


@pytest.mark.parametrize(
    "name", ["checkpoint-9223372036854775807", "checkpoint-001", "checkpoint-0"]
)
def test_names_that_no_job_gives_are_of_other_files(
    folder: CheckpointFolder, make: Make, name: str
) -> None:
    (folder.path / f"{name}.fcl-ckpt").touch()
    assert folder.numbers() == []
    assert folder.save(make(elapsed=1.0)).name == "checkpoint-1.fcl-ckpt"
    assert folder.load().elapsed == 1.0


def test_a_new_job_keeps_older_ones_until_its_own_is_safe(
    folder: CheckpointFolder, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        folder.save(make(elapsed=100.0))
    folder.begin(None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken_disk)
        with pytest.raises(CheckpointError):
            folder.save(make())
    assert folder.load().elapsed == 100.0
    folder.save(make(elapsed=1.0))
    assert files(folder) == ["checkpoint-3.fcl-ckpt", "lock"]
    for _ in range(2):
        folder.save(make(elapsed=2.0))
    assert files(folder) == ["checkpoint-4.fcl-ckpt", "checkpoint-5.fcl-ckpt", "lock"]


def test_a_job_is_complete_until_the_next_save(folder: CheckpointFolder, make: Make) -> None:
    folder.mark_complete()
    assert not folder.is_complete  # there is no checkpoint to be replaced
    folder.save(make())
    folder.mark_complete()
    assert folder.is_complete
    folder.begin(None)
    assert folder.is_complete  # the checkpoints are still those of the earlier job
    folder.save(make())
    assert not folder.is_complete


def test_a_job_that_saved_nothing_says_nothing_of_the_earlier_one(
    folder: CheckpointFolder, make: Make
) -> None:
    folder.save(make())
    folder.begin(None)
    folder.mark_complete()
    assert not folder.is_complete


def test_a_resumed_job_replaces_the_torn_one_first(folder: CheckpointFolder, make: Make) -> None:
    folder.save(make(elapsed=1.0))
    folder.save(make(elapsed=2.0)).write_bytes(b"torn")
    folder.begin(folder.load())
    folder.save(make(elapsed=3.0))
    assert files(folder) == ["checkpoint-1.fcl-ckpt", "checkpoint-3.fcl-ckpt", "lock"]


# -- failing writes


def broken_disk(*_: Any) -> None:
    raise OSError(5, "Input/output error")


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("name", "fail", "words"),
    [
        ("os.fsync", broken_disk, "Input/output error"),
        ("os.link", broken_disk, "Input/output error"),
        ("os.open", full_disk, "No space left on device"),
        ("zipfile.ZipFile.writestr", full_disk, "No space left on device"),
        ("os.listdir", broken_disk, "Input/output error"),
    ],
)
def test_a_failed_save_leaves_the_earlier_two(
    folder: CheckpointFolder,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    fail: Any,
    words: str,
) -> None:
    for elapsed in (1.0, 2.0):
        folder.save(make(elapsed=elapsed))
    before = contents(folder)
    with monkeypatch.context() as patch:
        patch.setattr(name, fail)
        with pytest.raises(CheckpointError, match=f"ckpt: the checkpoint.*{words}.*are kept"):
            folder.save(make(elapsed=3.0))
    assert contents(folder) == before  # no temporary file either
    assert folder.load().elapsed == 2.0
    folder.save(make(elapsed=4.0))  # and it is tried again
    assert folder.load().elapsed == 4.0


def test_a_disk_that_is_full_half_way(tmp_path: Path) -> None:
    """The system limits the size of files, so buffered writes may fail at any point."""
    code = (
        "import numpy as np, os, resource\n"
        "from fcl.errors import CheckpointError\n"
        "from fcl.model.checkpoint import Checkpoint, CheckpointFolder\n"
        "from checkpoints import arrays, state\n"
        "def make(n): return Checkpoint(options={}, family={}, fingerprint='', n_rows=1,\n"
        "    block_checksums=np.zeros(0, np.uint64), state=state(), history=[], elapsed=float(n),\n"
        "    arrays=arrays(ids=np.arange(n), weights=np.ones(n)), driver='inline')\n"
        f"with CheckpointFolder({str(tmp_path / 'c')!r}) as folder:\n"
        "    folder.save(make(10)); folder.save(make(11))\n"
        "    before = sorted(os.listdir(folder.path))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))\n"
        "    try: folder.save(make(100_000))\n"
        "    except CheckpointError as error: print('refused', error)\n"
        "    assert sorted(os.listdir(folder.path)) == before\n"
        "    assert folder.load().elapsed == 11\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(checkpoints.__file__).parent,
    )
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert "refused" in result.stdout and "File too large" in result.stdout


def test_an_old_file_that_stays_is_removed_later(
    folder: CheckpointFolder, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save(make())
    folder.save(make())
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", broken_disk)
        folder.save(make())
    assert folder.numbers() == [1, 2, 3]
    folder.save(make())
    assert folder.numbers() == [3, 4]


def test_a_folder_that_vanished(folder: CheckpointFolder, make: Make, tmp_path: Path) -> None:
    folder.path.rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="does not exist"):
        folder.save(make())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_read_only_folder(tmp_path: Path, make: Make) -> None:
    folder = CheckpointFolder(tmp_path / "ckpt")
    with folder:
        folder.save(make())
        folder.path.chmod(0o500)
        with pytest.raises(CheckpointError, match="not writable"):
            folder.save(make())
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


def test_every_flipped_byte_is_noticed_or_harmless(folder: CheckpointFolder, make: Make) -> None:
    path = folder.save(make())
    good = path.read_bytes()
    noticed = 0
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x41
        path.write_bytes(damaged)
        try:
            again = folder.load()
        except InputError:
            noticed += 1
            continue
        # dates and attributes of the zip mean nothing
        assert again.state == make().state and again.options == make().options
        assert again.arrays["ids"].tolist() == [3, 7, 1 << 40] and again.n_rows == 600
    assert noticed > 0.75 * len(good)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_torn_file_is_passed_over(
    folder: CheckpointFolder, make: Make, caplog: pytest.LogCaptureFixture, share: float
) -> None:
    folder.save(make(elapsed=1.0))
    newest = folder.save(make(elapsed=2.0))
    newest.write_bytes(newest.read_bytes()[: int(share * newest.stat().st_size)])
    with caplog.at_level(logging.WARNING, "fcl"):
        assert folder.load().elapsed == 1.0
    (record,) = caplog.records
    assert "checkpoint-2.fcl-ckpt: damaged" in record.getMessage()


def test_a_fifo_is_passed_over(
    folder: CheckpointFolder, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    folder.save(make(elapsed=1.0))
    os.mkfifo(folder.path / "checkpoint-2.fcl-ckpt")
    with caplog.at_level(logging.WARNING, "fcl"):
        assert folder.load().elapsed == 1.0
    assert "checkpoint-2.fcl-ckpt: damaged (not a regular file)" in caplog.text


def test_a_list_of_very_many_members_is_not_read(folder: CheckpointFolder, make: Make) -> None:
    path = folder.save(make())
    checkpoints.rewrite(path, lambda m: m.update({f"{i:06d}": b"" for i in range(25_000)}))
    with pytest.raises(InputError, match=r"list of members has 1,\d+,\d+ bytes, expected at most"):
        folder.load()


def test_zeros_in_place_of_an_array(folder: CheckpointFolder, make: Make) -> None:
    """What a file system may leave after a crash: the right length, blocks of zeros."""
    ids = {"ids": np.arange(2000), "weights": np.ones(2000)}
    path = folder.save(make(arrays=checkpoints.arrays(**ids)))
    content = bytearray(path.read_bytes())
    content[4096:8192] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(InputError, match="no intact checkpoint"):
        folder.load()


def test_newer_version(folder: CheckpointFolder, make: Make) -> None:
    folder.save(make())
    set_header(folder.save(make()), version=3, fcl_version="9.9")
    with pytest.raises(InputError, match=r"version 3, this fcl reads up to 2.*newer fcl.*'9\.9'"):
        folder.load()


@pytest.mark.parametrize(
    "values",
    [{"format": "fcl-model"}, {"version": 0}, {"version": "1"}, {"state": 3}, {"options": None},
     {"arrays": ["lost"]}, {"elapsed": "long"}],
)  # fmt: skip
def test_a_wrong_header_is_damage(
    folder: CheckpointFolder, make: Make, values: dict[str, Any]
) -> None:
    set_header(folder.save(make()), **values)
    with pytest.raises(InputError, match="no intact checkpoint"):
        folder.load()


BAD_NUMBERS: list[Any] = [..., None, "0.5", [], True, math.nan, math.inf, -math.inf, 10**400]
WHOLES = ("drawn", "idle", "evicted")


@pytest.mark.parametrize("name", sorted(checkpoints.state()))
def test_every_key_of_the_state_is_validated(
    folder: CheckpointFolder, make: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Missing, of another type, not finite: the checkpoint before is taken, and the key is named."""
    folder.save(make(elapsed=1.0))
    newest = folder.save(make(elapsed=2.0))
    good = newest.read_bytes()
    for value in [*BAD_NUMBERS, *([0.5, -1, 1 << 70] if name in WHOLES else [])]:
        infinite = isinstance(value, float) and math.isinf(value)
        if (infinite and name in ("bound", "gap")) or (name, value) == ("max_violation", math.inf):
            continue
        caplog.clear()
        set_header(newest, "state", **{name: value})
        assert folder.load().elapsed == 1.0, value
        assert f"checkpoint-2.fcl-ckpt: damaged (state.{name}" in caplog.text
        newest.write_bytes(good)
    assert folder.load().elapsed == 2.0


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ((), {"state": ...}),
        ((), {"state": None}),
        ((), {"state": []}),
        ((), {"options": ...}),
        ((), {"options": "C"}),
        ((), {"family": None}),
        ((), {"history": {}}),
        ((), {"history": [3]}),
        ((), {"elapsed": math.nan}),
        ((), {"elapsed": -1.0}),
        ((), {"n_rows": "600"}),
        ((), {"n_rows": 0}),
        ((), {"n_rows": 600.0}),
        ((), {"number": None}),
        ((), {"created": 5}),
        ((), {"fingerprint": None}),
        ((), {"arrays": None}),
        ((), {"arrays": ["ids", "weights", "cached"]}),
        (("options",), {"block_rows": "256"}),
        (("options",), {"block_rows": 0}),
        (("options",), {"command": ["C"]}),
        (("options",), {"command": {"C": [0.1]}}),
        (("state",), {"sample": {}}),
        (("state",), {"sample": None}),
        (("state",), {"last": {"objective": "1"}}),
        (("state",), {"best_intercept": 0.5}),
        (("state",), {"untried_intercept": 0.5}),
    ],
)
def test_headers_made_by_hand(
    folder: CheckpointFolder, make: Make, place: tuple[str, ...], values: dict[str, Any]
) -> None:
    set_header(folder.save(make()), *place, **values)
    with pytest.raises(InputError, match="no intact checkpoint"):
        folder.load()


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("ids", np.arange(2), "2 ids and 3 weights"),
        ("ids", np.array([3, 3, 4]), "increasing numbers"),
        ("ids", np.array([-1, 3, 4]), "increasing numbers"),
        ("ids", np.array([3.0, 7.0, 9.0]), "vector of <i8, got <f8"),
        ("ids", np.array(["3", "7", "9"]), "vector of <i8, got <U1"),
        ("ids", np.array([[3], [7], [9]]), "of shape"),
        ("ids", np.array(3), "of shape"),
        ("weights", np.array([1.0, np.nan, 1.0]), "numbers up to 1e+100"),
        ("weights", np.array([1.0, 1e308, 1.0]), "numbers up to 1e+100"),
        ("weights", np.array([1, 2, 3]), "vector of <f8, got <i8"),
        ("cached", np.array([7, 7]), "distinct numbers"),
        ("cached", np.array([7, -1]), "numbers >= 0"),
        ("cached", np.array([7], np.int64), "1 cached and 2 seen"),
        ("cached", np.array([7, 3], ">i8"), "got >i8"),
        ("seen", np.array([1, 0]), "vector of |b1, got <i8"),
        ("seen", np.ones((2, 1), bool), "of shape"),
    ],
)
def test_arrays_made_by_hand(
    folder: CheckpointFolder, make: Make, name: str, array: np.ndarray, words: str
) -> None:
    set_array(folder.save(make()), name, array)
    with pytest.raises(InputError, match="no intact checkpoint") as caught:
        folder.load()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "checksums", [np.ones(3), np.array(["a", "b", "c"]), np.ones(2, "<u8"), np.ones((3, 1), "<u8")]
)
def test_checksums_made_by_hand(
    folder: CheckpointFolder, make: Make, checksums: np.ndarray
) -> None:
    path = folder.save(make())
    content = checkpoints.npy(checksums)
    checkpoints.rewrite(path, lambda m: m.update({"block_checksums.npy": content}))
    with pytest.raises(InputError, match="no intact checkpoint"):
        folder.load()


def test_an_array_whose_header_is_not_python(folder: CheckpointFolder, make: Make) -> None:
    path = folder.save(make())
    text = b"[" * 117 + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    checkpoints.rewrite(path, lambda m: m.update({"arrays/seen.npy": content}))
    with pytest.raises(InputError, match="no intact checkpoint"):
        folder.load()


@pytest.mark.parametrize("probe", [-math.inf, ["a"], [[1.0]], 3, {"0": 1.0}])
@pytest.mark.parametrize("nested", [False, True])
def test_probes_made_by_hand(make: Make, probe: Any, nested: bool) -> None:
    before, now = {"probe": probe}, {"probe": [1.0, 2.0]}
    if nested:
        before, now = {"members": [before]}, {"members": [now]}
    checkpoint = make(family=before)
    with pytest.raises(InputError, match="its features had other columns"):
        CheckpointFolder.check_resume(checkpoint, {}, family=now)


def test_ids_beyond_the_family(make: Make) -> None:
    checkpoint = make(arrays=checkpoints.arrays())
    with pytest.raises(InputError, match="its ids go up to 1099511627776, with 800 features"):
        CheckpointFolder.check_resume(checkpoint, {}, n_features=800)


def test_what_is_not_declared_is_left_out(folder: CheckpointFolder, make: Make) -> None:
    path = folder.save(make())
    set_header(path, "state", C_min=0.5)
    assert folder.load().state == make().state


# measured beside the interpreter and its imports, which take 100 MB themselves
LIMITED = """
import resource, sys
import numpy, fcl.model.checkpoint as module, fcl.model.file, fcl.features
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    {call}
except fcl.errors.InputError as error:
    print("refused:", str(error)[:300])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", ["compressed", "values", "deep", "text", "zeros"])
def test_bombs(folder: CheckpointFolder, make: Make, tmp_path: Path, kind: str) -> None:
    """Neither a header nor an array takes memory that its file does not have."""
    path, size = folder.save(make()), 200 << 20
    content = {
        "compressed": lambda: b"{" + b" " * size + b"}",
        "values": lambda: b'{"state": [' + b"{}," * (4 << 20) + b"{}]}",
        "deep": lambda: b'{"state": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "text": lambda: b'{"state": "' + b"x" * (65 << 20) + b'"}',
        "zeros": lambda: b"",
    }[kind]()
    if kind == "zeros":
        head = checkpoints.npy(np.zeros(size, np.int8))[:128].replace(b"|i1", b"<i8")
        change = {"arrays/ids.npy": head}
    else:
        change = {"header.json": content}
    compress = zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED
    checkpoints.rewrite(path, lambda members: members.update(change), compress)
    code = LIMITED.format(call=f"module.CheckpointFolder({str(folder.path)!r}).load()")
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert "refused: " in result.stdout and "no intact checkpoint" in result.stdout


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no: no such folder"):
        CheckpointFolder(tmp_path / "no").load()
    with pytest.raises(InputError, match="no such folder"):
        CheckpointFolder(tmp_path / ("a" * 400)).load()
    with pytest.raises(InputError, match="holds no checkpoint"):
        CheckpointFolder(tmp_path).load()


# -- the lock

HOLD = """
import sys
from fcl.model.checkpoint import CheckpointFolder
CheckpointFolder({path!r}).lock()
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused(tmp_path: Path, make: Make) -> None:
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
            folder.save(make())


def test_a_second_folder_of_the_same_process_is_refused(folder: CheckpointFolder) -> None:
    with pytest.raises(InputError, match=f"in use by process {os.getpid()}"):
        CheckpointFolder(folder.path).lock()


def test_release(folder: CheckpointFolder, make: Make) -> None:
    folder.save(make())
    folder.release()
    folder.release()
    with CheckpointFolder(folder.path):
        pass
    assert (folder.path / "lock").read_bytes() == b""


def test_a_job_that_saved_nothing_leaves_nothing(tmp_path: Path) -> None:
    with CheckpointFolder(tmp_path / "ckpt"):
        pass
    assert os.listdir(tmp_path) == []
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "notes.txt").write_text("mine")
    with CheckpointFolder(tmp_path / "ckpt"):
        pass
    assert os.listdir(tmp_path / "ckpt") == ["notes.txt"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_that_loses_its_name_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """The holder exits and removes the file after we open it and before we lock it."""
    holder, folder = CheckpointFolder(tmp_path / "c").lock(), CheckpointFolder(tmp_path / "c")
    third = CheckpointFolder(tmp_path / "c")
    flock, calls = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        calls.append(how)
        if len(calls) == 1:
            holder.release()
            if replaced:
                third.lock()
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    if replaced:
        with pytest.raises(InputError, match="in use"):
            folder.lock()
        third.release()
    else:
        folder.lock()
        with pytest.raises(InputError, match="in use"):
            third.lock()
        folder.release()


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


def test_saving_without_the_lock_is_a_bug(tmp_path: Path, make: Make) -> None:
    with pytest.raises(RuntimeError, match="lock the folder"):
        CheckpointFolder(tmp_path).save(make())


def test_where_no_folder_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        CheckpointFolder(tmp_path / "file").lock()
    with pytest.raises(InputError, match="does not exist; make it first"):
        CheckpointFolder(tmp_path / "no" / "ckpt").lock()
    assert os.listdir(tmp_path) == ["file"]


def test_leftovers_of_a_killed_job_go(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    (tmp_path / ".checkpoint-3.fcl-ckpt.812-00ff.tmp").write_text("half")
    (tmp_path / "notes.txt").write_text("mine")
    with folder:
        assert files(folder) == ["lock", "notes.txt"]


# -- resuming


def test_what_may_change(make: Make) -> None:
    options = {
        "C": 0.1, "seed": 3, "block_rows": 256, "tol": 1e-6, "memory": 1, "writers": 7,
        "max_time": 5, "max_passes": None, "checkpoint_every": 1, "driver": "processes",
        "a new option": 1,
    }  # fmt: skip
    checkpoint = make(options={**make().options, "writers": 1, "max_time": None, "driver": "x"})
    CheckpointFolder.check_resume(
        checkpoint, options, "ab" * 32, np.array([1, 2**64 - 1, 3], np.uint64)
    )


def test_all_differences_are_named(make: Make) -> None:
    options = {"C": 0.3, "seed": 4, "block_rows": 256}
    checksums = np.array([1, 7, 8], np.uint64)
    with pytest.raises(InputError) as caught:
        CheckpointFolder.check_resume(make(), options, "cd" * 32, checksums)
    for words in (
        "C was 0.1, is 0.3",
        "seed was 3, is 4",
        "fingerprint was abababababab, is cdcdcdcdcdcd",
        "training rows 256-511 (block 1)",
        "was ffffffffffffffff, is 0000000000000007",
        "training rows 512-599 (block 2)",
    ):
        assert words in str(caught.value), words
    assert "block_rows" not in str(caught.value) and "block 0" not in str(caught.value)


def test_blocks_that_differ(make: Make) -> None:
    checkpoint = make(block_checksums=np.zeros(50, np.uint64), n_rows=50 * 256)
    with pytest.raises(InputError, match=r"block 2\).*and so do 47 more blocks"):
        CheckpointFolder.check_resume(checkpoint, {}, None, np.ones(50, np.uint64))
    with pytest.raises(InputError, match="there were 50 blocks of rows, there are 3"):
        CheckpointFolder.check_resume(checkpoint, {}, None, np.ones(3, np.uint64))
    early = make(block_checksums=np.empty(0, np.uint64))
    CheckpointFolder.check_resume(early, {}, None, np.ones(3, np.uint64))
