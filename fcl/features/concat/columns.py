"""Makes the columns of several families with the makers of the members, in a common form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import (
    BitColumns,
    ColumnMaker,
    Columns,
    DenseColumns,
    Ids,
    StepColumns,
    column_bytes,
    value_type,
)

if TYPE_CHECKING:
    from fcl.features.concat.family import ConcatFamily


class ConcatColumns(ColumnMaker):
    """Columns of several families: bits if all are binary, steps if all have one step, else numbers."""

    def __init__(self, family: ConcatFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        self._family, self._prepared = family, prepared
        # half for the columns that are returned, the rest for the buffers of the members
        super().__init__(buffer_bytes // 2, column_bytes(family, prepared.n_rows))
        share = buffer_bytes // (2 * len(family.members))
        self._makers: list[ColumnMaker] = [
            member.column_maker(family.part(prepared, m), share)
            for m, member in enumerate(family.members)
        ]

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """Order by member, and within a member in the order that it prefers."""
        family = self._family
        return np.concatenate(
            [own[self._makers[m].order(family.local(m, ids[own]))] for m, own in family.split(ids)]
            or [np.empty(0, np.intp)]
        )

    def make(self, ids: Ids) -> Sequence[Columns]:
        binary, step = self._family.binary, self._family.step
        dtype = value_type(self._prepared.n_rows)
        out: list[Any] = []
        for _, rows in self._prepared.blocks():
            n = rows.stop - rows.start
            out.append(
                BitColumns(np.empty((len(ids), -(-n // 64)), np.uint64), n)
                if binary
                else StepColumns(np.empty((len(ids), n), np.int8), n, step)
                if step
                else DenseColumns(np.empty((len(ids), n), dtype), n)
            )
        for m, own in self._family.split(ids):
            maker = self._makers[m]
            for at in range(0, len(own), maker.batch):
                some = own[at : at + maker.batch]
                made = maker.make(self._family.local(m, ids[some]))
                for into, block in zip(out, made, strict=True):
                    if binary:
                        into.bits[some] = block.bits[:, : into.bits.shape[1]]  # type: ignore[union-attr]
                    elif step:
                        into.steps[some] = block.steps  # type: ignore[union-attr]
                    else:
                        into.values[some] = _values(block)
        return out


def _values(columns: Columns) -> npt.NDArray[Any]:
    """Convert columns on a block to an array of values (c, n_rows)."""
    if isinstance(columns, DenseColumns):
        return columns.values
    if isinstance(columns, StepColumns):
        return columns.step * columns.steps
    bits = np.ascontiguousarray(columns.bits).view(np.uint8)
    return np.unpackbits(bits, axis=1, count=columns.n_rows, bitorder="little")
