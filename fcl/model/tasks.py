"""What the outputs of a model of several outputs are: classes, numbers or labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.types import Floats


class Task(ABC):
    """A kind of outputs.

    Attributes
    ----------
    loss : str
        Name of the loss that a model of these outputs minimises.
    noun : str
        What an output is, in the singular.
    formula : str
        The loss of a row, for display.
    mean_name : str
        What :meth:`mean` computes; empty if margins are the means.
    """

    loss: ClassVar[str]
    noun: ClassVar[str]
    formula: ClassVar[str]
    mean_name: ClassVar[str] = ""

    @abstractmethod
    def mean(self, margins: Floats) -> Floats:
        """The expected targets from margins, float64 (n, K)."""

    @abstractmethod
    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        """The predictions from margins (n, K): labels (n,), or one column for each output (n, K)."""

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


class Classes(Task):
    """One of K classes for each row; probabilities by softmax."""

    loss = "softmax"
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

    loss = "squared"
    noun = "target"
    formula = "sum_k (y_ik - m_ik)^2"

    def mean(self, margins: Floats) -> Floats:
        return margins

    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        return margins


class Labels(Task):
    """K labels for each row, each of which it has or has not."""

    loss = "logistic"
    noun = "label"
    formula = "sum_k log(1 + exp(-y_ik m_ik))"
    mean_name = "probability"

    def mean(self, margins: Floats) -> Floats:
        return np.exp(-np.logaddexp(0.0, -margins))

    def predicted(self, margins: Floats, labels: Sequence[Any] | None) -> np.ndarray:
        return (margins > 0.0).astype(np.int64)


TASKS: dict[str, Task] = {task.loss: task for task in (Classes(), Numbers(), Labels())}


def find_task(loss: str, n_outputs: int) -> Task:
    """The kind of the outputs of a model; raises InputError for a loss without several outputs.

    loss : as in a model file.
    """
    if loss not in TASKS or n_outputs < 2:
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
