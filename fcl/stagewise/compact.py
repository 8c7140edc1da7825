"""Compact stagewise models: rounded weights of features, and the rows on which they are measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fcl.data import DataSet
from fcl.files.compact import Encoding, refuse_compact, round_weights
from fcl.stagewise.blocks import TILE_ROWS
from fcl.stagewise.certify import JointGap
from fcl.stagewise.job import training_rows
from fcl.stagewise.model import MOST_VALUES, StagewiseModel
from fcl.types import Floats


def compacted_stagewise(
    model: StagewiseModel, encoding: Encoding, certificate: JointGap | None
) -> StagewiseModel:
    """The model with rounded weights of features; intercepts and calibration stay as they are.

    Raises InputError if the model is compact already, or a weight is too large for the grid.
    """
    refuse_compact(model.encoding, "model")
    features = model.weights.features
    ids = np.arange(len(features))
    rounded = round_weights(features, ids, encoding.m, encoding.rounding, encoding.seed)
    weights = replace(model.weights, features=rounded)
    return replace(model, weights=weights, certificate=certificate, encoding=encoding)


def training_weights(model: StagewiseModel, data: DataSet) -> Floats | None:
    """The weights of all rows in the objective, float64 (n,); None if the model has no certificate."""
    if model.certificate is None:
        return None
    rows = training_rows(data, model.settings, numbers=not model.classifies)
    own = np.zeros(data.n_rows)
    own[slice(None) if rows.keep is None else rows.keep] = rows.s
    return own


def feature_squares(model: StagewiseModel, data: DataSet) -> Iterator[tuple[int, int, Floats]]:
    """Yield (first row, last row + 1, squared norms of the features that predictions use, (n,))."""
    family = model.family
    last = min(model.n_blocks * model.settings.block, family.n_features)
    height = min(TILE_ROWS, family.most_block_rows())
    for number, (start, stop, raw) in enumerate(family.read_rows(data.rows, height)):
        n, block = stop - start, family.block_of(raw)
        squares, at_once = np.zeros(n), max(1, MOST_VALUES // n)
        for first in range(0, last, at_once):
            ids = np.arange(first, min(first + at_once, last))
            columns = family.columns(ids, block, number, n)
            squares += np.einsum("ij,ij->i", columns, columns)
        yield start, stop, squares
