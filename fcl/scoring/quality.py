"""How well scores agree with a target that is in the data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.model import Model
from fcl.model.labels import encoded_target

__all__ = ["Collected", "quality", "quality_line"]

Floats = npt.NDArray[np.float64]

#: Bytes of a row that is kept for the metrics, with room to sort.
_ROW_BYTES = 64


def quality(
    model: Model, y: Floats, margins: Floats, weights: Floats | None = None
) -> dict[str, float]:
    """Metrics of scores, by name.

    For labels these are AUPRC (average precision), AUROC and, for logistic loss, the log loss, as
    scikit-learn computes them; for numbers the metric of the loss.

    Parameters
    ----------
    model : Model
    y : float64 (n,)
        -1 or +1 for labels.
    margins : float64 (n,)
    weights : float64 (n,), optional
        Sample weights.

    Returns
    -------
    dict
        Empty without rows of weight above 0. AUPRC and AUROC are left out if there is one class only.
    """
    loss = model.loss_object
    s = np.ones(len(y)) if weights is None else weights
    counted = s > 0.0
    y, margins, s = y[counted], margins[counted], s[counted]
    if not len(y):
        return {}
    if not loss.classifies:
        return {loss.metric: loss.score(y, s, margins)}
    from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

    found: dict[str, float] = {}
    if len(np.unique(y)) == 2:
        found["AUPRC"] = float(average_precision_score(y, margins, pos_label=1.0, sample_weight=s))
        found["AUROC"] = float(roc_auc_score(y, margins, sample_weight=s))
    if loss.has_mean:
        probability = loss.mean(margins)
        found["log loss"] = float(log_loss(y, probability, sample_weight=s, labels=[-1.0, 1.0]))
    return found


def quality_line(found: dict[str, float], y: Floats) -> str:
    """The metrics in one line."""
    values = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
    classes = set(np.unique(y).tolist())
    if classes == {-1.0, 1.0}:
        values += f" ({int((y > 0).sum()):,} positive)"
    elif len(found) <= 1 and classes <= {-1.0, 1.0} and "log loss" in found:
        values += " (all rows have one label, so there is no AUPRC)"
    return f"{values} over {len(y):,} rows"


class Collected:
    """Targets, margins and sample weights of the rows of a stream.

    Parameters
    ----------
    model : Model
    name : str
        Of the target, for messages.
    most_bytes : int
        If the rows need more memory, they are discarded, and no metrics are computed.
    strict : bool
        Whether a label that the model does not know is an error; otherwise it ends the collection.
    """

    def __init__(self, model: Model, name: str, most_bytes: int, strict: bool = True) -> None:
        self._model, self._name, self._strict = model, name, strict
        self._most_rows = max(1, most_bytes // _ROW_BYTES)
        self._parts: list[tuple[Floats, Floats, Floats | None]] = []
        self._n_rows = 0
        self.given_up = ""  #: why there are no metrics

    def add(self, target: np.ndarray, margins: Floats, weights: np.ndarray | None) -> None:
        """Add a block of rows; InputError for a label that the model does not know."""
        if self.given_up or not len(margins):
            return
        try:
            y = encoded_target(self._model, target, self._name)
        except InputError as error:
            if self._strict:
                raise
            return self._give_up(f"not compared with the labels: {error}")
        self._n_rows += len(y)
        if self._n_rows > self._most_rows:
            return self._give_up(
                f"not compared with the target: more than {self._most_rows:,} rows need more memory; "
                "raise --memory"
            )
        self._parts.append(
            (y, margins, None if weights is None else np.asarray(weights, np.float64))
        )

    def line(self) -> str | None:
        """The metrics, or why there are none; None without rows."""
        if self.given_up:
            return self.given_up
        if not self._parts:
            return None
        y, margins = (np.concatenate([part[i] for part in self._parts]) for i in (0, 1))
        weights = [part[2] for part in self._parts if part[2] is not None]
        found = quality(self._model, y, margins, np.concatenate(weights) if weights else None)
        return quality_line(found, y)

    def _give_up(self, why: str) -> None:
        self.given_up = why
        self._parts.clear()
