"""A data set: the rows, with a target and weights where wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.base import FileStamp, RowReader
from fcl.data.fingerprint import fingerprint
from fcl.data.targets import check_offset
from fcl.errors import InputError


class DataSet:
    """Rows, target and weights that belong together; made by ``fcl.open_data``.

    name : for messages, such as ``train.zarr``.
    rows : ``RowReader`` of X; a ``SparseRowReader`` where X is a sparse matrix.
    target : (n,) of any dtype, as stored; None when there is none (prediction).
    target_name : of the array of targets, for messages, such as ``train.zarr:y``.
    weights : float64 (n,), finite, >= 0, not all 0; None when all rows count the same.
    offset : float64 (n,), finite, added to the margins; None for zeros.
    """

    def __init__(
        self,
        name: str,
        rows: RowReader[Any],
        target: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        target_name: str = "y",
        stamps: Sequence[FileStamp] = (),
        offset: np.ndarray | None = None,
    ) -> None:
        self.name = name
        self.rows = rows
        self.target = target
        self.weights = weights
        self.offset = offset
        self.target_name = target_name
        self._stamps = tuple(stamps)
        self._fingerprint: str | None = None
        #: arguments of ``open_data`` with which another process opens the same rows; None: it cannot
        self.source: dict[str, str] | None = None

    def with_target(
        self, target: np.ndarray | None, weights: np.ndarray | None, target_name: str = "y"
    ) -> DataSet:
        """The same rows with another target (n,) and other weights, float64 (n,) or None."""
        other = DataSet(
            self.name, self.rows, target, weights, target_name, self._stamps, self.offset
        )
        other.source = self.source
        return other

    def with_offset(self, offset: npt.ArrayLike, name: str = "offset") -> DataSet:
        """The same rows with other offsets (n,); raises InputError for numbers that are no offsets."""
        other = self.with_target(self.target, self.weights, self.target_name)
        other.offset = check_offset(np.asarray(offset), self.n_rows, name)
        return other

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.rows.shape[0]

    def fingerprint(self) -> str:
        """SHA-256 (hex) of what the data set holds, see ``fcl.data.fingerprint``.

        Reads 64 spaced blocks of X at the first call, and remembers the answer.
        """
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.rows, self.target, self.weights, self.offset)
        return self._fingerprint

    def check_unchanged(self) -> None:
        """Raise ``InputError`` if a source file has another size or content than at the opening.

        The content is sampled, and only where the modification time is new. Costs one ``stat`` per
        file: the HDF5, zip or .npy files, or the metadata files of a Zarr folder. Chunks of a Zarr folder
        rewritten in place are not noticed.
        """
        for stamp in self._stamps:
            try:
                stamp.check()
            except InputError as error:
                raise InputError(f"{self.name}: {error}") from error

    def __repr__(self) -> str:
        return f"<DataSet {self.name}: {self.rows.shape} {self.rows.dtype}>"
