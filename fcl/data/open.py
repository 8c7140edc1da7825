"""``open_data``: from a path or an array to a data set."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fcl.data.base import Container, RowReader
from fcl.data.columns import ColumnRecord, read_record
from fcl.data.covariates import read_covariates, split_covariates
from fcl.data.dataset import DataSet
from fcl.data.encodings import open_column, open_rows, read_column_names
from fcl.data.foreign import refuse_foreign
from fcl.data.frame import is_frame, split_frame
from fcl.data.hdf5 import Hdf5Container, is_hdf5
from fcl.data.memory import MemoryReader
from fcl.data.npy import is_npy, open_npy
from fcl.data.sequences import LETTERS
from fcl.data.sparse import SparseMatrix, from_matrix, is_matrix
from fcl.data.targets import check_weights
from fcl.data.zarr import ZarrContainer, is_zarr
from fcl.errors import InputError
from fcl.store import Location, RemotePath, absolute, kind_of, locate
from fcl.units import counted

logger = logging.getLogger("fcl")

# Separates a file from a group in it: train.h5::/fold1
GROUP_SEPARATOR = "::"

# In the order of trial: a test whether a path (and the first bytes of its file) has the format, and the
# container that opens a group at that path.
Recogniser = Callable[[Location, bytes], bool]
FORMATS: tuple[tuple[Recogniser, Callable[[Location, str], Container]], ...] = (
    (is_zarr, ZarrContainer),
    (is_hdf5, Hdf5Container),
    (is_npy, open_npy),
)


#: Suffixes of files in these formats.
_SUFFIXES = (".zarr", ".zip", ".h5", ".hdf5", ".h5ad", ".npy", ".npz")


@contextmanager
def _named_files() -> Iterator[None]:
    """Turn errors of files into InputErrors that name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error


@_named_files()
def open_data(
    source: str | os.PathLike[str] | np.ndarray | Sequence[Any] | SparseMatrix | Any,
    *,
    x: str = "X",
    y: str | np.ndarray | None = "y",
    weights: str | np.ndarray | None = None,
    offset: str | np.ndarray | None = None,
    groups: str | np.ndarray | None = None,
    covariates: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataSet:
    """Open a data set: read target, weights and offset, and leave X where it is stored.

    Parameters
    ----------
    source : path, array, list, sparse matrix or data frame
        Path of a Zarr group (folder or zip, format 2 or 3), an HDF5 file, a folder of ``NAME.npy``
        files, or one ``.npy`` file; ``path::/group`` for a group inside Zarr or HDF5. Or a URL, such as
        ``s3://bucket/train.zarr``, of a Zarr folder or ``.npy`` files in an object store. Or, in memory,
        an array (n,) or (n, columns), a list of sequences, a sparse matrix such as scipy's, or a data
        frame such as pandas', whose columns ``y``, ``weights``, ``offset`` and ``groups`` may name.
    x : str
        Name of the array of rows, or of a group that holds a CSR matrix in the layout of anndata
        (``X``, ``layers/counts``).
    y : str, array (n,) or (n, columns), data frame, or None
        Name of the target, which may be categorical in that layout (``obs/label``), or its values; None
        for prediction. With a single ``.npy`` file the name is the path of another ``.npy`` file,
        relative to the working folder or to the folder of that file.
    weights : str, array (n,) or None
        Name or values of the sample weights.
    offset : str, array (n,) or (n, outputs), or None
        Name or values of numbers added to the margins in training and in prediction, such as the
        logarithms of exposures for counts.
    groups : str, array (n,) or None
        Name (``obs/chromosome``) or values of the groups of rows, which folds do not split.

    covariates : names (list, or text with commas between them), array (n,) or (n, columns), or data frame
        Columns whose coefficients are not penalised. A categorical array, or one of text, becomes columns
        of zeros and ones, without its first level. Names refer to arrays (n,) or (n, columns), such as
        ``obs/age`` and ``obsm/X_pca``, or to columns of a data frame ``source``.
    storage_options : mapping, optional
        Of the object store, as for :func:`fcl.locate`.

    Returns
    -------
    DataSet
        The rows, which stay where they are stored.

    Raises
    ------
    InputError
        An array is missing, empty, damaged, of another length than X, or of a dtype or shape that fcl
        cannot use; the message names file and array.
    StoreError
        An object store failed, or cannot be reached.

    Examples
    --------
    >>> X, y = np.eye(3), np.array([0, 1, 1])
    >>> fcl.open_data(X, y=y)
    <DataSet arrays in memory: (3, 3) float64>
    >>> import zarr
    >>> group = zarr.open_group("train.zarr", mode="w")
    >>> group["counts"], group["label"] = X, y
    >>> fcl.open_data("train.zarr", x="counts", y="label").target
    array([0, 1, 1])
    """
    container: Container | None = None
    name = "arrays in memory"
    rows: RowReader[Any]
    names: Sequence[str] | None = None
    offset_name = offset if isinstance(offset, str) else None
    if is_frame(source):
        roles = {"y": y, "weights": weights, "offset": offset, "groups": groups}
        source, covariates = split_covariates(source, covariates)
        source, names, roles = split_frame(source, roles)
        y, weights, offset, groups = roles.values()
        name = "data frame"
    elif isinstance(source, list | tuple):
        try:
            source = np.asarray(source)
        except ValueError:
            raise InputError(
                "the list holds rows of different lengths; expected texts, or rows of equal length"
            ) from None
    if isinstance(source, np.ndarray):
        rows = MemoryReader(source, "X")
    elif is_matrix(source):
        rows = from_matrix(source, "X")
    else:
        path, group = split_group(source, storage_options)
        named = {"x": x, "y": y, "weights": weights, "offset": offset, "groups": groups}
        for option, path_inside in named.items():
            if not isinstance(path_inside, str | np.ndarray | None):
                raise InputError(
                    f"{option}: expected the name of an array in {path}, got {path_inside!r}"
                )
        container = _open_container(path, group)
        name = container.name
        rows = open_rows(container, x)
    if missing := rows.missing_chunks():
        logger.warning(
            "%s: %d chunks were never written; their rows read as the fill value",
            rows.name,
            missing,
        )
    target = column = None
    target_name = "y"
    if y is not None:
        column = _open_column(container, y, rows, "y")
        target_name, target = column.name, _values(column)
    weight_values = None
    if weights is not None:
        column = _open_column(container, weights, rows, "weights")
        values = column.read_all().reshape(-1)
        weight_values = check_weights(values, rows.shape[0], column.name)
    data = DataSet(
        name,
        rows,
        target,
        weight_values,
        target_name=target_name,
        column_record=ColumnRecord(names),
        stamps=container.stamps() if container else [],
    )
    if offset is not None:
        column = _open_column(container, offset, rows, "offset")
        data = data.with_offset(_values(column), column.name)
    if target is not None and target.ndim == 2 and is_frame(y):
        frame: Any = y
        data.target_columns = tuple(str(name) for name in frame.columns)
    if covariates is not None:
        data.covariates = read_covariates(container, covariates, rows)
    if groups is not None:
        data.groups = _open_column(container, groups, rows, "groups").read_all().reshape(-1)
    if container:
        data.source = _source(path, group, x)
        own = _column_names(container, rows)
        stored = container.attribute("", "fcl") if x == "X" else None  # it is about X
        record = read_record(stored, own, rows, data.source, open_columns)
        other_target = not isinstance(y, str) or y != "y"  # than that of the conversion
        reading = {k: v for k, v in record.reading.items() if k != "y" or not other_target}
        data.column_record = replace(record, reading=reading)
    names_of_others = [array.name for array in data.covariates or ()]
    data.column_record = replace(data.column_record, offset=offset_name, covariates=names_of_others)
    return data


def _source(path: Location, group: str, x: str) -> dict[str, Any] | None:
    """The arguments that open the same rows in another process; None if it cannot open them."""
    where = absolute(path) + (f"{GROUP_SEPARATOR}/{group}" if group else "")
    if not isinstance(path, RemotePath):
        return {"source": where, "x": x}
    if path.scheme == "memory":
        return None
    return {"source": where, "x": x, "storage_options": path.options}


def is_native(source: str | os.PathLike[str]) -> bool:
    """Whether :func:`open_data` is to open a path, by its name or content, or to say what is wrong.

    True for Zarr, HDF5 and npy, which may be damaged, for any folder, and if nothing is there.
    """
    path, group = split_group(source)
    if group or kind_of(path) != "file" or path.suffix.lower() in _SUFFIXES:
        return True
    head = _first_bytes(path)
    return any(recognise(path, head) for recognise, _ in FORMATS)


def _open_container(path: Location, group: str) -> Container:
    """Open the container at a path; raises ``InputError`` if no known format matches."""
    kind = kind_of(path)
    if not kind:
        if isinstance(path, RemotePath):
            raise InputError(f"{path} does not exist; check bucket, path and storage options")
        folder = path.parent
        neighbours = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        longer = [name for name in neighbours if name.startswith(f"{path.name}.")]
        near = longer or difflib.get_close_matches(path.name, neighbours, n=1)
        guess = f'; did you mean "{folder / near[0]}"?' if near else ""
        if set(path.name.upper()) <= set(LETTERS):
            guess += f'; a sequence is given in a list: ["{path.name:.12}"]'
        raise InputError(f"{path} does not exist{guess}")
    head = _first_bytes(path) if kind == "file" else b""
    for recognise, open_container in FORMATS:
        if recognise(path, head):
            return open_container(path, group)
    refuse_foreign(path)
    if isinstance(path, RemotePath):
        raise InputError(
            f"{path} is a {kind} in no format that fcl reads from a store; expected the folder of a "
            "Zarr store, a folder of .npy files, or an .npy file"
        )
    found = "a folder with neither Zarr metadata nor .npy files" if kind == "folder" else "a file"
    advice = "; store the arrays of an .npz with np.save" if path.suffix == ".npz" else ""
    if kind == "folder" and any(path.glob("*.txt")):
        advice = "; the tutorial on texts shows how to count the words of text files"
    raise InputError(
        f"{path} is {found}, in no format known to fcl; expected a Zarr folder or zip, an HDF5 file, a "
        "folder of .npy files or one .npy file, or a file for fcl convert (table, Parquet, FASTA, BED, "
        f"svmlight, PLINK){advice}"
    )


def _first_bytes(path: Location) -> bytes:
    """The first bytes of a file, which identify its format."""
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def split_group(
    source: Any, storage_options: Mapping[str, Any] | None = None
) -> tuple[Location, str]:
    """Cut ``file::/group`` into the location of the file and the group."""
    try:
        text = os.fsdecode(source)
    except TypeError:
        raise InputError(
            f"the source is of type {type(source).__name__}; expected a path, a numpy array, a list of "
            "sequences, a sparse matrix or a data frame"
        ) from None
    if not text:
        raise InputError("the path of the data is empty; expected a file or a folder")
    group = ""
    if GROUP_SEPARATOR in text and not os.path.exists(text):
        text, _, group = text.rpartition(GROUP_SEPARATOR)
    if storage_options is None and isinstance(source, RemotePath):
        storage_options = source.options
    return locate(text, storage_options), group.strip("/")


def _column_names(container: Container | None, rows: RowReader[Any]) -> list[str] | None:
    """Names of the columns of numeric rows, where the container has them."""
    if container is None or len(rows.shape) != 2 or rows.dtype.kind not in "biuf":
        return None
    return read_column_names(container, rows.shape[1])


def open_columns(
    source: Mapping[str, Any], paths: Mapping[str, str], n_rows: int
) -> dict[str, RowReader[np.ndarray]]:
    """Open columns by name in a Zarr group, an HDF5 file or a folder; missing columns are skipped.

    source : as ``DataSet.source`` has it: ``source``, and ``storage_options`` if there are any.
    paths : mapping of str to str, name -> path of an array, or of a group that is a column of a table.
    n_rows : columns of another length are left out.
    """
    place = split_group(source["source"], source.get("storage_options"))
    container = _open_container(*place)
    found = {}
    for name, path in paths.items():
        try:
            column = open_column(container, path)
        except InputError:  # the rows are complete without the column
            continue
        if column.shape == (n_rows,):
            found[name] = column
    return found


def _values(column: RowReader[np.ndarray]) -> np.ndarray:
    """A column as (n,), or more than one as (n, columns)."""
    values = column.read_all()
    return values if values.shape[1:] not in ((), (1,)) else values.reshape(-1)


def _open_column(
    container: Container | None, given: str | np.ndarray, rows: RowReader[Any], role: str
) -> RowReader[np.ndarray]:
    """Open a target, weights or offset, given by name or as an array, with one value per row.

    A target and an offset may have more than one column.
    """
    if not isinstance(given, str):
        column: RowReader[np.ndarray] = MemoryReader(np.asanyarray(given), role)
    elif container is None:
        raise InputError(
            f'{role}="{given}" is a name, but X is an array in memory; pass {role} as an array'
            + (", or y=None for no target" if role == "y" else "")
        )
    else:
        column = open_column(container, given)
    is_table = len(column.shape) == 2 and role in ("y", "offset")
    if column.shape[1:] not in ((), (1,)) and not is_table:
        raise InputError(
            f"{column.name} has shape {column.shape}; expected one value per row, (n,)"
        )
    if column.shape[0] != rows.shape[0]:
        raise InputError(
            f"{rows.name} has {counted(rows.shape[0], 'row')}, but {column.name} has {column.shape[0]:,} "
            "values; they must agree"
        )
    return column
