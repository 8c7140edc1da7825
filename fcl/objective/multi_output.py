"""Metrics of K classes or numbers, added up block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fcl.types import Floats

#: Classes up to which all confusions are counted.
MOST_CONFUSED = 256


class OutputSums(ABC):
    """Sums over rows of K outputs.

    n_rows : rows of weight above 0.
    weight : sum of their weights.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.weight = 0.0

    def add(self, y: Floats, means: Floats, weights: Floats | None = None) -> None:
        """Add rows.

        y : float64 (n,) or (n, K), as :func:`fcl.model.labels.encoded_target` returns it.
        means : float64 (n, K), probabilities of the classes, or expected numbers.
        weights : float64 (n,), optional, at least 0.
        """
        s = np.ones(len(y)) if weights is None else weights
        kept = s > 0.0
        if not kept.all():
            y, means, s = y[kept], means[kept], s[kept]
        self.n_rows += len(y)
        self.weight += float(s.sum())
        if len(y):
            self._add(y, means, s)

    @abstractmethod
    def _add(self, y: Floats, means: Floats, s: Floats) -> None:
        """Add rows of weight above 0."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Metrics by name; empty without rows of weight above 0."""


class ClassScoreSums(OutputSums):
    """Sums over rows of K classes.

    of_class, right : float64 (K,), weight of the rows of each class, and of those whose largest
        probability is of their class.
    confusion : float64 (K, K) or None, weight of the rows of each class (first axis) by the class of
        their largest probability; None for more than MOST_CONFUSED classes.
    """

    def __init__(self, K: int) -> None:
        super().__init__()
        self.of_class, self.right = np.zeros(K), np.zeros(K)
        self.confusion = np.zeros((K, K)) if K <= MOST_CONFUSED else None
        self._log_loss = self._brier = 0.0

    def _add(self, y: Floats, means: Floats, s: Floats) -> None:
        codes = y.astype(np.intp)
        best = means.argmax(axis=1)
        self.of_class += np.bincount(codes, s, len(self.of_class))
        self.right += np.bincount(codes, s * (best == codes), len(self.right))
        if self.confusion is not None:
            np.add.at(self.confusion, (codes, best), s)
        own = means[np.arange(len(codes)), codes]
        with np.errstate(divide="ignore"):
            self._log_loss -= float(s @ np.log(own))
        # |p - e_y|^2 = |p|^2 - 2 p_y + 1
        self._brier += float(s @ (np.square(means).sum(axis=1) - 2.0 * own + 1.0))

    def metrics(self) -> dict[str, float]:
        """Share of errors, Brier score (0 to 2) and log loss.

        The log loss is left out if a row has probability 0 of its class, as projected margins may give.
        """
        if not self.n_rows:
            return {}
        found = {
            "error": 1.0 - float(self.right.sum()) / self.weight,
            "Brier score": self._brier / self.weight,
        }
        log_loss = self._log_loss / self.weight
        return found | ({"log loss": log_loss} if np.isfinite(log_loss) else {})


class NumberSums(OutputSums):
    """Sums over rows of K numbers.

    squared_errors : float64 (K,), weighted sums.
    """

    def __init__(self, K: int) -> None:
        super().__init__()
        self.squared_errors = np.zeros(K)
        self._first: Floats | None = None
        self._sum, self._squares = np.zeros(K), np.zeros(K)

    def _add(self, y: Floats, means: Floats, s: Floats) -> None:
        y, means = (values.reshape(len(s), len(self._sum)) for values in (y, means))
        if self._first is None:  # sums of squares lose all digits if the mean is large
            self._first = y[0].copy()
        moved = y - self._first
        self.squared_errors += s @ np.square(y - means)
        self._sum += s @ moved
        self._squares += s @ np.square(moved)

    def mse(self) -> Floats:
        """The mean squared error of each number, float64 (K,)."""
        return self.squared_errors / self.weight

    def r2(self) -> Floats:
        """The explained share of the variance of each number, float64 (K,); NaN for a constant."""
        spread = self._squares - self._sum**2 / self.weight
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(spread > 0.0, 1.0 - self.squared_errors / spread, np.nan)

    def metrics(self) -> dict[str, float]:
        """Mean squared error and R2, each the mean over the numbers."""
        if not self.n_rows:
            return {}
        return {"MSE": float(self.mse().mean()), "R2": float(self.r2().mean())}


class LabelSums(OutputSums):
    """Sums over rows of K labels, each of which a row has or has not.

    wrong : float64 (K,), weight of the rows whose probability of the label is on the wrong side of 1/2.
    """

    def __init__(self, K: int) -> None:
        super().__init__()
        self.wrong, self._log_loss = np.zeros(K), np.zeros(K)

    def _add(self, y: Floats, means: Floats, s: Floats) -> None:
        self.wrong += s @ ((means > 0.5) != (y > 0.0))
        with np.errstate(divide="ignore"):
            self._log_loss -= s @ np.log(np.where(y > 0.0, means, 1.0 - means))

    def metrics(self) -> dict[str, float]:
        """Share of errors and log loss, each the mean over the labels."""
        if not self.n_rows:
            return {}
        log_loss = float(self._log_loss.mean()) / self.weight
        found = {"error": float(self.wrong.mean()) / self.weight}
        return found | ({"log loss": log_loss} if np.isfinite(log_loss) else {})


def sums_for(noun: str, K: int) -> OutputSums:
    """The sums for K outputs; noun : "class", "target" or "label"."""
    kinds: dict[str, type[ClassScoreSums] | type[NumberSums] | type[LabelSums]] = {
        "class": ClassScoreSums, "target": NumberSums, "label": LabelSums,
    }  # fmt: skip
    return kinds[noun](K)
