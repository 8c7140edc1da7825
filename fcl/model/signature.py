"""Signatures of the hosts that a checkpoint names, by a key that only its user has.

A resumed job opens the locations that its checkpoint names, with the credentials in the user's
environment. So the checkpoint of a stranger must not choose the hosts. A checkpoint that this user wrote
on this machine is recognised by a signature (HMAC-SHA256) of these locations; its key is in the user's
state folder.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fcl.errors import InputError
from fcl.private_folder import make_private
from fcl.store import check_url, is_remote

__all__ = ["check_hosts", "is_signed", "remote_locations", "sign"]

#: Bytes of the key.
KEY_BYTES = 32
_NAME = "checkpoint-key"


def remote_locations(command: Mapping[str, Any] | None) -> dict[str, str]:
    """The options of a command that are URLs, by name."""
    return {
        name: value
        for name, value in (command or {}).items()
        if isinstance(value, str) and is_remote(value)
    }


def sign(kind: str, command: Mapping[str, Any] | None) -> str:
    """The signature of the locations in the options of a command.

    kind : of the checkpoint: "train" or "stagewise".

    The signature is empty if there is no host to sign for, or no folder that only this user can write;
    the user then names the hosts when the job is resumed.
    """
    locations = remote_locations(command)
    key = _key(create=True) if locations else None
    return "" if key is None else _code(key, kind, locations)


def is_signed(kind: str, command: Mapping[str, Any] | None, signature: str) -> bool:
    """Whether :func:`sign` of this user made the signature of these locations."""
    key = _key(create=False)
    expected = "" if key is None else _code(key, kind, remote_locations(command))
    # as bytes, since a stranger's text may not be ASCII
    return bool(expected) and hmac.compare_digest(
        expected.encode(), signature.encode(errors="replace")
    )


def check_hosts(
    folder: str,
    kind: str,
    command: Mapping[str, Any] | None,
    signature: str,
    given: Collection[str],
    allowed: Collection[str],
) -> None:
    """Raise InputError for a host that only the checkpoint of a stranger names.

    Parameters
    ----------
    folder : str
        Of the checkpoint, for the message.
    kind, command, signature
        As for :func:`is_signed`.
    given : collection of str
        Options that the user gave anew.
    allowed : collection of str
        Hosts that the user named, with or without a port; buckets, too.
    """
    locations = {name: url for name, url in remote_locations(command).items() if name not in given}
    foreign = {}
    for name, url in locations.items():
        check_url(url)  # earlier versions kept passwords
        parts = urlsplit(url)
        names = {parts.netloc.lower(), parts.hostname}
        if not names & {host.lower() for host in allowed}:
            foreign[name] = parts.netloc
    if not foreign or is_signed(kind, command, signature):
        return
    spelled = ", ".join(sorted({"DATA" if name == "data" else f"--{name}" for name in foreign}))
    hosts = sorted(set(foreign.values()))
    options = " ".join(f"--allow-host {host}" for host in hosts)
    raise InputError(
        f"{folder}: this checkpoint was not written by you on this machine, and would connect to "
        f"{', '.join(hosts)} ({spelled}); if you trust it, give {options}, or give {spelled} anew"
    )


def _code(key: bytes, kind: str, locations: Mapping[str, str]) -> str:
    text = json.dumps([kind, sorted(locations.items())])
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
