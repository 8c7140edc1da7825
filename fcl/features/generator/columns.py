"""Makes the columns of a generator's features, in batches that limit the memory of float64 copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fcl.features.base import (
    BitColumns,
    ColumnMaker,
    Columns,
    StepColumns,
    empty_columns,
    value_type,
)
from fcl.features.generator.checked import fault
from fcl.features.generator.contract import overrides
from fcl.types import Ids

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
        family, dtype = self.family, value_type(self.prepared.n_rows)
        direct = family.binary and overrides(family.generator, "bits")
        out: list[Columns] = []
        for number, rows in self.prepared.blocks():
            n = rows.stop - rows.start
            block = family.block(self.prepared, number)
            listed = family.listed_columns(ids, block, dtype)
            if listed is not None and _largest(listed.values) <= LARGEST:
                out.append(listed)
                continue
            made = empty_columns(family, len(ids), n, dtype)
            for some in batches(len(ids), n):
                if direct and isinstance(made, BitColumns):
                    made.bits[some] = family.generator.bits(ids[some], block)
                    continue
                columns = family.columns(ids[some], block, number, n).T
                if isinstance(made, BitColumns):
                    made.bits[some] = _bits(columns)
                elif isinstance(made, StepColumns):
                    made.steps[some] = np.rint(columns / made.step)
                else:
                    if columns.dtype.itemsize > 4 and _largest(columns) > LARGEST:
                        self._refuse_large(ids[some], columns, number)
                    made.values[some] = columns
            out.append(made)
        return out

    def _refuse_large(self, ids: Ids, columns: np.ndarray, number: int) -> None:
        most = np.abs(columns).max(axis=1)
        k = int(np.argmax(most))
        raise fault(
            self.family.generator,
            f"features {self.family.name}: expected |values| up to 3.4e38, the limit of float32, got "
            f"{most[k]:.3g} for feature {ids[k]} on row block {number}; scale the feature",
        )


def _largest(columns: np.ndarray) -> float:
    """The largest |value|."""
    return max(float(columns.max(initial=0.0)), -float(columns.min(initial=0.0)))


def _bits(columns: np.ndarray) -> npt.NDArray[np.uint64]:
    """Pack columns (k, n) of zeros and ones into bitmaps (k, words)."""
    k, n = columns.shape
    packed = np.packbits(columns != 0, axis=1, bitorder="little")
    out = np.zeros((k, 8 * -(-n // 64)), np.uint8)
    out[:, : packed.shape[1]] = packed
    return out.view(np.uint64)
