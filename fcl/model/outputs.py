"""What the scores of a model are: their names, and how margins become them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.errors import InputError
from fcl.model.predictor import Predictor
from fcl.types import Floats

KINDS = ("margin", "probability", "mean", "predicted")


@dataclass(frozen=True)
class Scores:
    """Scores of one kind.

    Attributes
    ----------
    kind : str
        ``margin``, ``probability``, ``mean`` or ``predicted``.
    names : tuple of str
        Of the columns: the kind for a single one, else the kind with the name of each output.
    of : callable
        From margins to scores of the same number of rows, (n,) or (n, columns).
    """

    kind: str
    names: tuple[str, ...]
    of: Callable[[Floats], np.ndarray]

    def shape(self, n: int) -> tuple[int, ...]:
        """The shape of the scores of n rows: (n,), or (n, columns) for several columns."""
        return (n,) if len(self.names) == 1 else (n, len(self.names))

    def columns(self, margins: Floats) -> list[np.ndarray]:
        """The scores of rows, column by column."""
        return list(self.of(margins).reshape(len(margins), len(self.names)).T)


def label_text(label: Any) -> str:
    """A label as printable text for a cell; a whole number without a decimal point."""
    whole = isinstance(label, float) and label.is_integer()
    text = f"{label:.0f}" if whole else str(label)
    return "".join(c if c.isprintable() else " " for c in text)


def output_names(model: Predictor) -> list[str]:
    """The label or name of each output, or its number from 0 without names; "" of a single output."""
    if model.n_outputs == 1:
        return [""]
    if model.labels is not None:
        return [label_text(label) for label in model.labels]
    return [str(number) for number in range(model.n_outputs)]


def column_heads(word: str, model: Predictor) -> tuple[str, ...]:
    """The heads of a column for each output: the word, with the name of the output if it has one."""
    return tuple(f"{word}_{name}" if name else word for name in output_names(model))


def scores_of(model: Predictor, kind: str) -> Scores:
    """The scores of a model.

    kind : {"margin", "probability", "mean", "predicted"}, ``predicted`` is the label of a row as text.

    Raises InputError: the kind is unknown, or the loss of the model does not give scores of this kind.
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "predicted":
        return _predicted(model)
    if kind == "probability":
        model.require_probability()
    scores = Scores(kind, column_heads(kind, model), np.asarray if kind == "margin" else model.mean)
    scores.of(np.zeros(scores.shape(0)))  # a loss without a mean raises InputError
    return scores


def _predicted(model: Predictor) -> Scores:
    names = output_names(model)
    single = names == [""]
    if single:  # the negative and the positive label
        names = [label_text(label) for label in model.labels or ()]
    if not names or not (single or model.noun == "class"):
        raise InputError("predicted: expected a model of classes, which gives each row one label")
    labels = np.array(names)

    def of(margins: Floats) -> np.ndarray:
        best = (margins > 0.0).astype(int) if single else margins.argmax(axis=1)
        return np.asarray(labels[best])

    return Scores("predicted", ("predicted",), of)


def table_scores(model: Predictor, kind: str = "") -> list[Scores]:
    """The scores that a table shows beside what is known of the rows.

    The predicted class, if each has a margin or the user asked for this ``kind``; the margins; and the
    probabilities or means unless the margins are the means.
    """
    found = [scores_of(model, "margin")]
    if model.mean_name:
        found.append(scores_of(model, model.mean_name))
    if kind == "predicted" or (len(output_names(model)) > 1 and model.noun == "class"):
        found.insert(0, _predicted(model))
    return found
