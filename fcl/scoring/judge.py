"""What rounding the weights of a model costs on given rows: mean loss, objective, and bounds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from fcl import kernels
from fcl.data import DataSet
from fcl.drivers.rows import Rows, held_out_rows, select_rows, weighted_by_class
from fcl.errors import InputError
from fcl.files.compact import Encoding, round_weights
from fcl.model import Certificate, Model
from fcl.model.columns import record_of
from fcl.model.explain import iter_values
from fcl.model.history import History
from fcl.model.labels import encoded_target
from fcl.objective import Penalty, stored_penalty
from fcl.solve.state import is_active
from fcl.stagewise.blocks import TILE_ROWS
from fcl.stagewise.certify import JointGap
from fcl.stagewise.job import training_rows
from fcl.stagewise.model import MOST_VALUES, StagewiseModel
from fcl.types import Floats, Ids

#: Relative difference of an objective that is computed again, beyond which the rows are not those of the
#: certificate.
SAME_OBJECTIVE = 1e-6


class Judge(ABC):
    """Measures a model, and rounded copies of it, on the rows of a data set.

    model : with full weights.
    data : with a target, opened as the model needs it; None: nothing can be measured.
    curvature : as :func:`fcl.files.compact.mean_rise` needs it; infinite if the loss has no bound.
    roundings : the default rounding first.
    """

    roundings: tuple[str, ...] = ("nearest", "random")
    is_linear: bool = True  #: whether margins are linear in the weights

    def __init__(self, model: Any, data: DataSet | None) -> None:
        self.model, self.data = model, None
        if data is None:
            return
        if data.target is None:
            raise InputError(f"{data.name}: expected a target to measure losses; name it with y")
        self.data = data = model.opened(data)
        assert data.target is not None
        self.y = encoded_target(model, data.target, data.target_name)
        self.s = np.ones(data.n_rows) if data.weights is None else data.weights
        self.own: Floats | None = None  #: weights in the objective; None if it is not known
        if data.fingerprint() == model.fingerprint:
            self.own = self.training_weights()

    def measure(self, model: Any) -> tuple[float, float | None]:
        """Mean loss over the rows, and the objective on the training rows if they are these rows."""
        assert self.data is not None
        parts, own = [], []
        for start, stop, margins in model.iter_margins(self.data):
            losses = self.losses(self.y[start:stop], margins)
            parts.append(float(self.s[start:stop] @ losses))
            if self.own is not None:
                own.append(float(self.own[start:stop] @ losses))
        mean = math.fsum(parts) / math.fsum(self.s)
        return mean, None if self.own is None else self.objective(model, math.fsum(own))

    def squares(self) -> tuple[float, float]:
        """Mean and largest squared norm of the features of a row, over rows of weight above 0."""
        assert self.data is not None
        total, largest = 0.0, 0.0
        for start, stop, squares in self.row_squares():
            s = self.s[start:stop]
            total += float(s @ squares)
            largest = max(largest, float(squares[s > 0.0].max(initial=0.0)))
        return total / math.fsum(self.s), largest

    def explains(self, objective: float | None) -> bool:
        """Whether an objective of the full model, computed again, is that of its certificate."""
        known = self.model.certificate
        if objective is None or known is None:
            return False
        return math.isclose(objective, known.objective, rel_tol=SAME_OBJECTIVE)

    @property
    @abstractmethod
    def curvature(self) -> float:
        """The curvature of the loss; see the class."""

    @abstractmethod
    def training_weights(self) -> Floats | None:
        """The weights of all rows in the objective, float64 (n,); None if it cannot be computed."""

    @abstractmethod
    def losses(self, y: Floats, margins: Floats) -> Floats:
        """The loss of each row, float64 (n,)."""

    @abstractmethod
    def objective(self, model: Any, losses: float) -> float:
        """The objective of a model, given the weighted sum of its losses."""

    @abstractmethod
    def row_squares(self) -> Iterator[tuple[int, int, Floats]]:
        """Yield (first row, last row + 1, squared norms of the features of each row)."""

    @abstractmethod
    def rounded(self, encoding: Encoding, objective: float | None = None) -> Any:
        """The rounded model; objective : its objective, for the certificate; None if it is not known."""


class ModelJudge(Judge):
    """Of a model of ``fcl train``."""

    model: Model

    @property
    def curvature(self) -> float:
        K, most = self.model.n_outputs, self.model.loss_object.most_curvature
        return 0.5 * (K - 1) if self.model.loss == "softmax" else K * most

    @property
    def penalty(self) -> Penalty:
        """The penalty of the training."""
        return stored_penalty(self.model.options)

    def training_weights(self) -> Floats | None:
        model, data, options = self.model, self.data, self.model.options
        assert data is not None
        if options.get("standardize"):  # the file has no standard deviations
            return None
        share, keep = options.get("valid_fraction"), None
        if share is not None:
            keep = ~held_out_rows(data.n_rows, float(share), int(options["seed"]))
        rows = select_rows(data, self.y.T, data.weights, keep)
        by_class = options.get("class_weight")
        if by_class is not None:
            rows = weighted_by_class(rows, by_class, model.n_outputs)
        return _of_all_rows(rows, data.n_rows)

    def losses(self, y: Floats, margins: Floats) -> Floats:
        if self.model.n_outputs == 1:
            out = np.empty(len(y))
            kernels.losses.losses(self.model.loss_object.kernel, y, margins, out)
            return out
        if self.model.loss == "softmax":
            own = margins[np.arange(len(y)), y.astype(np.intp)]
            return np.asarray(logsumexp(margins, axis=1) - own)
        if self.model.loss == "squared":
            return np.asarray(np.square(y - margins).sum(axis=1))
        return np.asarray(np.logaddexp(0.0, -y * margins).sum(axis=1))

    def objective(self, model: Model, losses: float) -> float:
        factors = model.family.penalty_factors(model.ids)
        return self.penalty.value(model.weights, factors) + model.C * losses

    def row_squares(self) -> Iterator[tuple[int, int, Floats]]:
        assert self.data is not None
        for start, stop, values in iter_values(self.model.family, self.model.ids, self.data.rows):
            yield start, stop, np.einsum("ij,ij->i", values, values)

    def rounded(self, encoding: Encoding, objective: float | None = None) -> Model:
        known = self.model.certificate
        gap, value = math.inf, math.inf
        if objective is not None:
            value = objective
            gap = max(0.0, value - known.bound) / value if value > 0.0 else 0.0
        certificate = Certificate(
            value, known.bound, gap, math.inf, known.n_priced, known.scope, known.passes
        )
        # without the features whose weights all became 0, and the history, which the full model has
        model = self.model
        weights = _rounded(model.weights, model.ids, encoding)
        kept = is_active(weights)
        names = model.feature_names
        if names is not None:
            names = [names[i] for i in np.flatnonzero(kept).tolist()]
        return model.with_weights(
            weights[kept],
            ids=model.ids[kept],
            support=model.support[kept],
            feature_names=names,
            column_record=record_of(model.family, model.ids[kept], model.column_record),
            certificate=certificate,
            history=History(),
            encoding=encoding,
        )


class StagewiseJudge(Judge):
    """Of a model of ``fcl stagewise``, whose weights are dense."""

    model: StagewiseModel
    roundings = ("random", "nearest")

    def __init__(self, model: StagewiseModel, data: DataSet | None) -> None:
        super().__init__(model, data)
        self.is_linear = not model.settings.calibrates

    @property
    def curvature(self) -> float:
        K, settings = self.model.n_outputs, self.model.settings
        if not self.is_linear:
            return math.inf
        link = settings.link
        return 0.5 * (K - 1) if link.couples else K * link.lipschitz

    def training_weights(self) -> Floats | None:
        model, data = self.model, self.data
        assert data is not None
        if model.certificate is None:
            return None
        rows = training_rows(data, model.settings, numbers=not model.classifies)
        return _of_all_rows(rows, data.n_rows)

    def losses(self, y: Floats, margins: Floats) -> Floats:
        K = self.model.n_outputs
        if self.model.noun == "label":
            y = np.where(y > 0.0, 1.0, 0.0)
        elif self.model.noun == "class":
            codes = np.where(y > 0.0, 1.0, 0.0) if K == 1 else y
            y = (codes[:, None] == np.arange(K)).astype(np.float64)
        return self.model.link.losses(margins, y.reshape(margins.shape))

    def objective(self, model: StagewiseModel, losses: float) -> float:
        squares = float(np.square(model.weights.features).sum())
        return losses + 0.5 * model.settings.alpha * squares

    def row_squares(self) -> Iterator[tuple[int, int, Floats]]:
        assert self.data is not None
        model, family = self.model, self.model.family
        last = min(model.n_blocks * model.settings.block, family.n_features)  # that is used
        height = min(TILE_ROWS, family.most_block_rows())
        tiles = family.read_rows(self.data.rows, height)
        for number, (start, stop, raw) in enumerate(tiles):
            n, block = stop - start, family.block_of(raw)
            squares, at_once = np.zeros(n), max(1, MOST_VALUES // n)
            for first in range(0, last, at_once):
                ids = np.arange(first, min(first + at_once, last))
                columns = family.columns(ids, block, number, n)
                squares += np.einsum("ij,ij->i", columns, columns)
            yield start, stop, squares

    def rounded(self, encoding: Encoding, objective: float | None = None) -> StagewiseModel:
        model, certificate = self.model, None
        if (known := model.certificate) is not None and objective is not None:
            certificate = JointGap(objective, known.bound, known.n_features)
        features = _rounded(
            model.weights.features, np.arange(len(model.weights.features)), encoding
        )
        weights = replace(model.weights, features=features)
        return replace(model, weights=weights, certificate=certificate, encoding=encoding)


def _of_all_rows(rows: Rows, n_rows: int) -> Floats:
    """The weights of training rows, with 0 for all other rows, float64 (n_rows,)."""
    own = np.zeros(n_rows)
    own[slice(None) if rows.keep is None else rows.keep] = rows.s
    return own


def _rounded(weights: Floats, ids: Ids, encoding: Encoding) -> Floats:
    """Weights as an encoding rounds them; InputError if one is too large for the grid."""
    return round_weights(weights, ids, encoding.m, encoding.rounding, encoding.seed)


def judge_of(model: Any, data: DataSet | None) -> Judge:
    """The judge of a model of either kind; raises InputError for data that do not fit the model."""
    kind = StagewiseJudge if isinstance(model, StagewiseModel) else ModelJudge
    return kind(model, data)
