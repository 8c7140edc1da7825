"""Signatures of the places in a checkpoint, and the user's key."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from fcl.errors import InputError
from fcl.files import signature
from fcl.files.signature import check_places, is_signed, sign

COMMAND = {
    "data": "https://host:81/a.zarr",
    "valid": "data/b.zarr",
    "C": 0.1,
    "out": "s3://bucket/m",
}


@pytest.fixture
def key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fcl" / "checkpoint-key"


def test_signature(key_file: Path) -> None:
    found = sign("train", "c", COMMAND)
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600 and len(key_file.read_bytes()) == 32
    # RFC 2104, by hand
    text = json.dumps(["train", [["data", COMMAND["data"]], ["out", COMMAND["out"]]]]).encode()
    key = key_file.read_bytes().ljust(64, b"\0")
    inner = hashlib.sha256(bytes(x ^ 0x36 for x in key) + text).digest()
    assert found == hashlib.sha256(bytes(x ^ 0x5C for x in key) + inner).hexdigest()
    assert sign("train", "c", COMMAND) == found  # the same key
    assert is_signed("train", COMMAND | {"C": 0.2, "valid": "elsewhere"}, found)
    assert [path.name for path in key_file.parent.iterdir()] == [key_file.name]


@pytest.mark.parametrize(
    ("kind", "change", "code"),
    [
        ("stagewise", {}, None),
        ("train", {"data": "https://host:82/a.zarr"}, None),
        ("train", {"valid": "https://host:81/a.zarr"}, None),
        ("train", {"out": None}, None),
        ("train", {}, ""),
        ("train", {}, "é\ud800"),
        ("train", {}, hmac.digest(b"", b"", "sha256").hex()),
    ],
)
def test_what_is_not_signed(
    kind: str, change: dict[str, Any], code: str | None, key_file: Path
) -> None:
    found = sign("train", "c", COMMAND)
    assert not is_signed(kind, COMMAND | change, found if code is None else code)


def test_nothing_is_kept_without_a_place_to_trust(key_file: Path) -> None:
    local: Any = {"data": "/a.zarr", "out": os.path.abspath("m.fcl"), "scratch": None, "C": 3}
    local["class_weight"] = {"a": "https://x/y"}
    assert sign("train", "c", local) == sign("train", "c", None) == ""
    assert not key_file.parent.exists()
    assert not is_signed("train", local, "")
    check_places("c", "train", local, "", (), ())


@pytest.mark.parametrize(
    "fault", ["readable", "short", "link", "folder", "owner", "open folder", "no folder"]
)
def test_a_key_that_another_user_may_have_made(
    fault: str, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sign("train", "c", COMMAND)
    if fault == "readable":
        key_file.chmod(0o640)
    elif fault == "short":
        key_file.write_bytes(b"x")
    elif fault == "link":
        key_file.rename(key_file.with_name("other"))
        key_file.symlink_to("other")
    elif fault == "folder":
        key_file.unlink()
        key_file.mkdir()
    elif fault == "owner":
        monkeypatch.setattr(os, "getuid", lambda: key_file.stat().st_uid + 1)
    elif fault == "no folder":
        monkeypatch.setenv("XDG_STATE_HOME", str(key_file))
    else:
        key_file.parent.chmod(0o777)
    assert not is_signed("train", COMMAND, found) and sign("train", "c", COMMAND) == ""


def test_many_processes_make_one_key(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds no key, and makes one; all sign with the one that was there first."""
    barrier = threading.Barrier(8)
    make = signature._make_key

    def together(file: Path) -> None:
        barrier.wait()
        make(file)

    monkeypatch.setattr(signature, "_make_key", together)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(sign("train", "c", COMMAND))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1 and found[0]
    assert [path.name for path in key_file.parent.iterdir()] == [key_file.name]


@pytest.mark.parametrize(
    ("given", "allowed", "words"),
    [
        ((), (), r"would connect to bucket, host:81 \(--out, DATA\).*--allow-host bucket"),
        (("data",), (), r"connect to bucket \(--out\)"),
        (("data", "out"), (), None),
        ((), ("bucket",), r"connect to host:81 \(DATA\); .* --allow-host host:81, or give DATA anew"),
        ((), ("host:82", "bucket"), r"connect to host:81 \(DATA\)"),
        ((), ("bucket", "HOST:81"), None),
        (("out",), ("host",), None),
    ],
)  # fmt: skip
def test_hosts_that_the_user_named(
    given: tuple[str, ...], allowed: tuple[str, ...], words: str | None, key_file: Path
) -> None:
    own = sign("train", "c", COMMAND)
    check_places("c", "train", COMMAND, own, given, allowed)
    if words is None:
        check_places("c", "train", COMMAND, "", given, allowed)
        return
    with pytest.raises(InputError, match=words):
        check_places("c", "train", COMMAND, "", given, allowed)


@pytest.mark.parametrize("name", ["out", "scratch"])
def test_places_to_write(name: str, tmp_path: Path, key_file: Path) -> None:
    """A stranger's checkpoint may write beside its folder alone."""
    folder = tmp_path / "m.fcl.checkpoint"
    command = {"data": "a.zarr", name: str(tmp_path / "m.fcl")}
    check_places(str(folder), "train", command, "", (), ())
    assert sign("train", folder, command) == ""
    with pytest.raises(InputError, match="would write to"):
        check_places(str(folder), "train", {name: str(tmp_path / ".profile")}, "", (), ())
    command[name] = str(tmp_path / "home" / ".profile")
    own = sign("train", folder, command)
    check_places(str(folder), "train", command, own, (), ())
    check_places(str(folder), "train", command, "", (name,), ())
    with pytest.raises(InputError, match=rf"would write to .*\.profile'; give --{name} anew"):
        check_places(str(folder), "train", command, "", (), ())
    with pytest.raises(InputError, match="would write to"):
        check_places(str(folder), "train", command | {name: str(tmp_path / "b" / "c")}, own, (), ())
