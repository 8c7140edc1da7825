"""Columns of rows matched by name to the columns that a model reads.

All rows that a model scores go through :func:`matched`, or for foreign files :class:`ColumnMap`. Without
names on either side, columns are matched by position. Stored rows must have the model's columns at the
model's positions; columns in memory are put in the model's order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.checks import shown
from fcl.data.memory import MemoryReader
from fcl.data.sparse import SparseRows
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.features.base import Family

__all__ = [
    "ColumnMap",
    "by_position",
    "cut",
    "first_difference",
    "matched",
    "names_read",
    "select_columns",
]

#: Longest name that a model keeps as it is.
MOST_NAME = 1000


def names_read(
    family: Family, ids: np.ndarray, names: Sequence[str] | None
) -> dict[int, str] | None:
    """The columns of the rows that some features read, and their names; None without names."""
    if names is None:
        return None
    return {column: _key(names[column]) for column in family.columns_read(ids).tolist()}


def by_position(names: Sequence[str] | None) -> dict[int, str] | None:
    """All columns and their names; None without names."""
    return None if names is None else {column: _key(name) for column, name in enumerate(names)}


def _key(name: str) -> str:
    """A name as models keep it: a hash stands for the end of a very long one."""
    if len(name) <= MOST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: MOST_NAME - 100]}... (SHA-256 {digest})"


def first_difference(wanted: Mapping[int, str], names: Sequence[str]) -> str:
    """The first column that has another name, in words; empty if all names agree.

    wanted : names by position.
    """
    for column, name in wanted.items():
        if column < len(names) and _key(names[column]) == name:
            continue
        found = shown(names[column]) if column < len(names) else "missing"
        place = next((at for at, other in enumerate(names) if _key(other) == name), None)
        elsewhere = "is missing" if place is None else f"is at position {place}"
        return (
            f"the column at position {column} (from 0) is {found}, but the model reads {shown(name)} "
            f"there, which {elsewhere}"
        )
    return ""


def matched(data: DataSet, wanted: Mapping[int, str] | None, width: int) -> DataSet:
    """The data set with each wanted column at its position.

    Parameters
    ----------
    data : DataSet
    wanted : mapping of int to str, or None
        Names by position in the rows of the model; None if the model has no names.
    width : int
        Columns of the rows of the model.

    Returns
    -------
    DataSet
        `data` itself if its columns have no names, or have the wanted names at the wanted positions.
        Otherwise the rows in memory with (n, width) columns, and 0 in columns that are not wanted.

    Raises
    ------
    InputError
        A column is missing, or stored rows have their columns in another order.
    """
    names = data.column_names
    if wanted is None or names is None:
        return data
    difference = first_difference(wanted, names)
    is_memory = isinstance(data.rows, MemoryReader)
    if not difference and not (is_memory and len(names) != width):
        return data
    if not is_memory:
        raise InputError(
            f"{data.name}: {difference}; store the columns in the order of the training data (fcl "
            "convert --like TRAIN.zarr does it), or pass a data frame, whose columns are matched by name"
        )
    try:
        found = ColumnMap.by_name(wanted, names, width)
    except InputError as error:
        raise InputError(f"{data.name}: {error}") from None
    ordered = data.with_target(data.target, data.weights, data.target_name)
    ordered.rows = MemoryReader(found.dense(data.rows.read(0, data.n_rows)), data.rows.name)
    ordered.column_names = [wanted.get(column, "") for column in range(width)]
    return ordered


def select_columns(frame: Any, wanted: Mapping[int, str], more: Iterable[Any]) -> Any:
    """The columns of a data frame that are wanted by name, or named in `more`; without any, all columns.

    more : names, lists of names, or text with commas between names; anything else names no column.
    """
    names = set(wanted.values())
    for given in more:
        if isinstance(given, str):
            names.update(name.strip() for name in given.split(","))
        elif isinstance(given, list | tuple):
            names.update(map(str, given))
    kept = [key for key in frame.columns if _key(str(key)) in names]
    return frame[kept] if kept else frame


@dataclass(frozen=True)
class ColumnMap:
    """Which column of an input is which column of the model's rows.

    Attributes
    ----------
    width : int
        Columns of the model's rows.
    source, target : int64 (k,)
        Column ``source[i]`` of the input is column ``target[i]`` of the rows; the model does not read the
        other ones.
    notes : list of str
        For the summary.
    """

    width: int
    source: np.ndarray
    target: np.ndarray
    notes: list[str] = field(default_factory=list)

    @classmethod
    def by_name(cls, wanted: Mapping[int, str], given: Sequence[str], width: int) -> ColumnMap:
        """Match names; raises InputError for a column that the input lacks."""
        place = {_key(name): at for at, name in enumerate(given)}
        missing = [name for name in wanted.values() if name not in place]
        if missing:
            more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
            raise InputError(
                f"the model reads the columns {', '.join(map(shown, missing[:5]))}{more}, which the "
                "input lacks; add them, or name the right file"
            )
        source = [place[name] for name in wanted.values()]
        ignored = len(given) - len(source)
        note = f"columns: {len(source):,} read, by name"
        note += f"; {ignored:,} more ignored" if ignored else ""
        return cls(width, np.array(source, np.int64), np.array([*wanted], np.int64), [note])

    def dense(self, x: np.ndarray) -> np.ndarray:
        """The rows (m, width) of the model from rows of the input."""
        found = np.zeros((len(x), self.width), x.dtype)
        found[:, self.target] = x[:, self.source]
        return found

    def sparse(self, x: SparseRows) -> SparseRows:
        """Sparse rows of the model from sparse rows of the input."""
        # not a table of all columns of the input, of which there may be 2^31
        source, order = np.append(self.source, -1), np.argsort(self.source)
        found = np.append(order, -1)[np.searchsorted(self.source, x.indices, sorter=order)]
        is_read = source[found] == x.indices
        return _recoded(x, np.where(is_read, np.append(self.target, -1)[found], -1), self.width)


def cut(x: SparseRows, width: int) -> SparseRows:
    """Sparse rows without the entries from column ``width`` on."""
    return _recoded(x, np.where(x.indices < width, x.indices, -1), width)


def _recoded(x: SparseRows, indices: np.ndarray, width: int) -> SparseRows:
    keep = indices >= 0
    ends = np.concatenate([[0], np.cumsum(keep)])
    return SparseRows(ends[x.indptr], indices[keep].astype(np.int32), x.data[keep], width)
