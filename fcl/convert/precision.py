"""Decide whether float32 holds the numbers of columns, or whether they need float64.

float32 keeps 24 bits of each value. This is too little for a column such as 1700000000.5, 1700000001.5.
The numbers of X need float64 if, for any column,

- a whole number becomes another one, or a value is beyond the range of float32;
- rounding moves a value by more than ``MOST_MOVE`` of the spread of the column, largest minus smallest;
- rounding makes different values equal. In a column with more than ``_CELLS`` different values, more than
  ``MOST_MERGED`` of the float32 values must stand for several values: of many values with 17 digits some
  do by chance, and a model loses nothing by it. Values that agree to 15 digits, such as 0.3 and
  0.1 + 0.2, are the same.

All rows decide, in memory that does not grow with them. The third rule samples values by their hash: all
values that float32 makes equal are in the sample, or none of them is. So the order of the rows does not
matter, and up to ``_CELLS`` different values the sample is the whole column. Columns are sampled from the
block of rows on that has the first value which float32 rounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.convert.contract import Budget
from fcl.errors import InputError

#: Largest move of a value, as a share of the spread of its column.
MOST_MOVE = 1e-4
#: Largest share of the float32 values that stand for several values in float64, in a sample of a column.
MOST_MERGED = 0.01
#: Different values in float32 that are kept of a column, and the least number that makes a sample.
_CELLS, _LEAST_CELLS = 1024, 8
#: Several values in so many of these convince, if they are a sample.
_LEAST_MERGED = 4
#: Values of float64 that agree to 15 digits.
_SAME = 2.0**-49
#: Values that are looked at in one step.
_STEP = 1 << 15
#: The part of a budget that the examination takes.
_PART = 4
#: Bytes of what is kept of a column, and of a different value, including copies while they are sorted.
_COLUMN_BYTES, _CELL_BYTES = 48, 96
_EVERY = np.uint32(0xFFFFFFFF)
#: From here on, float64 does not hold all whole numbers.
FIRST_INEXACT = 1 << 53


def is_rounded_integer(text: str) -> bool:
    """Whether a text is an integer that float64 changes; numbers such as 1e20 are not integers."""
    return re.fullmatch("[-+]?[0-9]{16,}", text) is not None and int(float(text)) != int(text)


def any_inexact_in_float32(values: np.ndarray) -> bool:
    """Whether float32 changes a whole number, or has no number near a value; fast if all are small.

    Values that are not finite are not looked at.
    """
    size = np.abs(values)
    tiny = np.finfo(np.float32).smallest_subnormal
    if not size.size or (size.max() <= 1 << 24 and not ((size < tiny) & (size > 0)).any()):
        return False
    return bool(_inexact_in_float32(values).any())


def _inexact_in_float32(values: np.ndarray) -> np.ndarray:
    """Which finite values are whole numbers that float32 changes, or beyond its range."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
        whole = (rounded != values) & (np.trunc(values) == values)
        out_of_range = np.isinf(rounded) | ((rounded == 0) & (values != 0))
    return (whole | out_of_range) & np.isfinite(values)


@dataclass
class _Cells:
    """Different values in float32: column and bits as a key, smallest and largest value in float64."""

    keys: npt.NDArray[np.uint64]
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @classmethod
    def of(cls, parts: list[_Cells]) -> _Cells:
        """All values of some parts, each key once, in ascending order."""
        keys = np.concatenate([part.keys for part in parts])
        order = np.argsort(keys)
        keys = keys[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        if not len(keys):
            return cls(keys, np.empty(0), np.empty(0))
        low = np.concatenate([part.low for part in parts])[order]
        high = np.concatenate([part.high for part in parts])[order]
        return cls(
            keys[starts], np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
        )

    def part(self, keep: np.ndarray) -> _Cells:
        return _Cells(self.keys[keep], self.low[keep], self.high[keep])

    @property
    def columns(self) -> npt.NDArray[np.int64]:
        return (self.keys >> np.uint64(32)).astype(np.int64)


class Precision:
    """What float32 would do to columns of numbers, whose values are added block by block.

    budget : of the source. Of very many columns, only the first ones that fit are examined by the second
        and the third rule.
    """

    def __init__(self, budget: Budget) -> None:
        most_bytes = budget.total // _PART
        self._most_columns = max(1, most_bytes // 4 // _COLUMN_BYTES)
        self._most_cells = max(_LEAST_CELLS, most_bytes // 2 // _CELL_BYTES)
        # values seen last, which need no second look: columns often have few different ones
        self._recent = np.zeros(1 << max(10, int(most_bytes // 32).bit_length() - 1), np.uint64)
        self._low, self._high, self._move = np.empty(0), np.empty(0), np.empty(0)
        self._count = np.empty(0, np.int64)
        self._limit = np.empty(0, np.uint32)  # values with hashes up to it are in the sample
        self._cells = _Cells.of([_Cells(np.empty(0, np.uint64), np.empty(0), np.empty(0))])
        self._pending: list[_Cells] = []
        self._n_pending = 0
        self._rounded = np.zeros(0, bool)
        self._n_rows = 0
        self._changed = self._beyond = -1

    def add_rows(self, values: npt.NDArray[np.float64]) -> None:
        """Add rows of all columns: float64 (m, k), NaN for missing values."""
        m, k = values.shape
        if not k:
            return
        step = max(1, _STEP // k)
        for start in range(0, m, step):
            part = values[start : start + step]
            if self._changed < 0:
                own = part[:, : self._most_columns]
                self._grow(own.shape[1])
                self._range(slice(own.shape[1]), np.fmin.reduce(own), np.fmax.reduce(own))
            if np.isnan(part.sum()):  # a 0 loses nothing
                part = np.where(np.isnan(part), 0.0, part)
            with np.errstate(over="ignore"):
                rounded = part.astype(np.float32)
            columns = np.flatnonzero(self._seen_fractions(rounded != part))
            if not len(columns) or self._finds_changed(columns, part[:, columns]):
                continue
            columns = columns[: np.searchsorted(columns, self._most_columns)]
            part, rounded = part[:, columns], rounded[:, columns]
            move = np.abs(rounded - part).max(0, initial=0.0)
            self._move[columns] = np.maximum(self._move[columns], move)
            self._sample(columns, part, rounded)
        self._n_rows += m

    def add_entries(
        self, columns: npt.NDArray[np.integer], values: npt.NDArray[np.float64], n_rows: int
    ) -> None:
        """Add the entries of rows whose other values are 0: columns and values, (entries,)."""
        for start in range(0, len(values), _STEP):
            part = columns[start : start + _STEP]
            order = np.argsort(part, kind="stable")
            self._add(part[order].astype(np.int64), values[start : start + _STEP][order])
        self._n_rows += n_rows

    @property
    def changed(self) -> int | None:
        """A column with a whole number that float32 changes, or a value beyond its range."""
        return None if self._changed < 0 else self._changed

    @property
    def beyond(self) -> int | None:
        """A column with a value that is too large for float32."""
        return None if self._beyond < 0 else self._beyond

    def fault(self, is_sparse: bool = False) -> tuple[int, str] | None:
        """The first column that float32 does not hold, and why, in words that its name completes.

        is_sparse : whether rows without a value have a 0.
        """
        if self._changed >= 0:
            return self._changed, "cannot hold values of"
        low, high = self._low, self._high
        if is_sparse:
            has_zeros = self._count < self._n_rows
            low = np.where(has_zeros, np.minimum(low, 0.0), low)
            high = np.where(has_zeros, np.maximum(high, 0.0), high)
        # columns without a value have an infinite range, and move nothing
        moved = self._move > MOST_MOVE * np.abs(high - low)
        merged = self._merged()
        found = np.flatnonzero(moved | merged)
        if not found.size:
            return None
        column = int(found[0])
        why = "makes different values equal in" if merged[column] else "moves values too far in"
        return column, why

    def _add(self, columns: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> None:
        """Add values whose columns ascend."""
        if self._finds_changed(columns, values):
            return
        n_examined = int(np.searchsorted(columns, self._most_columns))
        if not n_examined:
            return
        columns, values = columns[:n_examined], values[:n_examined]
        self._grow(int(columns[-1]) + 1)
        starts = np.flatnonzero(np.append(True, columns[1:] != columns[:-1]))
        own = columns[starts]
        rounded = values.astype(np.float32)
        move = np.maximum.reduceat(np.abs(rounded - values), starts)
        self._range(own, np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts))
        self._move[own] = np.maximum(self._move[own], move)
        self._count[own] += np.diff(np.append(starts, len(values)))
        self._sample(columns, values, rounded)

    def _finds_changed(
        self, columns: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
    ) -> bool:
        """Whether a value was found that float32 cannot hold, now or before.

        values : (..., columns).
        """
        if self._beyond >= 0:
            return True
        large = np.abs(values) > np.finfo(np.float32).max
        if large.any():
            self._beyond = self._changed = int(columns[large.argmax() % len(columns)])
        elif self._changed < 0 and any_inexact_in_float32(values):
            at = int(_inexact_in_float32(values).argmax())
            self._changed = int(columns[at % len(columns)])
        return self._changed >= 0

    def _range(
        self, columns: Any, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]
    ) -> None:
        """Widen the range of some columns; NaN for columns without values."""
        self._low[columns] = np.fmin(self._low[columns], low)
        self._high[columns] = np.fmax(self._high[columns], high)

    def _seen_fractions(self, differs: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which columns have, or had, a value that float32 rounds; the others cannot lose anything."""
        found: npt.NDArray[np.bool_] = np.any(differs, axis=0)
        if len(self._rounded) < len(found):
            self._rounded = np.zeros(len(found), bool)
        self._rounded |= found
        return self._rounded

    def _grow(self, n_columns: int) -> None:
        more = n_columns - len(self._count)
        if more > 0:
            self._low = np.append(self._low, np.full(more, np.inf))
            self._high = np.append(self._high, np.full(more, -np.inf))
            self._move = np.append(self._move, np.zeros(more))
            self._count = np.append(self._count, np.zeros(more, np.int64))
            self._limit = np.append(self._limit, np.full(more, _EVERY))

    def _sample(
        self,
        columns: npt.NDArray[np.int64],
        values: npt.NDArray[np.float64],
        rounded: npt.NDArray[np.float32],
    ) -> None:
        """Keep the values whose hashes in float32 are up to the limit of their column.

        columns : int64 (k,), ascending.
        values, rounded : (..., k).
        """
        n_sampled = np.searchsorted(columns, self._most_cells // _LEAST_CELLS)
        columns, values = columns[:n_sampled], values[..., :n_sampled]
        bits = (rounded[..., :n_sampled] + np.float32(0)).view(np.uint32)  # without -0.0
        keep = np.nonzero(_hash(bits) <= self._limit[columns])
        columns, values, bits = columns[keep[-1]], values[keep] + 0.0, bits[keep]
        keys = columns.astype(np.uint64) << np.uint64(32) | bits
        seen = values.view(np.uint64) ^ columns.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        slots = (seen * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(
            65 - len(self._recent).bit_length()
        )
        new = self._recent[slots] != seen
        self._recent[slots] = seen
        # the table begins with zeros, as which a value may look
        new |= seen == 0
        keys, values = keys[new], values[new]
        self._pending.append(_Cells(keys, values, values))
        self._n_pending += len(keys)
        if self._n_pending > max(_STEP // 2, len(self._cells.keys) // 2):
            self._settle()

    def _settle(self) -> None:
        """Join what is pending, and lower the limits of columns with too many different values."""
        cells = _Cells.of([self._cells, *self._pending])
        self._pending, self._n_pending = [], 0
        most = min(_CELLS, max(_LEAST_CELLS, self._most_cells // max(1, len(self._limit))))
        while True:
            columns = cells.columns
            full = np.bincount(columns, minlength=len(self._limit)) > most
            if not full.any():
                break
            self._limit[full] >>= np.uint32(1)
            bits = cells.keys.astype(np.uint32)
            cells = cells.part(_hash(bits) <= self._limit[columns])
        self._cells = cells

    def _merged(self) -> npt.NDArray[np.bool_]:
        """Which columns have different values that float32 makes equal; in a sample, not by chance."""
        self._settle()
        cells, k = self._cells, len(self._limit)
        several = cells.high - cells.low > _SAME * np.maximum(np.abs(cells.low), np.abs(cells.high))
        n_cells = np.bincount(cells.columns, minlength=k)
        n_several = np.bincount(cells.columns[several], minlength=k)
        by_chance = np.maximum(_LEAST_MERGED - 1, MOST_MERGED * n_cells)
        return n_several > np.where(self._limit < _EVERY, by_chance, 0)


def stored_type(
    option: str,
    known: str | None,
    precision: Precision,
    names: Callable[[int], str],
    is_sparse: bool = False,
) -> tuple[np.dtype, str]:
    """The dtype of the numbers of X, and why, for the summary.

    option : {"auto", "float32", "float64"}, what the user asks for.
    known : {"float32", "float64"} or None, the dtype of the training rows; None without any.
    precision : to which all values were added. If ``needs_survey`` is false, no values are needed.
    names : the name of a column of ``precision``.
    is_sparse : whether rows without a value have a 0.
    """

    def column(at: int) -> str:
        return f"the column {shown(names(at))}"

    if option == "float64":
        return np.dtype(np.float64), ""
    if option == "float32" and precision.changed is not None:
        raise InputError(
            f"--dtype float32 cannot hold values of {column(precision.changed)}; give --dtype float64"
        )
    if option == "auto" and known is not None:
        if known == "float32" and precision.beyond is not None:
            why = f"float32 cannot hold values of {column(precision.beyond)}"
            return np.dtype(np.float64), f"float64, {why} (--dtype)"
        return np.dtype(known), f"{known}, as in the training data (--dtype)"
    fault = precision.fault(is_sparse)
    if fault is None:
        return np.dtype(
            np.float32
        ), "" if option == "float32" else "float32, about 7 digits (--dtype)"
    at, why = fault
    if option == "float32":
        return np.dtype(np.float32), f"float32, which {why} {column(at)} (--dtype)"
    return np.dtype(np.float64), f"float64, float32 {why} {column(at)} (--dtype)"


def needs_survey(option: str, known: str | None) -> bool:
    """Whether :func:`stored_type` needs to know the values."""
    return option == "float32" or (option == "auto" and known != "float64")


def _hash(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Spread numbers of 32 bits, each to another one (the finaliser of MurmurHash3)."""
    h = bits ^ (bits >> np.uint32(16))
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return h
