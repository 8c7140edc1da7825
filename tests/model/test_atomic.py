"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fcl.errors import InputError, OutputExistsError
from fcl.files import atomic
from fcl.files.atomic import (
    _remove_leftovers,
    atomic_file,
    atomic_folder,
    check_output,
    discard_temporaries,
    retry_while_full,
)


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    assert check_output(target, overwrite=False) == target
    with atomic_file(target) as file:
        file.write(b"new")
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "out.bin"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "out.bin").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    with atomic_file(tmp_path / "link", overwrite=True) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_rival_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    for number in (1, 2):
        words = rf"this result is in .*out\.{number}\.bin"
        with pytest.raises(OutputExistsError, match=words) as caught, atomic_file(target) as file:  # noqa: PT012
            file.write(b"mine")
            target.write_bytes(b"rival")
        assert caught.value.kept == str(tmp_path / f"out.{number}.bin")
        assert Path(caught.value.kept).read_bytes() == b"mine"
        assert target.read_bytes() == b"rival"
        target.unlink()
    assert sorted(os.listdir(tmp_path)) == ["out.1.bin", "out.2.bin"]


def test_permission_to_replace_holds_for_one_name(tmp_path: Path) -> None:
    """A result whose name became a folder is written beside it, and replaces no other file."""
    target, other = tmp_path / "out.bin", tmp_path / "out.1.bin"
    other.write_bytes(b"other")
    with pytest.raises(OutputExistsError) as caught, atomic_file(target, overwrite=True) as file:  # noqa: PT012
        file.write(b"new")
        target.mkdir()
    assert other.read_bytes() == b"other"
    assert caught.value.kept == str(tmp_path / "out.2.bin")
    assert (tmp_path / "out.2.bin").read_bytes() == b"new"


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("kind", [atomic_file, atomic_folder])
def test_many_writers_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, links: bool
) -> None:
    """One gets the name; the results of the others are beside it, all of them complete."""
    if not links:
        monkeypatch.setattr(os, "link", _no_links)
    meet, found = threading.Barrier(8), []

    def write(number: int) -> None:
        try:
            with kind(tmp_path / "out.bin") as place:
                if kind is atomic_file:
                    place.write(b"%d" % number)
                else:
                    (place / "number").write_text(str(number))
                meet.wait(20)
            found.append("out.bin")
        except OutputExistsError as error:
            found.append(os.path.basename(str(error.kept)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = ["out.bin", *(f"out.{number}.bin" for number in range(1, 8))]
    assert sorted(found) == sorted(names) == sorted(os.listdir(tmp_path))
    files = [tmp_path / name for name in names]
    texts = [(path / "number" if path.is_dir() else path).read_text() for path in files]
    assert sorted(texts) == [str(number) for number in range(8)]


def _no_links(*_: Any) -> None:
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_folder_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="not writable"):
        check_output(tmp_path / "out", overwrite=False)


def test_folder_replaces_only_a_zarr_store(tmp_path: Path) -> None:
    target = tmp_path / "out.zarr"
    with atomic_folder(target) as folder:
        (folder / "zarr.json").write_text("{}")
        assert not target.exists()
    with pytest.raises(InputError, match="exists already"), atomic_folder(target):
        pass
    with atomic_folder(target, overwrite=True) as folder:
        (folder / "other").write_text("2")
    assert os.listdir(target) == ["other"]
    with (
        pytest.raises(InputError, match="something other than a Zarr store"),
        atomic_folder(target, overwrite=True),
    ):
        pass
    assert os.listdir(tmp_path) == ["out.zarr"]


@pytest.mark.parametrize("kind", [atomic_file, atomic_folder])
def test_an_error_leaves_what_was_there(tmp_path: Path, kind: Any) -> None:
    target = tmp_path / "out.zarr"
    old = target if kind is atomic_file else target / "zarr.json"
    old.parent.mkdir(exist_ok=True)
    old.write_text("old")
    with pytest.raises(RuntimeError), kind(target, overwrite=True) as place:  # noqa: PT012
        (place.write(b"half") if kind is atomic_file else (place / "zarr.json").write_text("new"))
        raise RuntimeError
    assert old.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.zarr"]


def test_discard_temporaries(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "out") as file:  # noqa: PT012
        file.write(b"half")
        discard_temporaries()  # what a second signal does
        assert os.listdir(tmp_path) == []


def test_a_folder_is_removed_when_other_threads_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may hold all file descriptors for a moment, or still write a chunk."""
    failures = [errno.EMFILE, errno.ENOTEMPTY]
    remove = atomic.shutil.rmtree

    def fails_first(folder: str, ignore_errors: bool) -> None:
        if failures:
            raise OSError(failures.pop(), "not now")
        remove(folder, ignore_errors=ignore_errors)

    monkeypatch.setattr(atomic.shutil, "rmtree", fails_first)
    with pytest.raises(RuntimeError), atomic_folder(tmp_path / "out.zarr") as folder:  # noqa: PT012
        (folder / "0").write_text("chunk")
        raise RuntimeError
    assert os.listdir(tmp_path) == [] and not failures


KILLED = """
import os, signal, sys
from fcl.files.atomic import atomic_file, atomic_folder
which = {"file": atomic_file, "folder": atomic_folder}[sys.argv[1]]
with which(sys.argv[2]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.thin(2)
@pytest.mark.forked_commands
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_leftovers_of_a_killed_writer_go(tmp_path: Path, kind: str) -> None:
    """The next writer of the same target removes them; those of a writer who lives stay."""
    target = tmp_path / "out.zarr"
    subprocess.run([sys.executable, "-c", KILLED, kind, str(target)])
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".out.zarr.") and left.endswith(".tmp")
    write = atomic_file if kind == "file" else atomic_folder
    with write(tmp_path / "other.zarr"):
        pass
    assert left in os.listdir(tmp_path)
    with write(target):
        living = set(os.listdir(tmp_path)) - {left, "other.zarr"}
        _remove_leftovers(target)
        assert living <= set(os.listdir(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["other.zarr", "out.zarr"]


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcl.files.atomic._TRY_EVERY", 0.0)
    said: list[str] = []
    tries = iter([errno.ENOSPC, errno.EDQUOT, 0])

    def write() -> None:
        if number := next(tries):
            raise OSError(number, os.strerror(number))

    retry_while_full(write, 60.0, said.append)
    assert said == ["No space left on device: make room; retrying for 60 s"]

    def full() -> None:
        raise OSError(errno.ENOSPC, "full")

    def broken() -> None:
        raise OSError(errno.EIO, "broken")

    for write, wait, stop in ((full, 0.0, False), (full, 60.0, True), (broken, 60.0, False)):
        with pytest.raises(OSError, match=r"full|broken"):
            retry_while_full(write, wait, said.append, lambda stop=stop: stop)
