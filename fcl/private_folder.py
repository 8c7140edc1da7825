"""Folders whose content no other user of the machine can replace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

#: Symbolic links that are followed on the way to a folder, as the kernel does.
MOST_LINKS = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def exposure(path: str | os.PathLike[str]) -> str:
    """Say who else could put another folder in the place of this one; an empty text if nobody can.

    Each folder on the way, and each symbolic link, must belong to this user or to the administrator, and
    nobody else may write to the folder. In a folder with the sticky bit, such as ``/tmp``, others may
    write, but can neither rename nor remove what is not theirs.

    Raises OSError: a part of the path does not exist, or links form a circle.
    """
    # whoever owns the root can replace Python itself; in a user namespace that is not always user 0
    trusted = {os.getuid(), 0, os.stat("/").st_uid}
    rest = list(reversed(Path(os.path.abspath(path)).parts[1:]))
    at, links = "/", 0
    while rest:
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        part = os.path.join(at, name)
        found = os.lstat(part)
        if found.st_uid not in trusted:
            return f"{part} belongs to user {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(40, "Too many levels of symbolic links", os.fspath(path))
            target = os.readlink(part)
            rest.extend(reversed([own for own in target.split("/") if own not in ("", ".")]))
            at = "/" if target.startswith("/") else at
            continue
        if _others_write(found):
            return f"other users can write to {part}"
        at = part
    return ""


def make_private(folder: str | os.PathLike[str]) -> str:
    """Make a folder of this user, and the missing ones above it; only this user may use them.

    Returns an empty text, or why another user could replace the folder or what is in it.

    Raises OSError: the folder cannot be made.
    """
    path = Path(os.path.abspath(folder))
    for missing in reversed([part for part in path.parents if not os.path.lexists(part)]):
        missing.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    reason = exposure(path)
    found = path.stat()
    if not reason and found.st_uid != os.getuid():
        reason = f"{path} belongs to user {found.st_uid}"
    if not reason and found.st_mode & _OTHERS_WRITE:  # the sticky bit lets others add files
        reason = f"other users can write to {path}"
    return reason


def _others_write(found: os.stat_result) -> bool:
    """Whether users other than the owner and the administrator can replace what is in a folder."""
    if found.st_mode & stat.S_ISVTX or not found.st_mode & _OTHERS_WRITE:
        return False
    return bool(found.st_mode & stat.S_IWOTH) or not _is_own_group(found.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether a group has no member but this user, as where each user has a group of the same name."""
    import grp  # late: only folders with unusual permissions need them
    import pwd

    if gid == 0:  # administrators
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
