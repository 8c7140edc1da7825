"""Columns of a table matched by name to the columns that a model reads.

A model stores descriptions of its features by the names of their columns, such as ``age * height``. The
names of the columns follow from them: the family describes the same feature with placeholders as names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fcl.checks import shown
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.model import Model

__all__ = ["ColumnMap", "column_names"]

#: Marks the number of a column in a description with placeholders.
_MARK = "\ue000"
_PLACEHOLDER = re.compile(f"{_MARK}([0-9]+){_MARK}")
#: Stands between the name of a column and one of its values, which became a column of its own.
_VALUE = "="


@dataclass(frozen=True)
class _Placeholders(Sequence[str]):
    """Names of columns that contain the number of the column."""

    n_columns: int

    def __len__(self) -> int:
        return self.n_columns

    def __getitem__(self, column):  # type: ignore[no-untyped-def]
        return f"{_MARK}{int(column)}{_MARK}"


def column_names(model: Model) -> dict[int, str] | None:
    """The columns of the rows that the active features use, and their names.

    None if the model does not say them: its data had no names, or its family does not describe features
    by columns.
    """
    if model.feature_names is None:
        return None
    names: dict[int, str] = {}
    placeholders = _Placeholders(model.family.row_width)
    pending = [
        _Description.of(
            model.family.describe(int(model.ids[i]), placeholders), model.feature_names[i]
        )
        for i in np.flatnonzero(model.weights).tolist()
    ]
    while pending:
        # a description such as "a * b * c" is divided once the other features name its columns
        unknown = [description for description in pending if not description.divide(names)]
        if len(unknown) == len(pending):
            return None
        pending = unknown
    return names


@dataclass(frozen=True)
class _Description:
    """The description of a feature.

    columns : the columns that it names.
    between : the text before, between and behind their names.
    text : the description with names.
    """

    columns: list[int]
    between: list[str]
    text: str

    @classmethod
    def of(cls, marked: str, text: str) -> _Description:
        """From the descriptions with placeholders and with names."""
        columns = [int(column) for column in _PLACEHOLDER.findall(marked)]
        return cls(columns, _PLACEHOLDER.split(marked)[::2], text)

    def divide(self, names: dict[int, str]) -> bool:
        """Add the names of the columns to ``names``; False if there is no or more than one way to."""
        longest, shortest = (self._match(names, each) for each in ("(.+)", "(.+?)"))
        if not self.columns or longest is None or shortest is None:
            return False
        if longest.groups() != shortest.groups():
            return False
        unknown = [column for column in self.columns if column not in names]
        names.update(zip(unknown, longest.groups(), strict=True))
        return True

    def _match(self, names: dict[int, str], unknown: str) -> re.Match[str] | None:
        first, *behind = map(re.escape, self.between)
        words = [re.escape(names[at]) if at in names else unknown for at in self.columns]
        pairs = zip(words, behind, strict=True)
        return re.fullmatch(first + "".join(map("".join, pairs)), self.text, re.DOTALL)


@dataclass(frozen=True)
class ColumnMap:
    """Which column of an input is which column of the model's rows.

    Attributes
    ----------
    width : int
        Columns of the model's rows.
    source, target : int64 (k,)
        Column ``source[i]`` of the input is column ``target[i]`` of the rows; the model reads no other
        columns.
    notes : list of str
        For the summary.
    """

    width: int
    source: np.ndarray
    target: np.ndarray
    notes: list[str] = field(default_factory=list)

    @classmethod
    def by_name(cls, wanted: dict[int, str], given: Sequence[str], width: int) -> ColumnMap:
        """Match names; raises InputError for a column that the input lacks.

        A value ``colour=red`` that does not occur in the input is a column of zeros, if the input has
        other values of ``colour``.
        """
        place = {name: at for at, name in enumerate(given)}
        one_hot = {name.partition(_VALUE)[0] for name in given if _VALUE in name}
        absent = [name for name in wanted.values() if name not in place]
        missing = [name for name in absent if name.partition(_VALUE)[0] not in one_hot]
        if missing:
            more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
            numbers = {name.partition(_VALUE)[0] for name in missing} & place.keys()
            advice = (
                f"give --categorical {min(numbers)}, which has numbers here"
                if numbers
                else "add them, or name the right file"
            )
            raise InputError(
                f"the model reads the columns {', '.join(map(shown, missing[:5]))}{more}, which the "
                f"input lacks; {advice}"
            )
        target = [column for column, name in wanted.items() if name in place]
        source = [place[wanted[column]] for column in target]
        notes = [
            f"columns: {len(source):,} read, by name; {len(given) - len(source):,} more ignored"
        ]
        if absent:
            notes.append(
                f"columns: {len(absent):,} values of categories do not occur, such as {absent[0]}"
            )
        return cls(width, np.array(source, np.int64), np.array(target, np.int64), notes)

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
