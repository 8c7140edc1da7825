"""Folds: which rows are held out together."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.checks import is_whole
from fcl.data import DataSet
from fcl.data.memory import MemoryReader
from fcl.errors import InputError

#: For each row the number of the fold that holds it out, from 0; -1: no fold holds it out.
Folds = npt.NDArray[np.int64]


def fold_of_rows(cv: Any, data: DataSet, groups: Any, classifies: bool, seed: int) -> Folds:
    """The fold of each row.

    cv : a number of folds; the fold of each row by any labels (glmnet's ``foldid``); or an object with
        the method ``split`` of scikit-learn.
    groups : (n,), rows of one group are held out together; or None.
    classifies : whether the target has labels, whose shares are kept in each fold.
    seed : shuffles the rows of a number of folds.
    """
    held = None if groups is None else encode_groups("groups", groups, data.n_rows)
    if is_whole(cv) and not isinstance(cv, bool):
        most = data.n_rows if held is None else int(held.max()) + 1
        what = "rows" if held is None else "groups"
        if most < 2:
            one = "1 sample" if held is None else "1 group"
            raise InputError(f"cv: expected at least 2 {what} to hold out, got {one}")
        if not 2 <= cv <= most:
            raise InputError(f"cv: expected 2 to {most} folds for {most} {what}, got {cv}")
        strata = _strata(data, classifies)
        if held is None:
            return _stratified(strata, int(cv), seed)
        return _balanced_groups(held, strata, int(cv))
    if hasattr(cv, "split"):
        folds = _from_splitter(cv, data, groups)
    else:
        folds = encode_groups("cv", cv, data.n_rows)
    if folds.max() < 1:
        raise InputError(f"cv: expected at least two folds, got {folds.max() + 1} from {cv!r:.200}")
    if held is not None:
        _refuse_split_groups(folds, held)
    return folds


def outer_folds(
    data: DataSet, outer: Any, cv: Any, groups: Any, classifies: bool, seed: int
) -> tuple[Folds, list[Folds]]:
    """The outer fold of each row, and for each of these folds the folds of the rows that are left.

    Arguments and errors as for :func:`fcl.train_path`, and of :func:`fold_of_rows`.
    """
    groups = data.groups if groups is None else groups
    try:
        found = fold_of_rows(outer, data, groups, classifies, seed)
    except InputError as error:
        raise InputError(f"outer: {str(error).removeprefix('cv: ')}") from None
    inner = []
    for fold in range(int(found.max()) + 1):
        left = np.flatnonzero(found != fold)
        own = np.full(data.n_rows, -1, np.int64)
        some = None if groups is None else np.asarray(groups).reshape(data.n_rows)[left]
        rows = MemoryReader(np.zeros((len(left), 1)), data.name)
        part = DataSet(data.name, rows, None if data.target is None else data.target[left])
        own[left] = fold_of_rows(_cv_of(cv, left, some), part, some, classifies, seed)
        inner.append(own)
    return found, inner


def _cv_of(cv: Any, left: np.ndarray, groups: Any) -> Any:
    """The argument ``cv`` for some of the rows: their labels, or at most as many folds as groups."""
    if is_whole(cv) and not isinstance(cv, bool):
        return cv if groups is None else min(cv, len(np.unique(groups)))
    return cv if hasattr(cv, "split") else np.asarray(cv).reshape(-1)[left]


def encode_groups(name: str, labels: Any, n_rows: int) -> npt.NDArray[np.int64]:
    """Number the groups of rows from 0, in the order of their labels.

    Raises InputError unless there is one label for each row.
    """
    try:
        values = np.asarray(labels)
    except ValueError:
        values = np.empty(0)
    if values.shape not in ((n_rows,), (n_rows, 1)):
        raise InputError(
            f"{name}: expected one label for each of {n_rows} rows, got {labels!r:.200}; give a number "
            "of folds, or an array"
        )
    try:
        _, codes = np.unique(values.reshape(-1), return_inverse=True)
    except TypeError:  # labels of several types
        _, codes = np.unique(values.reshape(-1).astype(str), return_inverse=True)
    return codes.astype(np.int64)


def check_labels_of_folds(folds: Folds, data: DataSet, warn: bool) -> None:
    """Warn of folds whose held-out rows have one label, so that rankings have no score.

    Raises InputError if there are no others.
    """
    labels = _strata(data, True)
    counted = folds >= 0 if data.weights is None else (folds >= 0) & (data.weights > 0.0)
    seen = np.zeros((folds.max() + 1, labels.max() + 1), np.bool_)
    seen[folds[counted], labels[counted]] = True
    single = np.flatnonzero(seen.sum(axis=1) == 1)
    if not len(single):
        return
    if len(single) == len(seen):
        raise InputError(
            f"cv: expected folds that hold out rows of both labels, got one label in each of {len(seen)} "
            "folds, whose AUPRC is undefined; use fewer folds, or other groups"
        )
    if warn:
        warnings.warn(
            f"cv: {len(single)} of {len(seen)} folds hold out rows of one label, the first of them fold "
            f"{single[0] + 1}; their AUPRC is undefined, so that scores are means over the other folds",
            stacklevel=5,
        )


def _strata(data: DataSet, classifies: bool) -> npt.NDArray[np.int64]:
    """The label of each row as a number; 0 without labels."""
    if not classifies or data.target is None:
        return np.zeros(data.n_rows, np.int64)
    return encode_groups("y", data.target, data.n_rows)


def _stratified(strata: npt.NDArray[np.int64], n_folds: int, seed: int) -> Folds:
    """Deal the shuffled rows of one label after the other to the folds in turn."""
    shuffled = np.random.default_rng([seed, 0xF01D]).permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    folds = np.empty(len(strata), np.int64)
    folds[order] = np.arange(len(strata)) % n_folds
    return folds


def _balanced_groups(
    groups: npt.NDArray[np.int64], strata: npt.NDArray[np.int64], n_folds: int
) -> Folds:
    """Give each group, the largest first, to the fold that it leaves most even.

    Even in the share of the rows and of each label that a fold holds.
    """
    counts = np.zeros((groups.max() + 1, strata.max() + 1))
    np.add.at(counts, (groups, strata), 1.0)
    counts = np.column_stack([counts, counts.sum(axis=1)])  # with all rows, no fold stays empty
    shares = counts / counts.sum(axis=0)
    filled = np.zeros((n_folds, counts.shape[1]))
    fold_of_group = np.empty(len(counts), np.int64)
    for group in np.argsort(-counts[:, -1], kind="stable"):
        after = ((filled + shares[group]) ** 2).sum(axis=1) - (filled**2).sum(axis=1)
        fold = int(np.argmin(after))
        fold_of_group[group] = fold
        filled[fold] += shares[group]
    return fold_of_group[groups]


def _from_splitter(cv: Any, data: DataSet, groups: Any) -> Folds:
    """The folds of a splitter of scikit-learn, which must hold each row out at most once."""
    folds = np.full(data.n_rows, -1, np.int64)
    rows = np.zeros((data.n_rows, 1))
    for number, (train, test) in enumerate(cv.split(rows, data.target, groups)):
        if max(np.max(train, initial=-1), np.max(test, initial=-1)) >= data.n_rows:
            raise InputError(f"cv: expected a splitter of {data.n_rows} rows, got {cv!r:.200}")
        held = np.zeros(data.n_rows, bool)
        held[test] = True
        if (folds[held] >= 0).any():
            raise InputError(f"cv: expected a splitter that holds each row out once, got {cv!r}")
        if held[train].any() or len(np.unique(train)) + held.sum() != data.n_rows:
            raise InputError(
                f"cv: expected a splitter that trains on all rows that it does not hold out, got {cv!r}"
            )
        folds[held] = number
    return folds


def _refuse_split_groups(folds: Folds, groups: npt.NDArray[np.int64]) -> None:
    _, first = np.unique(groups, return_index=True)
    split = np.flatnonzero(folds[first][groups] != folds)
    if len(split):
        row = int(split[0])
        raise InputError(
            f"cv: row {row} is in another fold than other rows of its group; a group must not be split"
        )
