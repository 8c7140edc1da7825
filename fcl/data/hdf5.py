"""HDF5 files; h5py is imported when the first file is opened."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fcl.checks import file_kind
from fcl.data.base import (
    VARIABLE_TEXT,
    ChunkedReader,
    GroupContainer,
    RowReader,
    array_names,
    check_array,
    fixed_text,
    one_line,
    rows_per_step,
)
from fcl.data.hdf5_chunks import DeflatedChunks
from fcl.data.stamps import FileStamp
from fcl.errors import FclError, InputError
from fcl.store import Location, RemotePath

SUFFIXES = {".h5", ".hdf5", ".hdf", ".he5", ".h5ad"}
MAGIC = b"\x89HDF\r\n\x1a\n"


@contextmanager
def _named_damage(path: Path | RemotePath) -> Iterator[None]:
    """Raise InputError that names the file in place of what h5py raises for a damaged one."""
    try:
        yield
    except (FclError, MemoryError):
        raise
    except Exception as error:  # KeyError, OSError, RuntimeError, ValueError, TypeError ...
        raise InputError(
            f"{path} cannot be read as HDF5: {one_line(error)}. The file is damaged"
        ) from error


class Hdf5Reader(ChunkedReader):
    """Rows of one HDF5 dataset, chunked or contiguous."""

    def __init__(self, dataset: Any, name: str, path: Path, may_be_empty: bool = False) -> None:
        import h5py

        self.name = name
        self._path = path
        self._dataset = dataset
        text = h5py.check_string_dtype(dataset.dtype)
        self._variable_text = text is not None and text.length is None
        self.dtype = VARIABLE_TEXT if self._variable_text else dataset.dtype
        if dataset.shape is None:
            raise InputError(f"{name} is a null dataset without rows; expected an array")
        self.shape = dataset.shape
        check_array(name, self.shape, self.dtype, may_be_empty)
        # Contiguous storage is treated as chunks of one step each.
        row_bytes = dataset.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        self._chunks = dataset.chunks or (
            rows_per_step(self.shape[0], row_bytes),
            *self.shape[1:],
        )
        self.chunk_rows = max(1, min(self._chunks[0], self.shape[0]))
        deflated = None if dataset.chunks is None else DeflatedChunks(dataset)
        self._deflated = deflated if deflated and deflated.is_limited else None

    def missing_chunks(self) -> int:
        if self._dataset.chunks is None:
            return 0
        cells = [-(-n // c) for n, c in zip(self.shape, self._chunks, strict=True)]
        with _named_damage(self._path):
            return math.prod(cells) - int(self._dataset.id.get_num_chunks())

    def _read_cell(self, cell: tuple[slice, ...]) -> np.ndarray:
        if self._variable_text:
            return fixed_text(self._dataset.asstr()[cell], self.name)
        if self._deflated is not None and cell[0].start < cell[0].stop:
            return self._deflated.read(cell)
        return self._dataset[cell]

    def _where(self, index: tuple[int, ...]) -> str:
        if self._dataset.chunks is None:
            return f"file {self._path}"
        corner = tuple(i * c for i, c in zip(index, self._chunks, strict=True))
        try:
            info = self._dataset.id.get_chunk_info_by_coord(corner)
        except Exception:  # the index of the chunks is damaged, too
            return f"file {self._path}"
        return f"file {self._path}, {info.size} bytes at offset {info.byte_offset}"


class Hdf5Container(GroupContainer):
    """One group of an HDF5 file, opened read-only and without a lock."""

    def __init__(self, path: Location, group: str) -> None:
        import h5py

        if isinstance(path, RemotePath):
            name, out = shlex.quote(path.name), shlex.quote(f"{path.stem}.zarr")
            raise InputError(
                f"{path}: is an HDF5 file, which is read by parts on a local disk only; copy it to this "
                f"machine, and convert it: fcl convert {name} {out}"
            )
        super().__init__(path, group)
        self._file_path = path
        self._stamps = [FileStamp.of(path)]
        try:
            self._file = _open_without_lock(path)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES) and "lock" in str(error).lower():
                raise InputError(
                    f"{path} is locked by another process that has it open (errno {error.errno}); wait "
                    "until it is closed, or set HDF5_USE_FILE_LOCKING=FALSE if nobody writes to it"
                ) from error
            raise InputError(f"{path} cannot be opened as HDF5: {one_line(error)}") from error
        self._root = self._file
        root = self._node(group)
        if not isinstance(root, h5py.Group):
            groups = [key for key in self._names() if isinstance(self._node(key), h5py.Group)]
            found = "is an array" if isinstance(root, h5py.Dataset) else "does not exist"
            here = ", ".join(sorted(groups)) or "none"
            raise InputError(
                f"{self.name}: /{group} {found}; expected a group (groups at the root: {here})"
            )
        self._root = root

    def _names(self) -> list[str]:
        with _named_damage(self._path):
            return list(self._file)

    def _open_node(self, node: Any, name: str, may_be_empty: bool) -> RowReader[np.ndarray]:
        with _named_damage(self._path):
            self._check_files([name for name, _, _ in node.external or ()])
            if node.is_virtual:
                sources = [s.file_name for s in node.virtual_sources()]
                self._check_files([source for source in sources if source != "."])
            return Hdf5Reader(node, name, self._file_path, may_be_empty)

    def _is_array(self, node: Any) -> bool:
        import h5py

        return isinstance(node, h5py.Dataset)

    def attribute(self, path: str, name: str) -> Any:
        import h5py

        node = self._node(path)
        with _named_damage(self._path):
            value = None if node is None else node.attrs.get(name)
            if isinstance(value, h5py.Reference):
                target = self._file[value].name if value else ""
                return target.removeprefix(self._root.name.rstrip("/")) or None
        return _python_value(value)

    def _node(self, path: str) -> Any:
        try:
            path.encode()
        except UnicodeEncodeError:  # bytes of a command line that are not UTF-8
            return None
        with _named_damage(self._path):
            self._check_links(path)
            return self._root.get(path.strip("/") or "/")

    def _check_links(self, path: str) -> None:
        """Raise InputError if a link in the path leads to a file that is not regular, such as a FIFO.

        Opening a FIFO would block.
        """
        import h5py

        node: Any = self._root
        for part in filter(None, path.split("/")):
            if not isinstance(node, h5py.Group):
                return
            link = node.get(part, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                self._check_files([link.filename])
            node = node.get(part)

    def _check_files(self, names: Iterable[str | bytes]) -> None:
        """Raise InputError if a file that this one refers to is a FIFO, a socket or a device."""
        for name in names:
            text = os.fsdecode(name)
            for folder in (self._file_path.resolve().parent, Path()):  # where HDF5 looks
                file_kind(folder / text)

    def nodes(self) -> list[tuple[str, bool]]:
        """The paths of all groups and arrays, parents first, and whether each is an array."""
        found: list[tuple[str, bool]] = []
        with _named_damage(self._path):
            self._root.visititems(lambda path, node: found.append((path, self._is_array(node))))
        return found

    def attribute_names(self, path: str) -> list[str]:
        node = self._node(path)
        with _named_damage(self._path):
            return list(node.attrs)

    def _array_paths(self) -> list[str]:
        found: list[tuple[str, bool, Any]] = []

        def visit(path: str, node: Any) -> None:
            kind = _python_value(node.attrs.get("encoding-type"))
            found.append((path, self._is_array(node), kind))

        with _named_damage(self._path):
            self._root.visititems(visit)
        return array_names(found)


def _python_value(value: Any) -> Any:
    """The value of an attribute as plain Python: text, number, or list."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _open_without_lock(path: Path) -> Any:
    """Open a file to read, without a lock, also if this process has it open, or opens it later.

    Locks fail on many network file systems, and a reader that changes nothing needs none. But HDF5
    refuses a file whose openings in one process differ in their flags of locking, so this one has the
    flags of h5py's default, or of the opening that there is, and releases the lock.
    """
    import h5py

    for locking in (None, False, True):
        try:
            file = h5py.File(path, "r", locking=locking)
            break
        except OSError as error:
            if locking or "lock" not in str(error).lower():
                raise
    # openings of one process share descriptor and lock: the lock of another one stays
    if h5py.h5f.get_obj_count(file.id, h5py.h5f.OBJ_FILE) == 1:
        with suppress(OSError, RuntimeError, NotImplementedError):
            fcntl.flock(file.id.get_vfd_handle(), fcntl.LOCK_UN)
    return file


def is_hdf5(path: Location, head: bytes) -> bool:
    return path.is_file() and (path.suffix in SUFFIXES or head.startswith(MAGIC))
