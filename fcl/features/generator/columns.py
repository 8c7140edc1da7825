"""Makes the columns of a generator's features for the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.errors import GeneratorError
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
from fcl.features.generator.contract import overrides
from fcl.features.generator.stages import batches

if TYPE_CHECKING:
    from fcl.features.generator.family import GeneratedFamily

__all__ = ["GeneratedColumns"]


#: Largest |value|, also for columns cached in float64: the trainer's samples of rows are in float32.
LARGEST = float(np.finfo(np.float32).max)


class GeneratedColumns(ColumnMaker):
    """Makes the columns of a generator's features as bits, steps or numbers."""

    def __init__(self, family: GeneratedFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        self._family, self._prepared = family, prepared
        super().__init__(buffer_bytes, column_bytes(family, prepared.n_rows))

    def make(self, ids: Ids) -> Sequence[Columns]:
        family, step = self._family, self._family.step
        dtype = value_type(self._prepared.n_rows)
        made: list[Columns] = []
        for number, rows in self._prepared.blocks():
            n = rows.stop - rows.start
            block = family.block(self._prepared, number)
            values: np.ndarray
            if family.binary:
                values = np.zeros((len(ids), -(-n // 64)), np.uint64)
            else:
                values = np.empty((len(ids), n), np.int8 if step else dtype)
            direct = family.binary and overrides(family.generator, "bits")
            for some in batches(len(ids), n):
                if direct:
                    values[some] = family.generator.bits(ids[some], block)
                    continue
                columns = family.columns(ids[some], block, number, n).T
                if family.binary:
                    values[some] = _bits(columns)
                    continue
                if step:
                    values[some] = np.rint(columns / step)
                    continue
                if columns.dtype.itemsize > 4 and not (np.abs(columns) <= LARGEST).all():
                    self._refuse_large(ids[some], columns, number)
                values[some] = columns
            if family.binary:
                made.append(BitColumns(values, n))
            else:
                made.append(StepColumns(values, n, step) if step else DenseColumns(values, n))
        return made

    def _refuse_large(self, ids: Ids, columns: np.ndarray, number: int) -> None:
        most = np.abs(columns).max(axis=1)
        k = int(np.argmax(most))
        raise GeneratorError(
            f"features {self._family.name}: expected |values| up to 3.4e38, the limit of float32, got "
            f"{most[k]:.3g} for feature {ids[k]} on row block {number}; scale the feature"
        )


def _bits(columns: np.ndarray) -> npt.NDArray[np.uint64]:
    """Pack columns (k, n) of zeros and ones into bitmaps (k, words)."""
    k, n = columns.shape
    packed = np.packbits(columns != 0, axis=1, bitorder="little")
    out = np.zeros((k, 8 * -(-n // 64)), np.uint8)
    out[:, : packed.shape[1]] = packed
    return out.view(np.uint64)
