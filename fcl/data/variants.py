"""What ``fcl convert`` stores about variants, the columns of PLINK data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.data.base import RowReader
from fcl.data.dataset import DataSet
from fcl.data.open import open_columns
from fcl.errors import InputError

__all__ = ["Variant", "read_variants"]

_ARRAYS = {name: f"var/{name}" for name in ("a1", "a2", "mean")}
#: Models do not keep longer alleles.
MOST_LETTERS = 1000


@dataclass(frozen=True)
class Variant:
    """A variant of the training data.

    Attributes
    ----------
    a1 : str
        The allele that X counts.
    a2 : str
        The other allele.
    mean : float
        Mean of the genotypes of the training rows, which stands for missing genotypes.
    """

    a1: str
    a2: str
    mean: float


def read_variants(data: DataSet, columns: Sequence[int]) -> dict[int, Variant] | None:
    """Read the variants that some columns of a data set are.

    Parameters
    ----------
    data : DataSet
    columns : sequence of int
        Positions of columns of X, in ascending order.

    Returns
    -------
    dict or None
        Variants by position; None if the data are not from PLINK files, an array cannot be read, or an
        allele is very long. Prediction then needs ``--like``.
    """
    if data.source is None:
        return None
    try:
        readers = open_columns(data.source, _ARRAYS, data.rows.shape[1])
        if len(readers) < len(_ARRAYS):
            return None
        found = [_values(readers[name], columns) for name in _ARRAYS]
    except (InputError, OSError):  # training must not end without a model because of these arrays
        return None
    if any(len(text) > MOST_LETTERS for text in (*found[0], *found[1])):
        return None
    cells = zip(columns, *found, strict=True)
    return {column: Variant(str(a1), str(a2), float(mean)) for column, a1, a2, mean in cells}


def _values(reader: RowReader[Any], columns: Sequence[int]) -> list[Any]:
    """Some of the values of an array, which is read chunk by chunk."""
    places, step = np.asarray(columns, np.int64), reader.chunk_rows
    values: list[Any] = []
    for chunk in np.unique(places // step).tolist():
        block = reader.read(chunk * step, min((chunk + 1) * step, reader.shape[0])).reshape(-1)
        values += block[places[places // step == chunk] - chunk * step].tolist()
    return values
