"""Makes the columns of a generator's features, in batches that limit the memory of float64 copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fcl.errors import GeneratorError
from fcl.features.base import (
    BitColumns,
    ColumnMaker,
    Columns,
    DenseColumns,
    Ids,
    StepColumns,
    value_type,
)
from fcl.features.generator.contract import overrides

__all__ = ["STAGES", "STAGE_BYTES", "GeneratedColumns", "batches"]

#: Bytes of the float64 columns that are made at a time, and the number of arrays of this size that exist
#: together: the columns as returned, in float64, their squares, and three temporaries of the generator.
STAGE_BYTES = 16 << 20
STAGES = 6
#: Largest |value|, also for columns cached in float64: the trainer's samples of rows are in float32.
LARGEST = float(np.finfo(np.float32).max)


def batches(k: int, n: int) -> Iterator[slice]:
    """Slices of k columns of n rows that take at most STAGE_BYTES in float64."""
    size = max(1, STAGE_BYTES // (8 * max(1, n)))
    for at in range(0, k, size):
        yield slice(at, min(at + size, k))


class GeneratedColumns(ColumnMaker):
    """Makes the columns of a generator's features as bits, steps or numbers."""

    def make(self, ids: Ids) -> Sequence[Columns]:
        family, step = self.family, self.family.step
        dtype = value_type(self.prepared.n_rows)
        made: list[Columns] = []
        for number, rows in self.prepared.blocks():
            n = rows.stop - rows.start
            block = family.block(self.prepared, number)
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
            f"features {self.family.name}: expected |values| up to 3.4e38, the limit of float32, got "
            f"{most[k]:.3g} for feature {ids[k]} on row block {number}; scale the feature"
        )


def _bits(columns: np.ndarray) -> npt.NDArray[np.uint64]:
    """Pack columns (k, n) of zeros and ones into bitmaps (k, words)."""
    k, n = columns.shape
    packed = np.packbits(columns != 0, axis=1, bitorder="little")
    out = np.zeros((k, 8 * -(-n // 64)), np.uint8)
    out[:, : packed.shape[1]] = packed
    return out.view(np.uint64)
