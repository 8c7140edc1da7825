"""Outputs in object stores: written to the local disk, and sent when they are complete."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fcl.errors import InputError, StoreError
from fcl.store.location import RemotePath

__all__ = ["check_remote_output", "remote_file", "remote_folder"]

#: Files of a Zarr store that are sent last, since they make it visible.
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")


def check_remote_output(path: RemotePath, overwrite: bool, folder: bool = False) -> None:
    """Check before the work that an output can be written: a small object is written, and removed.

    Raises
    ------
    InputError
        The output exists and ``overwrite`` is false, or it is a folder that must not be replaced, or the
        store accepts no objects there.
    """
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
        if not any((path / name).is_file() for name in _METADATA[:3]):
            raise InputError(
                f"{path}: is a folder that holds something other than a Zarr store and is never "
                "replaced; choose another name"
            )
    if kind and not overwrite:
        raise InputError(
            f"{path}: exists already; choose another name or overwrite it on purpose (--overwrite)"
        )


@contextmanager
def remote_file(path: RemotePath, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a local file that is sent to ``path`` when the block ends without an error."""
    _check_free(path, overwrite, folder=False)
    with tempfile.TemporaryDirectory(prefix="fcl-upload-") as folder:
        local = Path(folder) / "file"
        with local.open("wb") as file:
            yield file
        _send(local, path, overwrite)


@contextmanager
def remote_folder(path: RemotePath, overwrite: bool) -> Iterator[Path]:
    """Make a local Zarr store to fill, which is sent to ``path`` when the block ends without an error.

    Its metadata are sent last. An earlier store is removed before, so that a reader never finds the
    metadata of one store with chunks of another.
    """
    _check_free(path, overwrite, folder=True)
    with tempfile.TemporaryDirectory(prefix="fcl-upload-") as name:
        folder = Path(name) / "zarr"
        folder.mkdir()
        yield folder
        _check_free(path, overwrite, folder=True)
        _remove(path)
        files = sorted(found for found in folder.rglob("*") if found.is_file())
        metadata = [found for found in files if found.name in _METADATA]
        # the metadata of the root come last of all
        metadata.sort(key=lambda found: -len(found.parts))
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
    try:
        path.bucket.client.put(path.key, local, overwrite)
    except FileExistsError:
        raise InputError(
            f"{path}: another process has written it in the meantime; choose another name or "
            "overwrite it on purpose (--overwrite)"
        ) from None
