"""The numbers of a linear model by output, and what the outputs are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.checks import listed, shown
from fcl.errors import InputError
from fcl.model.centres import unfolded
from fcl.model.tasks import Task, find_task
from fcl.objective.losses import Loss, find_loss
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.data.columns import ColumnRecord
    from fcl.features.base import Family
    from fcl.model.covariates import CovariateTerm


class LinearModel:
    """A base of :class:`fcl.Model`, whose fields it reads."""

    family: Family
    ids: Ids
    weights: Floats
    support: Ids
    intercept: Any
    loss: str
    labels: tuple[Any, ...] | None
    options: Mapping[str, Any]
    feature_names: Sequence[str] | None
    column_record: ColumnRecord
    covariates: Sequence[CovariateTerm]
    centres: Mapping[int, float]
    intercept_rest: Any

    # -- numbers

    @property
    def n_outputs(self) -> int:
        """Number K of margins of a row."""
        return math.prod(self.weights.shape[1:])

    @property
    def weights_by_output(self) -> Floats:
        """The weights as a table with a column for each output, float64 (k, K)."""
        return self.weights.reshape(len(self.ids), self.n_outputs)

    @property
    def intercepts(self) -> Floats:
        """The intercept of each output, float64 (K,)."""
        return np.array(self.intercept, np.float64, ndmin=1)

    @property
    def constants(self) -> Floats:
        """The intercept of each output for values minus :attr:`centres`, float64 (K,)."""
        if not self.centres:
            return self.intercepts
        at = np.array([self.centres.get(feature, 0.0) for feature in self.ids.tolist()])
        rests = np.broadcast_to(self.intercept_rest, self.n_outputs).tolist()
        own = zip(self.intercepts.tolist(), rests, self.weights_by_output.T, strict=True)
        return np.array([unfolded(b, rest, w, at) for b, rest, w in own])

    @property
    def n_active(self) -> int:
        """Number of features with a nonzero weight, in any output."""
        return int(np.count_nonzero(self.weights_by_output.any(axis=1)))

    @property
    def group(self) -> bool:
        """Whether the penalty lets a feature in or out of all outputs together."""
        return bool(self.options.get("group"))

    # -- outputs

    @property
    def output_labels(self) -> list[Any]:
        """The label of each output, or its number from 0 without labels; None for a single output."""
        if self.n_outputs == 1:
            return [None]
        return list(range(self.n_outputs)) if self.labels is None else list(self.labels)

    def output_number(self, output: Any) -> int:
        """The number of an output of :attr:`output_labels`; InputError that lists the outputs."""
        known = self.output_labels
        if output not in known:
            raise InputError(
                f"output: expected one of the {len(known)} outputs of the model ({listed(known)}), got "
                f"{shown(output)}"
            )
        return known.index(output)

    def feature_text(self, index: int) -> str:
        """The description of a feature, by its index in ``ids``."""
        if self.feature_names is not None:
            return self.feature_names[index]
        return self.family.describe(int(self.ids[index]))

    def require_one_output(self, what: str, instead: str) -> None:
        """Raise InputError for a model of several outputs.

        what : what needs one output, such as ``--meme``.
        instead : what the user can do.
        """
        if self.n_outputs > 1:
            raise InputError(
                f"{what} needs a model of one output, this one has {self.n_outputs:,}; {instead}"
            )

    @property
    def loss_object(self) -> Loss:
        """The loss with its formula, link and metric."""
        return find_loss(self.loss)

    @property
    def task(self) -> Task:
        """What the outputs are, and how margins become predictions."""
        return find_task(self.loss, self.n_outputs)

    @property
    def noun(self) -> str:
        """What an output is: "class", "target" or "label"."""
        return self.task.noun

    @property
    def mean_name(self) -> str:
        """What :meth:`mean` is called; see :attr:`fcl.objective.losses.Loss.mean_name`."""
        return self.task.mean_name

    def mean(self, margins: Floats) -> Floats:
        """The expected targets, float64 (n,) or (n, K); for labels, probabilities.

        For one output of two labels this is the probability of ``labels[1]``. Raises InputError if the
        loss has no link from margins to a mean.
        """
        return self.task.mean(margins)

    # -- what rows need

    @property
    def has_offset(self) -> bool:
        """Whether the training rows had an offset; rows to predict then need one, too."""
        return bool(self.options.get("offset"))

    @property
    def covariate_names(self) -> list[str]:
        """Names of the arrays of unpenalised covariates, which rows to predict need, too."""
        return [term.name for term in self.covariates]
