"""Outputs in object stores: written to the local disk, and sent when they are complete.

They are sent by requests that fail if another process has taken the name, unless it may be replaced. The
result then gets an unused name beside it.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fcl.errors import InputError, OutputExistsError, StoreError
from fcl.store.location import RemotePath, put_in_place

#: Files of a Zarr store that are sent last, since they make it visible.
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
#: The metadata of the root of a Zarr store until it is complete, which no reader opens.
_CLAIM = b'{"fcl": "this store is being written"}'


def check_remote_output(path: RemotePath, overwrite: bool, folder: bool = False) -> None:
    """Check before the work that an output can be written: a small object is written, and removed."""
    _check_free(path, overwrite, folder)
    probe = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    client = probe.bucket.client
    try:
        client.put(probe.key, b"", overwrite=True)
    except (OSError, StoreError) as error:
        raise InputError(f"{path}: no object can be written there ({error})") from error
    try:
        client.delete([probe.key])
    except (
        OSError,
        InputError,
        StoreError,
    ):  # an account may write without being allowed to remove
        return


def _check_free(path: RemotePath, overwrite: bool, folder: bool) -> None:
    if not path.key:
        raise InputError(f"{path}: expected the name of an object, got a bucket")
    kind = path.kind()
    if kind == "folder":
        if not folder:
            raise InputError(f"{path}: exists and is a folder; choose another name")
        if not _holds_zarr(path):
            raise InputError(
                f"{path}: is a folder that holds something other than a Zarr store and is never "
                "replaced; choose another name"
            )
    if kind and not overwrite:
        raise OutputExistsError(path)


def _holds_zarr(path: RemotePath) -> bool:
    return any((path / name).is_file() for name in _METADATA[:3])


@contextmanager
def remote_file(path: RemotePath, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a local file that is sent to ``path`` when the block ends without an error.

    If another process takes the name during the block, the object gets an unused name beside it, and
    OutputExistsError gives this name.
    """
    _check_free(path, overwrite, folder=False)
    with tempfile.TemporaryDirectory(prefix="fcl-upload-") as folder:
        local = Path(folder) / "file"
        with local.open("wb") as file:
            yield file
        put_in_place(path, overwrite, lambda place, replace: _send(local, place, replace))


@contextmanager
def remote_folder(path: RemotePath, overwrite: bool) -> Iterator[Path]:
    """Make a local Zarr store to fill, which is sent to ``path`` when the block ends without an error.

    Its metadata are sent last. An earlier store is removed before, so that a reader never finds the
    metadata of one store with chunks of another. If another process takes the name during the block, the
    store gets an unused name beside it, and OutputExistsError gives this name.
    """
    _check_free(path, overwrite, folder=True)
    with tempfile.TemporaryDirectory(prefix="fcl-upload-") as name:
        folder = Path(name) / "zarr"
        folder.mkdir()
        yield folder
        put_in_place(path, overwrite, lambda place, replace: _send_folder(folder, place, replace))


def _send_folder(folder: Path, path: RemotePath, overwrite: bool) -> None:
    """Send a Zarr store; raises FileExistsError if the name is taken."""
    if kind := path.kind():
        if not (overwrite and kind == "folder" and _holds_zarr(path)):
            raise FileExistsError(errno.EEXIST, "exists already", str(path))
        _remove(path)
    files = sorted(found for found in folder.rglob("*") if found.is_file())
    metadata = [found for found in files if found.name in _METADATA]
    # the metadata of the root come last of all, and take the place of the claim
    metadata.sort(key=lambda found: -len(found.parts))
    path.bucket.client.put((path / metadata[-1].name).key, _CLAIM, overwrite=False)
    with ThreadPoolExecutor(path.bucket.requests) as pool:
        chunks = [found for found in files if found.name not in _METADATA]
        sent = [
            pool.submit(_send, found, path / found.relative_to(folder).as_posix(), True)
            for found in chunks
        ]
        for each in sent:
            each.result()
    for found in metadata:
        _send(found, path / found.relative_to(folder).as_posix(), True)


def _remove(path: RemotePath) -> None:
    """Remove a Zarr store, its metadata first."""
    keys = sorted(
        (info.key for info in path.list()),
        key=lambda key: (os.path.basename(key) not in _METADATA, key.count("/"), key),
    )
    path.bucket.client.delete((path / key).key for key in keys)


def _send(local: Path, path: RemotePath, overwrite: bool) -> None:
    path.bucket.client.put(path.key, local, overwrite)
