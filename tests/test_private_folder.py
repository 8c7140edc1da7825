"""Who could replace a folder: owners and modes of every folder and link on the way."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fcl.private_folder import exposure, make_private

STRANGER = 4712


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder of this user alone; without it, the cases below would say nothing."""
    assert exposure(tmp_path) == ""
    (tmp_path / "a" / "b").mkdir(parents=True)
    os.chmod(tmp_path / "a", 0o700)
    os.chmod(tmp_path / "a" / "b", 0o700)
    return tmp_path


def link(base: Path) -> Path:
    (base / "link").symlink_to(base / "a")
    return base / "link" / "b"


def relative_link(base: Path) -> Path:
    (base / "a" / "link").symlink_to("../a/./b")
    return base / "a" / "link"


WAYS = (lambda base: base / "a" / "b", link, relative_link)


@pytest.mark.parametrize("way", WAYS)
def test_folders_on_the_way(way: Callable[[Path], Path], base: Path) -> None:
    path = way(base)
    for mode in (0o500, 0o711, 0o755, 0o700):
        os.chmod(base / "a", mode)
        assert exposure(path) == ""
    for which in ("a", "a/b"):
        os.chmod(base / which, 0o777)
        assert exposure(path) == f"other users can write to {base / which}"
        os.chmod(base / which, 0o777 | stat.S_ISVTX)  # as /tmp: they cannot rename what is in it
        assert exposure(path) == ""


def test_a_group_with_other_members(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chmod(base / "a", 0o770)
    for own, reason in ((False, f"other users can write to {base / 'a'}"), (True, "")):
        monkeypatch.setattr("fcl.private_folder._is_own_group", lambda gid, own=own: own)
        assert exposure(base / "a" / "b") == reason


@pytest.mark.parametrize("which", ["a", "a/b", "a/link"])
def test_the_owner_of_a_part_is_another_user(
    which: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = relative_link(base)
    real = os.lstat

    def lstat(name: str) -> os.stat_result:
        found = real(name)
        if Path(name) == base / which:
            found = os.stat_result((*found[:4], STRANGER, *found[5:10]))
        return found

    monkeypatch.setattr(os, "lstat", lstat)
    assert exposure(path) == f"{base / which} belongs to user {STRANGER}"
    monkeypatch.setattr(os, "getuid", lambda: STRANGER)
    owner = real(base).st_uid
    trusted = owner == 0  # the administrator's folders are safe
    assert (exposure(path) == "") is trusted


def test_links_in_a_circle(base: Path) -> None:
    (base / "x").symlink_to("y")
    (base / "y").symlink_to("x")
    with pytest.raises(OSError, match="symbolic links"):
        exposure(base / "x")


def test_making_a_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        assert make_private(base / "new" / "deep" / "folder") == ""
    finally:
        os.umask(before)
    for part in ("new", "new/deep", "new/deep/folder"):
        assert stat.S_IMODE((base / part).stat().st_mode) == 0o700
    assert make_private(base / "new" / "deep" / "folder") == ""  # again
    os.chmod(base / "new", 0o1777)
    assert make_private(base / "new" / "other") == ""
    assert "other users can write" in make_private(base / "new")  # they could add files
    monkeypatch.setattr(os, "getuid", lambda: STRANGER)
    assert "belongs to user" in make_private(base / "new" / "other")
    (base / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_private(base / "file")
