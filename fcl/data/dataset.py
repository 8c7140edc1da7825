"""A data set: rows, with an optional target, weights and offset."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.base import RowReader
from fcl.data.columns import ColumnRecord
from fcl.data.covariates import CovariateArray, read_covariates
from fcl.data.fingerprint import fingerprint
from fcl.data.stamps import Stamp
from fcl.data.targets import check_offset
from fcl.errors import InputError


class DataSet:
    """Rows with their target, weights and offset; returned by :func:`fcl.open_data`.

    Attributes
    ----------
    name : str
        For messages, such as ``train.zarr``.
    rows : RowReader
        Reader of X; a ``SparseRowReader`` if X is a sparse matrix.
    target : (n,) or (n, columns) of any dtype, or None
        As stored; None if no target was opened.
    target_columns : tuple of str, or None
        Names of the columns of a target (n, columns); None if they have none.
    target_name : str
        Name of the target for messages, such as ``train.zarr:y``.
    weights : float64 (n,) or None
        Sample weights, finite, >= 0, not all 0; None if all rows have weight 1.
    offset : float64 (n,) or (n, outputs), or None
        Added to the margins, finite; None for zeros.
    covariates : tuple of CovariateArray, or None
        Unpenalised columns, as they are stored; None for none.
    groups : (n,) of any dtype, or None
        Groups of rows, which folds do not split.
    column_record : ColumnRecord
        What is known about the columns of X, such as their names.
    matched_to : ColumnRecord or None
        The record to which the columns were matched (:func:`fcl.model.columns.matched`).
    ignored_columns : int
        Columns of the source that were left out when columns were matched.

    Examples
    --------
    >>> data = fcl.open_data(np.eye(3), y=np.array([0, 1, 1]), weights=np.array([1.0, 2.0, 1.0]))
    >>> data.n_rows, data.target_name
    (3, 'y')
    >>> data.target, data.weights
    (array([0, 1, 1]), array([1., 2., 1.]))
    >>> data.with_offset([0.5, 0.0, 0.0]).offset
    array([0.5, 0. , 0. ])
    """

    def __init__(
        self,
        name: str,
        rows: RowReader[Any],
        target: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        target_name: str = "y",
        stamps: Sequence[Stamp] = (),
        offset: np.ndarray | None = None,
        column_record: ColumnRecord | None = None,
    ) -> None:
        self.name = name
        self.rows = rows
        self.target = target
        self.weights = weights
        self.offset = offset
        self.target_name = target_name
        self.column_record = column_record or ColumnRecord()
        self.matched_to: ColumnRecord | None = None
        self.ignored_columns = 0
        self.target_columns: tuple[str, ...] | None = None
        self.groups: np.ndarray | None = None
        self.covariates: tuple[CovariateArray, ...] | None = None
        self._stamps = tuple(stamps)
        self._fingerprint: str | None = None
        #: arguments of ``open_data`` that open the same rows in another process; None: not possible
        self.source: dict[str, Any] | None = None

    def with_target(
        self, target: np.ndarray | None, weights: np.ndarray | None, target_name: str = "y"
    ) -> DataSet:
        """The same rows with another target and other weights.

        Parameters
        ----------
        target : (n,) or (n, columns) of any dtype, or None
        weights : float64 (n,) or None
            Sample weights; None for weights of 1.
        target_name : str
            Name of the target, for messages.

        Returns
        -------
        DataSet
            It shares the rows, the offset and the covariates.

        Examples
        --------
        >>> data = fcl.open_data(np.eye(3), y=None)
        >>> data.with_target(np.array([0, 1, 1]), None).target
        array([0, 1, 1])
        """
        other = copy.copy(self)
        other.target, other.weights, other.target_name = target, weights, target_name
        if target is not self.target:
            other.target_columns = None
        other._fingerprint = None
        return other

    def with_offset(self, offset: npt.ArrayLike, name: str = "offset") -> DataSet:
        """The same rows with another offset.

        Parameters
        ----------
        offset : array of float (n,) or (n, outputs)
        name : str
            Name of the offset, for messages.

        Returns
        -------
        DataSet

        Raises
        ------
        InputError
            The offset has another shape, or a number that is not finite.
        """
        other = self.with_target(self.target, self.weights, self.target_name)
        other.offset = check_offset(np.asarray(offset), self.n_rows, name)
        return other

    def with_covariates(self, covariates: Any) -> DataSet:
        """The same rows with other covariates.

        Parameters
        ----------
        covariates : array (n,) or (n, columns), or data frame
            As for :func:`fcl.open_data`.

        Returns
        -------
        DataSet

        Raises
        ------
        InputError
            The covariates do not fit the rows, or have a missing value.
        """
        other = self.with_target(self.target, self.weights, self.target_name)
        other.covariates = read_covariates(None, covariates, self.rows)
        names = [array.name for array in other.covariates]
        other.column_record = replace(self.column_record, covariates=names)
        return other

    def with_added(self, offset: Any = None, covariates: Any = None) -> DataSet:
        """The same rows with another offset and other covariates, each unless it is None."""
        found = self if offset is None else self.with_offset(offset)
        return found if covariates is None else found.with_covariates(covariates)

    @property
    def column_names(self) -> Sequence[str] | None:
        """Names of the columns of X; None if they have none."""
        names = self.column_record.names
        return list(names.values()) if isinstance(names, Mapping) else names

    @property
    def n_rows(self) -> int:
        return self.rows.shape[0]

    def fingerprint(self) -> str:
        """SHA-256 (hex) of all that is opened, and a sample of X; see ``fcl.data.fingerprint``.

        The first call reads 64 spaced blocks of X; later calls return the same value.
        """
        if self._fingerprint is None:
            named = {f"{a.name} {a.levels}": a.values for a in self.covariates or ()}
            self._fingerprint = fingerprint(
                self.rows, self.target, self.weights, self.offset, named, self.column_names
            )
        return self._fingerprint

    def check_unchanged(self) -> None:
        """Raise ``InputError`` if the size or content of a source file changed since it was opened.

        The content is sampled, and only if the modification time has changed. The check takes one
        ``stat`` per file: the HDF5, zip or .npy files, or the metadata files of a Zarr folder. It does
        not notice chunks of a Zarr folder that were rewritten in place.
        """
        for stamp in self._stamps:
            try:
                stamp.check()
            except InputError as error:
                raise InputError(f"{self.name}: {error}") from error

    def __repr__(self) -> str:
        return f"<DataSet {self.name}: {self.rows.shape} {self.rows.dtype}>"
