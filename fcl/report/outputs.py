"""What the report measures of a model of several outputs, in one streamed pass over rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fcl.errors import InputError
from fcl.model.labels import encoded_target
from fcl.objective.several import OutputSums, sums_for

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model.predictor import Predictor

__all__ = ["MeasuredOutputs", "measure_outputs"]


@dataclass(frozen=True, eq=False)
class MeasuredOutputs:
    """The errors of a model on the rows of a data set.

    Attributes
    ----------
    data : DataSet
    is_training : bool
        Whether these are the rows on which the model was trained.
    sums : OutputSums
    """

    data: DataSet
    is_training: bool
    sums: OutputSums


def measure_outputs(model: Predictor, data: DataSet) -> MeasuredOutputs:
    """Measure a model on rows with a target; memory does not depend on the number of rows.

    Raises
    ------
    InputError
        The data have no target, a label that the model does not know, or rows unlike the training rows.
    """
    data = model.opened(data)
    if data.target is None:
        raise InputError(
            f"{data.name}: expected a target to compare predictions with, got none; name its array (--y)"
        )
    sums = sums_for(model.noun, model.n_outputs)
    means_of = model.mean if model.mean_name else np.asarray
    y = encoded_target(model, data.target, data.target_name)  # before the rows are read
    for start, stop, margins in model.iter_margins(data):
        weights = None if data.weights is None else data.weights[start:stop]
        sums.add(y[start:stop], means_of(margins), weights)
    return MeasuredOutputs(data, data.fingerprint() == model.fingerprint, sums)
