"""Signatures of the places that a checkpoint names, by a key that only its user has.

A resumed job opens the hosts that its checkpoint names, with the credentials in the user's environment,
and writes where the checkpoint says. So the checkpoint of a stranger must not choose these places. A
checkpoint that this user wrote on this machine is recognised by a signature (HMAC-SHA256) of them; its
key is in the user's state folder.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fcl.checks import shown
from fcl.errors import InputError
from fcl.private_folder import make_private
from fcl.store import check_url, is_remote

#: Bytes of the key.
KEY_BYTES = 32
_NAME = "checkpoint-key"
#: Options that name what a resumed job writes.
WRITTEN = ("out", "scratch")


def _places(command: Mapping[str, Any] | None) -> dict[str, str]:
    """The options of a command that are URLs, or name what it writes."""
    return {
        name: value
        for name, value in (command or {}).items()
        if isinstance(value, str) and (is_remote(value) or name in WRITTEN)
    }


def _trusted_places(
    folder: str | os.PathLike[str], command: Mapping[str, Any] | None
) -> dict[str, str]:
    """The options of a command that only its user may have chosen, by name.

    These are URLs, and local files and folders to write, except files beside the folder of the
    checkpoint.
    """
    places = _places(command).items()
    return {name: place for name, place in places if is_remote(place) or not _beside(place, folder)}


def _beside(path: str, folder: str | os.PathLike[str]) -> bool:
    """Whether a file is in the same folder as a checkpoint, and not hidden, as settings are."""
    if os.path.basename(path).startswith("."):
        return False
    return os.path.dirname(os.path.realpath(path)) == os.path.dirname(os.path.realpath(folder))


def sign(kind: str, folder: str | os.PathLike[str], command: Mapping[str, Any] | None) -> str:
    """The signature of the places in the options of a command.

    kind : of the checkpoint: "train" or "stagewise".  folder : of the checkpoint.

    The signature is empty if there is no place to sign for, or no folder that only this user can write;
    the user then names the places when the job is resumed.
    """
    key = _key(create=True) if _trusted_places(folder, command) else None
    return "" if key is None else _code(key, kind, _places(command))


def is_signed(kind: str, command: Mapping[str, Any] | None, signature: str) -> bool:
    """Whether :func:`sign` of this user made the signature of these places."""
    key = _key(create=False)
    expected = "" if key is None else _code(key, kind, _places(command))
    # as bytes, since a stranger's text may not be ASCII
    return bool(expected) and hmac.compare_digest(
        expected.encode(), signature.encode(errors="replace")
    )


def check_places(
    folder: str,
    kind: str,
    command: Mapping[str, Any] | None,
    signature: str,
    given: Collection[str],
    allowed: Collection[str],
) -> None:
    """Raise InputError for a host, or a place to write, that only the checkpoint of a stranger names.

    folder : of the checkpoint.  given : options that the user gave anew.  allowed : hosts that the user
    named, with or without a port; buckets, too.  Other arguments are as for :func:`is_signed`.
    """
    foreign, written = {}, {}
    for name, place in _trusted_places(folder, command).items():
        if name in given:
            continue
        if not is_remote(place):
            written[name] = place
            continue
        check_url(place)  # earlier versions kept passwords
        parts = urlsplit(place)
        if not {parts.netloc.lower(), parts.hostname} & {host.lower() for host in allowed}:
            foreign[name] = parts.netloc
    if not (foreign or written) or is_signed(kind, command, signature):
        return
    text = f"{folder}: this checkpoint was not written by you on this machine, and would "
    if foreign:
        hosts = sorted(set(foreign.values()))
        options = " ".join(f"--allow-host {host}" for host in hosts)
        raise InputError(
            f"{text}connect to {', '.join(hosts)} ({_spelled(foreign)}); if you trust it, give "
            f"{options}, or give {_spelled(foreign)} anew"
        )
    places = " and ".join(shown(place) for place in written.values())
    raise InputError(f"{text}write to {places}; give {_spelled(written)} anew")


def _spelled(names: Iterable[str]) -> str:
    words = {"DATA" if name == "data" else f"--{name.replace('_', '-')}" for name in names}
    return ", ".join(sorted(words))


def _code(key: bytes, kind: str, places: Mapping[str, str]) -> str:
    text = json.dumps([kind, sorted(places.items())])
    return hmac.digest(key, text.encode(), "sha256").hex()


def _key(create: bool) -> bytes | None:
    """The key of this user; None without a key, or if another user could have put it there."""
    try:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        file = Path(base, "fcl", _NAME)
        if not create and not file.exists():
            return None
        if make_private(file.parent):
            return None
        if create and not file.exists():
            _make_key(file)
        return _read_key(file)
    except (OSError, RuntimeError):  # no home folder
        return None


def _read_key(file: Path) -> bytes | None:
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return None
        key = os.read(descriptor, KEY_BYTES + 1) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(descriptor)
    return key if len(key) == KEY_BYTES else None


def _make_key(file: Path) -> None:
    """Make the key under another name first, so that other processes see all of it or none."""
    new = file.with_name(f".{_NAME}.{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(secrets.token_bytes(KEY_BYTES))
            opened.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # the other process was first, and its key counts
            os.link(new, file)
    finally:
        os.unlink(new)
