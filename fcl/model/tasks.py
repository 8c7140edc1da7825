"""What the outputs of a model are: classes, numbers or labels, and how margins become predictions.

Margins are float64 (n, K), with a column for each output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.facts import LISTED_OUTPUTS, whole
from fcl.objective.losses import Loss, find_loss
from fcl.types import Floats
from fcl.units import counted


class Task(ABC):
    """A kind of outputs.

    noun : what an output is, in the singular.
    formula : the loss of a row, for display.
    mean_name : what :meth:`mean` computes; empty if margins are the means.
    has_probability : whether :meth:`mean` gives probabilities.
    """

    noun: str
    formula: str
    mean_name: str = ""

    @property
    def has_probability(self) -> bool:
        return self.mean_name == "probability"

    @abstractmethod
    def mean(self, margins: Floats) -> Floats:
        """The expected targets from margins, in the shape of the margins."""

    @abstractmethod
    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        """The predictions from margins: labels (n,), or one column for each output (n, K)."""

    def probabilities(self, margins: Floats) -> Floats:
        """The probability of each label from margins, float64 (n, labels)."""
        return self.mean(margins)

    def check_labels(self, labels: Sequence[Any] | None, n_outputs: int) -> None:
        """Raise InputError unless there is a distinct label for each output; names may be missing."""
        if labels is None:
            return
        if len(labels) != n_outputs:
            raise InputError(
                f"labels: expected {n_outputs}, one for each {self.noun}, got {len(labels)}"
            )
        if len(set(labels)) < n_outputs:
            raise InputError(
                f"labels: expected a different label for each {self.noun}, got {shown(list(labels))}"
            )

    def labels_text(self, labels: Sequence[Any] | None, n_outputs: int) -> str:
        """The labels in words."""
        names = [shown(whole(label)) for label in labels or ()][:LISTED_OUTPUTS]
        plural = "classes" if self.noun == "class" else ""
        return counted(n_outputs, self.noun, plural) + f": {', '.join(names)}" * bool(names)


class OneMargin(Task):
    """A number for each row, or one of two labels."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self.noun = "class" if loss.classifies else "target"
        self.formula, self.mean_name = loss.formula, loss.mean_name

    def mean(self, margins: Floats) -> Floats:
        return self._loss.mean(margins)

    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        if labels is None:
            return self.mean(margins[:, 0])
        return np.asarray(labels)[(margins[:, 0] > 0.0).astype(np.intp)]

    def probabilities(self, margins: Floats) -> Floats:
        return np.column_stack([self.mean(-margins), self.mean(margins)])

    def check_labels(self, labels: Sequence[Any] | None, n_outputs: int) -> None:
        """Nothing to do: the labels are the two values of the target."""

    def labels_text(self, labels: Sequence[Any] | None, n_outputs: int) -> str:
        if labels is None:
            return "none (regression)"
        low, high = (shown(whole(label)) for label in labels)
        return "-1 and 1" if (low, high) == ("-1", "1") else f"{low} is -1, {high} is +1"


class Classes(Task):
    """One of K classes for each row; probabilities by softmax."""

    noun = "class"
    formula = "(log sum_k exp m_ik - m_{i,y_i})"
    mean_name = "probability"

    def mean(self, margins: Floats) -> Floats:
        return softmax(margins)

    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        return np.asarray(labels)[margins.argmax(axis=1)]

    def check_labels(self, labels: Sequence[Any] | None, n_outputs: int) -> None:
        if labels is None:
            raise InputError(f"labels: expected {n_outputs}, one for each class, got none")
        super().check_labels(labels, n_outputs)


class Numbers(Task):
    """K numbers for each row."""

    noun = "target"
    formula = "sum_k (y_ik - m_ik)^2"

    def mean(self, margins: Floats) -> Floats:
        return margins

    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        return margins


class Labels(Task):
    """K labels for each row, each of which it has or has not."""

    noun = "label"
    formula = "sum_k log(1 + exp(-y_ik m_ik))"
    mean_name = "probability"

    def mean(self, margins: Floats) -> Floats:
        return np.exp(-np.logaddexp(0.0, -margins))

    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        return (margins > 0.0).astype(np.int64)


#: The tasks of several outputs, by the name of the loss that their models minimise.
TASKS: dict[str, Task] = {"softmax": Classes(), "squared": Numbers(), "logistic": Labels()}


def find_task(loss: str, n_outputs: int) -> Task:
    """The kind of the outputs of a model; raises InputError for a loss without several outputs.

    loss : as in a model file.
    """
    if n_outputs == 1:
        return OneMargin(find_loss(loss))
    if loss not in TASKS:
        raise InputError(
            f"loss: expected one of {', '.join(TASKS)} and at least two outputs, got {shown(loss)} and "
            f"{n_outputs}"
        )
    return TASKS[loss]


def softmax(margins: Floats) -> Floats:
    """Softmax of each row of margins (n, K); rows sum to 1 up to rounding, without overflow."""
    out = np.exp(margins - margins.max(axis=1, keepdims=True))
    out /= out.sum(axis=1, keepdims=True)
    return out
