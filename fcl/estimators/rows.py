"""Convert the X, y, sample weights and offset of estimators to data sets.

X is an array, a data frame or a sparse matrix, as everywhere in scikit-learn; or a data set: its path, or
what ``fcl.open_data`` returned. Families over sequences take arrays and lists of letters or codes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names, column_or_1d, validate_data

from fcl.data import DataSet, SequenceReader, check_weights, open_data
from fcl.data.base import check_none_missing, fixed_text
from fcl.data.frame import check_numeric, is_frame
from fcl.data.sparse import check_matrix
from fcl.drivers.problem import checked_spec
from fcl.errors import InputError
from fcl.features import Bag, Concat, Family, Generator, Spec
from fcl.features.bag import BagFamily
from fcl.features.concat.family import ConcatFamily


@dataclass(frozen=True)
class RowArrays:
    """What a user gives besides X: for each row arrays, names of stored arrays, or None.

    y, sample_weight, offset : array-like (n,), str or None
    covariates : array-like (n, columns), data frame, str or None
    feature_names : array-like of str (m,) or None, names of the columns of X.
    """

    y: Any = None
    sample_weight: Any = None
    offset: Any = None
    covariates: Any = None
    feature_names: Any = None

    def names_of(self, n_columns: int) -> list[str]:
        """The names of the columns of a matrix; InputError if they are not as many, or not distinct."""
        names = [str(name) for name in self.feature_names]
        if len(names) != n_columns or len(set(names)) < len(names):
            raise InputError(
                f"feature_names: expected {n_columns:,} distinct names, one for each column of X, got "
                f"{len(names):,}, {len(set(names)):,} of them distinct"
            )
        return names

    def refuse_names(self, what: str) -> None:
        """Raise InputError if names are given for rows that have their own, or none."""
        if self.feature_names is not None:
            raise InputError(f"feature_names: expected None for {what}; leave it out")

    def add_to(self, data: DataSet) -> DataSet:
        """The data set with this offset and these covariates."""
        return data.with_added(self.offset, _columns(self.covariates))


@dataclass(frozen=True)
class Training:
    """Rows with a target and sample weights.

    target : (n,), or (n, outputs) for at least two outputs
    weights : float64 (n,) or None
    names : names of the outputs; None if they have none.
    """

    data: DataSet
    target: np.ndarray
    weights: np.ndarray | None
    names: tuple[str, ...] | None = None

    @property
    def sum_weights(self) -> float:
        """Sum of the sample weights, or the number of rows without weights."""
        return float(len(self.target) if self.weights is None else self.weights.sum())

    @property
    def weighted_target(self) -> np.ndarray:
        """Targets of the rows whose weight is not 0."""
        return self.target if self.weights is None else self.target[self.weights > 0.0]


def takes_sequences(features: Spec | Family) -> bool:
    """Whether the rows of a family are windows of letters."""
    if isinstance(features, Concat):
        return takes_sequences(features.members[0][0])
    if isinstance(features, Generator):
        return features.rows == "sequences"
    # the specs of k-mers and bags do not declare it: they always read sequences
    return getattr(features, "row_kind", "sequences") == "sequences"


class RowEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator whose family of features, a parameter, decides what rows it takes."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            sequences = takes_sequences(checked_spec(self.features))
        except InputError:  # fit reports it
            sequences = False
        tags.input_tags.sparse = not sequences
        tags.input_tags.string = sequences
        return tags


def is_data_set(X: Any) -> bool:
    """Whether X is a data set or the path of one."""
    return isinstance(X, DataSet | str | os.PathLike)


def open_training(
    estimator: BaseEstimator, spec: Spec, X: Any, given: RowArrays, numeric: bool
) -> Training:
    """Open the rows, target and weights of a fit; sets n_features_in_ and feature_names_in_.

    given : with a path, a ``y`` of None means the array ``y``; with a data set, its own target.
    numeric : whether the target is a number.
    """
    y, names = given.y, None
    vars(estimator).pop("feature_names_", None)  # of an earlier fit
    if y is not None:
        _check_labels(y)
    if is_data_set(X):
        given.refuse_names("a data set, whose columns may have names of their own")
        data = _open_data_set(X, given)
        target, weights, names = data.target, data.weights, data.target_columns
        assert target is not None
        estimator.n_features_in_ = _width(spec, data)
        # removes the column names of an earlier fit
        _check_feature_names(estimator, data, reset=True)
        if data.column_names is not None:
            estimator.feature_names_in_ = np.array(data.column_names, dtype=object)
    elif takes_sequences(spec):
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        given.refuse_names("sequences")
        data = open_data(_sequences(X, spec), y=None)
        target = _outputs(y)
        _check_length("y", target, data)
        estimator.n_features_in_ = _width(spec, data)
        _check_feature_names(estimator, data, reset=True)
        data, weights = given.add_to(data), _weights(given.sample_weight, data)
    else:
        if is_frame(X):  # scikit-learn's error does not name the column
            given.refuse_names("a data frame, whose columns have names")
            check_numeric(X)
        if issparse(X):
            check_matrix(X, "X")
        names_of_columns = _column_names(X)
        X, target = validate_data(
            estimator,
            X,
            y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            y_numeric=numeric,
            multi_output=_n_outputs(y) > 1,
        )
        target = _outputs(target)
        data = open_data(_canonical(X), y=None)
        if given.feature_names is not None:
            # scikit-learn warns of later rows without names where feature_names_in_ is set
            estimator.feature_names_ = names_of_columns = given.names_of(X.shape[1])
        data.column_record = replace(data.column_record, names=names_of_columns)
        data, weights = given.add_to(data), _weights(given.sample_weight, data)
    target = np.asarray(target)
    if _n_outputs(target) > 1:
        if is_frame(y):
            names = tuple(str(name) for name in y.columns)
        return Training(data, target, weights, names)
    return Training(data, target if numeric else _plain_labels(target), weights)


def _check_labels(y: Any) -> None:
    """Raise InputError if labels that are objects or text are missing; the same for all estimators.

    scikit-learn says so only of NaN, and compares None or NA with text.
    """
    values = np.asarray(y) if not issparse(y) else np.empty(0)
    if values.dtype.kind in "OT":
        check_none_missing("y", values.ravel().tolist())


def _n_outputs(y: Any) -> int:
    """Number of columns of targets (n, outputs); 1 for any others."""
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return int(shape[1]) if len(shape) == 2 else 1


def _outputs(y: Any) -> np.ndarray:
    """Targets of several columns as a dense array (n, outputs), all others as (n,)."""
    if _n_outputs(y) < 2:
        return np.asarray(column_or_1d(y, warn=True))
    return np.asarray(y.toarray() if issparse(y) else y)


def open_rows(
    estimator: BaseEstimator, family: Family, X: Any, offset: Any = None, covariates: Any = None
) -> DataSet:
    """Open the rows to predict."""
    if isinstance(X, DataSet):
        return RowArrays(offset=offset, covariates=covariates).add_to(X)
    names = None
    if takes_sequences(family) and not is_data_set(X):
        X = _sequences(X, family)
    elif not is_data_set(X):
        names, dtypes = _column_names(X), (np.float64, np.float32)
        if issparse(X):
            check_matrix(X, "X")
        X = _canonical(validate_data(estimator, X, accept_sparse="csr", dtype=dtypes, reset=False))
    data = open_data(X, y=None, offset=offset, covariates=_columns(covariates))
    if names is not None:
        data.column_record = replace(data.column_record, names=names)
    return data


def _column_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame, whatever they are: texts, numbers or tuples; else None.

    scikit-learn compares names only if all are texts.
    """
    if not is_frame(X):
        return None
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise InputError(f"X: the data frame has several columns {name!r}; rename them")
    return names


def _columns(covariates: Any) -> Any:
    """Lists of numbers as an array; names, data frames and None as they are."""
    if covariates is None or isinstance(covariates, str) or is_frame(covariates):
        return covariates
    values = np.asarray(covariates)  # an object, of a sparse matrix
    return values if values.dtype.kind in "biuf" else covariates


def open_scored(X: Any, given: RowArrays) -> tuple[Any, RowArrays]:
    """X and the arrays to score; arguments as in :func:`open_training`.

    Arrays are returned unchanged. A data set is returned opened, with offset and covariates in it and
    None in their place.
    """
    if not is_data_set(X):
        return X, given
    data = _open_data_set(X, given)
    target = np.asarray(data.target)
    target = _plain_labels(target) if target.dtype.kind == "S" else target
    return data, RowArrays(target, data.weights)


def _open_data_set(X: Any, given: RowArrays) -> DataSet:
    y, sample_weight, offset = given.y, given.sample_weight, given.offset
    if not isinstance(y, str) and y is not None:
        y = _outputs(y)
    if not isinstance(X, DataSet):
        weights = sample_weight
        if weights is not None and not isinstance(weights, str):
            weights = np.asarray(weights)
        y = "y" if y is None else y
        covariates = _columns(given.covariates)
        return open_data(X, y=y, weights=weights, offset=offset, covariates=covariates)
    if any(isinstance(given, str) for given in (y, sample_weight, offset)):
        raise InputError(
            f"{X.name} is opened already: expected y, sample_weight and offset as arrays, or None for "
            f"its own, got y={y!r:.40}, sample_weight={sample_weight!r:.40}, offset={offset!r:.40}; name "
            "them in fcl.open_data"
        )
    X = given.add_to(X)
    target = X.target if y is None else y
    if target is None:
        raise InputError(f"{X.name}: training needs a target, and none was opened (y=None)")
    _check_length("y", target, X)
    weights = X.weights if sample_weight is None else _weights(sample_weight, X)
    return X.with_target(target, weights, X.target_name if y is None else "y")


def _weights(sample_weight: Any, data: DataSet) -> np.ndarray | None:
    if sample_weight is None:
        return None
    return check_weights(np.asarray(sample_weight), data.n_rows, "sample_weight")


def _check_length(name: str, values: np.ndarray, data: DataSet) -> None:
    if len(values) != data.n_rows:
        raise InputError(
            f"{name} has {len(values)} values for {data.n_rows} rows; expected one per row"
        )


def _width(spec: Spec, data: DataSet) -> int:
    if takes_sequences(spec):
        return SequenceReader(data.rows).length
    return data.rows.shape[1] if len(data.rows.shape) == 2 else 1


def _sequences(X: Any, features: Spec | Family) -> np.ndarray:
    """Letters or codes, (n,) or (n, L); text of shape (n, 1) becomes (n,).

    Bags do not depend on positions: the shorter ones of their sequences are padded with N.
    """
    if issparse(X):
        raise InputError(
            f"X is a sparse matrix ({type(X).__name__}), and sparse rows are not sequences; expected "
            "(n, L) codes or letters, or (n,) text, as an array or a list (codes: X.toarray())"
        )
    rows = np.asarray(X)
    if rows.ndim == 2 and rows.shape[1] == 1 and rows.dtype.kind in "OSTU":
        rows = rows[:, 0]
    bags = _bags(features)
    if bags and rows.ndim == 1 and rows.dtype.kind in "OSTU" and len(rows):
        rows = fixed_text(rows, "X") if rows.dtype.kind in "OT" else rows
        length = max(int(np.strings.str_len(rows).max()), getattr(bags[0], "length", 0))
        rows = np.strings.ljust(rows, length, np.array("N", rows.dtype.kind))
    return rows


def _bags(features: Spec | Family) -> list[Bag | BagFamily] | None:
    """The bags of k-mers of which features consist; None if there are others."""
    members: list[Any] = [features]
    if isinstance(features, Concat):
        members = [member for member, _ in features.members]
    elif isinstance(features, ConcatFamily):
        members = list(features.members)
    return members if all(isinstance(member, Bag | BagFamily) for member in members) else None


def _canonical(X: Any) -> Any:
    """A sparse matrix with duplicate entries summed; an array unchanged."""
    if isinstance(X, np.ndarray) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def _plain_labels(labels: np.ndarray) -> np.ndarray:
    """Labels in a dtype that scikit-learn knows: bytes become text, objects the dtype of their items."""
    if labels.dtype.kind == "S":
        return np.char.decode(labels, "utf-8", "backslashreplace")
    if labels.dtype.kind not in "OT":
        return labels
    if all(isinstance(label, str) for label in labels):
        return fixed_text(labels, "y")
    return np.array(labels.tolist())
