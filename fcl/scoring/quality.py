"""How well scores agree with a target that is in the data."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fcl.errors import InputError
from fcl.model import Model
from fcl.model.labels import encoded_target
from fcl.model.predictor import Predictor
from fcl.objective.multi_output import sums_for
from fcl.types import Floats, Ints
from fcl.units import counted

#: Bytes of a row that is kept for the metrics, with room to sort.
_ROW_BYTES = 128


def quality(
    model: Model, y: Floats, margins: Floats, weights: Floats | None = None
) -> dict[str, float]:
    """Metrics of scores, by name.

    For labels these are AUPRC (average precision), AUROC and, for logistic loss, the log loss, as
    scikit-learn computes them; for numbers the metric of the loss, and R2 beside the squared error.

    y : float64 (n,), -1 or +1 for labels.
    margins : float64 (n,)
    weights : float64 (n,), optional, sample weights.

    Empty without rows of weight above 0. AUPRC and AUROC are left out if there is one class only.
    """
    loss, s = model.loss_object, weights
    if s is not None and not s.all():
        counted = s > 0.0
        y, margins, s = y[counted], margins[counted], s[counted]
    if not len(y):
        return {}
    from sklearn.metrics import average_precision_score, log_loss, r2_score, roc_auc_score

    if not loss.classifies:
        found = {loss.metric: loss.score(y, np.ones(len(y)) if s is None else s, margins)}
        if loss.metric == "mse" and y.min() < y.max():
            found["R2"] = float(r2_score(y, margins, sample_weight=s))
        return found
    found = {}
    if len(np.unique(y)) == 2:
        found["AUPRC"] = float(average_precision_score(y, margins, pos_label=1.0, sample_weight=s))
        found["AUROC"] = float(roc_auc_score(y, margins, sample_weight=s))
    if loss.has_mean:
        probability = loss.mean(margins)
        found["log loss"] = float(log_loss(y, probability, sample_weight=s, labels=[-1.0, 1.0]))
    return found


def quality_line(found: dict[str, float], y: Floats, weights: Floats | None = None) -> str:
    """The metrics in one line, or the reason why they are missing.

    Beside AUPRC stands that of random scores, the share of positive rows.
    """
    if not found:
        return "not compared with the target: no row has a weight above 0"
    texts = {name: f"{name} {value:.4f}" for name, value in found.items()}
    if "AUPRC" in texts:
        texts["AUPRC"] += f" (random {np.average(y > 0, weights=weights):.4f})"
    values = ", ".join(texts.values())
    classes = set(np.unique(y).tolist())
    if classes == {-1.0, 1.0}:
        values += f" ({int((y > 0).sum()):,} positive)"
    elif len(found) <= 1 and classes <= {-1.0, 1.0} and "log loss" in found:
        values += " (all rows have one label, so there is no AUPRC)"
    return f"{values} over {counted(len(y), 'row')}"


class Comparison(ABC):
    """Compares the scores of a stream of rows with their targets.

    strict : whether a target that the model does not know is an error; otherwise it ends the comparison.
    """

    def __init__(self, model: Predictor, name: str, strict: bool = True) -> None:
        self._model, self._name, self._strict = model, name, strict
        self.given_up = ""  #: why there are no metrics

    def add(
        self, target: np.ndarray, margins: Floats, weights: np.ndarray | None, rows: Ints
    ) -> None:
        """Add a block of rows, whose numbers are for messages."""
        if self.given_up or not len(margins):
            return
        try:
            y = encoded_target(self._model, target, self._name, rows)
        except InputError as error:
            if self._strict:
                raise
            self._give_up(f"not compared with the target: {error}")
            return
        self._add(y, margins, None if weights is None else _checked_weights(weights, rows))

    def line(self) -> str | None:
        """The metrics, or the reason why they are missing; None without rows."""
        return self.given_up or self._metrics()

    def _give_up(self, why: str) -> None:
        self.given_up = why

    @abstractmethod
    def _add(self, y: Floats, margins: Floats, weights: Floats | None) -> None: ...

    @abstractmethod
    def _metrics(self) -> str | None: ...


def compared(model: Predictor, name: str, most_bytes: int, strict: bool = True) -> Comparison:
    """The comparison for a model; most_bytes : of memory that the rows may take."""
    if isinstance(model, Model) and model.n_outputs == 1:
        return Collected(model, name, most_bytes, strict)
    return Summed(model, name, strict)


class Summed(Comparison):
    """Sums the errors of several outputs; needs no memory for rows."""

    def __init__(self, model: Predictor, name: str, strict: bool = True) -> None:
        super().__init__(model, name, strict)
        self._sums = sums_for(model.noun, model.n_outputs)
        self._means_of = model.mean if model.mean_name else np.asarray

    def _add(self, y: Floats, margins: Floats, weights: Floats | None) -> None:
        self._sums.add(y, self._means_of(margins), weights)

    def _metrics(self) -> str | None:
        values = ", ".join(f"{name} {value:.4f}" for name, value in self._sums.metrics().items())
        return f"{values} over {counted(self._sums.n_rows, 'row')}" if values else None


class Collected(Comparison):
    """Targets, margins and sample weights of the rows of a stream.

    most_bytes : if the rows need more memory, they are discarded, and no metrics are computed.
    """

    _model: Model

    def __init__(self, model: Model, name: str, most_bytes: int, strict: bool = True) -> None:
        super().__init__(model, name, strict)
        self._most_rows = max(1, most_bytes // _ROW_BYTES)
        self._y: list[Floats] = []
        self._margins: list[Floats] = []
        self._weights: list[Floats] = []
        self._n_rows = 0

    def _add(self, y: Floats, margins: Floats, weights: Floats | None) -> None:
        self._n_rows += len(y)
        if self._n_rows > self._most_rows:
            self._give_up(
                f"not compared with the target: more than {self._most_rows:,} rows need more memory; "
                "raise --memory"
            )
            return
        self._y.append(y)
        self._margins.append(margins)
        if weights is not None:
            self._weights.append(weights)

    def _metrics(self) -> str | None:
        if not self._y:
            return None
        y, margins, weights = map(_joined, (self._y, self._margins, self._weights))
        assert y is not None and margins is not None
        return quality_line(quality(self._model, y, margins, weights), y, weights)

    def _give_up(self, why: str) -> None:
        super()._give_up(why)
        for parts in (self._y, self._margins, self._weights):
            parts.clear()


def _joined(parts: list[Floats]) -> Floats | None:
    """The blocks as one array, which takes their place in memory; None without blocks."""
    joined = np.concatenate(parts) if parts else None
    parts.clear()
    return joined


def _checked_weights(weights: np.ndarray, rows: Ints) -> Floats:
    """Sample weights as float64; raises InputError for one below 0."""
    found = np.asarray(weights, np.float64)
    wrong = ~(found >= 0.0)
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(
            f"--weights: expected sample weights >= 0, got {found[at]} in row {rows[at]}; remove the "
            "row, or set its weight to 0"
        )
    return found
