"""Hinges of dense columns: the linear splines of MARS (Friedman, "Multivariate adaptive regression
splines", Annals of Statistics 19, 1991), each in one column.

The features of column x are x itself and, for each knot t, max(0, x - t) and max(0, t - x). The knots are
quantiles of the column on a sample of the rows. A model in them is a sum of piecewise linear functions,
one of each column.

**The features are divided by the standard deviation of their column**, so that the penalty sees columns
in different units alike. The divisor is rounded to three digits, and a part of the description:
``max(0, age - 37.5) / 12.3``. Its weight is what 12.3 years above the knot add to the margin.

Prices take one search per value, and no work per row and knot (:func:`fcl.kernels.hinges.sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fcl import kernels
from fcl.checks import flag, shown, whole
from fcl.errors import InputError
from fcl.features.generator.contract import Generator
from fcl.features.generator.scales import are_numbers, centres_of
from fcl.features.plain import columns_named, less
from fcl.features.products.scales import measured
from fcl.types import Floats, Ids

#: Default number of knots of a column.
KNOTS = 16
#: Largest number of knots of a column.
MOST_KNOTS = 10_000
#: Largest number of rows of the sample for knots and standard deviations.
SAMPLE_ROWS = 1 << 16
#: Least number of significant digits of knots in descriptions, and the share of the distance between two
#: knots by which a shown knot may differ from the knot.
DIGITS, SHOWN_ERROR = 6, 1e-3


class Hinges(Generator):
    """Columns of dense numbers, and hinges max(0, x - t) and max(0, t - x) at each of their knots t.

    Parameters
    ----------
    n : int
        Number of knots of a column: its quantiles 1 / (n + 1), ..., n / (n + 1), values of the sample.
        Equal quantiles are one knot, and the least and the greatest value are no knots. A column of few
        distinct values therefore has fewer knots, and a column of two values has none.
    scale : bool
        Whether features are divided by the standard deviations of their columns; a constant column is
        divided by its size. False: features are in the units of the columns.

    Notes
    -----
    Quantiles and standard deviations are of up to 65,536 training rows, without their weights. Of a
    column whose mean is more than 16 times its standard deviation, a constant near the mean is
    subtracted, which the description shows.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=np.maximum(X[:, 1], 0.0))
    >>> model = fcl.train(data, fcl.Hinges(n=3), alpha=0.02, loss="squared").model
    >>> model.family.n_features, model.describe(1)[0].feature
    (35, 'max(0, x1 + 0.132105) / 0.941')
    """

    rows = "numbers"
    name = "hinges"
    separate = True
    fit_rows = SAMPLE_ROWS

    def __init__(self, n: int = KNOTS, scale: bool = True) -> None:
        self.n = whole("features hinges: n", n, 1)
        if self.n > MOST_KNOTS:
            raise InputError(f"features hinges: n must be at most {MOST_KNOTS}, got {shown(n)}")
        self.scale = flag("features hinges: scale", scale)

    @property
    def warns_of_scales(self) -> bool:  # type: ignore[override]
        return not self.scale

    # -- what is learnt from the sample --------------------------------------------------------

    def fit(self, sample: Any) -> None:
        shares = np.arange(1, self.n + 1) / (self.n + 1)
        knots = []
        for values in sample.T:
            column = np.sort(values.astype(np.float64)) + 0.0  # no -0
            at = np.ceil(shares * len(column)).astype(np.int64) - 1
            found = np.unique(column[at])
            knots.append(found[(found > column[0]) & (found < column[-1])])
        #: knots of all columns; the knots of column j are ``knots_[starts_[j] : starts_[j + 1]]``
        self.knots_ = np.concatenate(knots)
        self.starts_ = np.cumsum([0, *map(len, knots)], dtype=np.int64)
        self.scales_ = np.ones(len(knots))
        if self.scale:
            divisors = measured(sample, only_uneven=False)
            assert divisors is not None
            short = np.array([float(f"{divisor:.3g}") for divisor in divisors])
            self.scales_ = np.where(np.isfinite(short), short, divisors)
        #: what is subtracted from the columns themselves
        self.shifts_ = centres_of(sample)
        self.n_features = self._count()

    def _count(self) -> int:
        return len(self.scales_) + 2 * len(self.knots_)

    def check_restored(self, width: int) -> None:
        knots, starts = self.knots_, self.starts_
        if not (
            are_numbers(self.scales_, (width,), above=0.0) and are_numbers(self.shifts_, (width,))
        ):
            raise InputError(f"features hinges: expected {width} scales_ above 0 and shifts_")
        good = (
            isinstance(starts, np.ndarray)
            and starts.dtype == np.int64
            and starts.shape == (width + 1,)
            and isinstance(knots, np.ndarray)
            and are_numbers(knots, (len(knots),))
            and [starts[0], starts[-1], self.n_features] == [0, len(knots), self._count()]
        )
        if good:
            counts = np.diff(starts)
            good = bool((counts >= 0).all() and (counts <= self.n).all())
        if good:
            inner = np.ones(max(0, len(knots) - 1), bool)  # neighbours in one column
            ends = starts[1:-1]
            inner[ends[(ends > 0) & (ends < len(knots))] - 1] = False
            good = bool((np.diff(knots)[inner] > 0.0).all())
        if not good:
            raise InputError(
                f"features hinges: expected up to {self.n} increasing knots for each of {width} columns"
            )

    # -- names ---------------------------------------------------------------------------------

    @property
    def _firsts(self) -> Ids:
        """The first feature of each column, and the number of features."""
        return 2 * self.starts_ + np.arange(len(self.starts_))

    def _parts(self, ids: Ids) -> tuple[Ids, Ids, Ids]:
        """Of some features the columns, indices in ``knots_``, and sides: 1, -1, or 0 without a knot."""
        firsts = self._firsts
        places = np.searchsorted(firsts, ids, side="right") - 1
        rest = ids - firsts[places]
        knots = self.starts_[places] + (rest - 1) // 2
        return places, knots, np.where(rest == 0, 0, np.where(rest % 2 == 1, 1, -1))

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        ((place,), (knot,), (side,)) = self._parts(np.array([feature], np.int64))
        return self._text(
            place, int(knot), int(side), f"x{place}" if names is None else names[place]
        )

    def _text(self, place: int, knot: int, side: int, name: str) -> str:
        shift = float(self.shifts_[place])
        if side:
            first, last = self.starts_[place], self.starts_[place + 1]
            t = _short(self.knots_[first:last])[knot - first]
            text = f"max(0, {less(name, t)})" if side == 1 else f"max(0, {t} - {name})"
        elif shift:
            text = less(name, shift)
            text = f"({text})" if self.scale else text
        else:
            text = name
        return f"{text} / {self.scales_[place]:.3g}" if self.scale else text

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        wanted = [_names_in(text, self.scale) for text in texts]
        every = {name for some in wanted for name in some}
        known = columns_named(every, len(self.scales_), names)
        firsts, features = self._firsts, {}
        for name, place in known.items():
            ids = np.arange(firsts[place], firsts[place + 1])
            _, knots, sides = self._parts(ids)
            for feature, knot, side in zip(ids, knots.tolist(), sides.tolist(), strict=True):
                features[self._text(place, knot, side, name)] = feature
        return np.array([features.get(text, -1) for text in texts], np.int64)

    def columns_read(self, ids: Ids) -> Ids | None:
        # a class derived from this one may compute other features
        return self._parts(ids)[0] if type(self) is Hinges else None

    # -- columns, margins and prices -----------------------------------------------------------

    def _made(self, ids: Ids) -> tuple[Ids, Floats, Ids, Floats]:
        """What the kernels need of some features: columns, knots or shifts, sides, scales."""
        places, knots, sides = self._parts(np.asarray(ids, np.int64))
        centres = self.shifts_[places]
        centres[sides != 0] = self.knots_[knots[sides != 0]]
        return places, centres, sides, self.scales_[places]

    def columns(self, ids: Ids, block: Any) -> np.ndarray:
        out = np.empty((len(ids), len(block)))
        kernels.hinges.columns(block.T, *self._made(ids), out)
        return out.T

    def margins(self, ids: Ids, weights: Floats, block: Any) -> Floats:
        out = np.zeros(len(block))
        kernels.hinges.margins(block.T, *self._made(ids), weights, out)
        return out

    def gradients(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        return self.gradients_of_several(first, last, block, residuals[None])[0]

    def gradients_of_several(self, first: int, last: int, block: Any, residuals: Floats) -> Floats:
        firsts = self._firsts
        a = int(np.searchsorted(firsts, first, side="right")) - 1
        b = int(np.searchsorted(firsts, last, side="left"))
        starts = self.starts_[a : b + 1]
        knots = self.knots_[starts[0] : starts[-1]]
        most = int(np.diff(starts).max())
        out = np.empty((len(residuals), firsts[b] - firsts[a]))
        kernels.hinges.sums(
            block.T[a:b],
            knots,
            starts - starts[0],
            self.shifts_[a:b],
            self.scales_[a:b],
            np.ascontiguousarray(residuals, np.float64),
            np.empty(1 << most.bit_length()),
            np.empty(len(block), np.int32),
            np.empty((most + 1, 4, 3)),
            out,
        )
        return np.ascontiguousarray(out[:, first - firsts[a] : last - firsts[a]])

    def largest(self, block: Any) -> float:
        high, low = (np.asarray(f(axis=0), np.float64) for f in (block.max, block.min))
        most = np.maximum(np.abs(high - self.shifts_), np.abs(low - self.shifts_))
        has = np.flatnonzero(np.diff(self.starts_))
        knots, starts = self.knots_, self.starts_
        np.maximum.at(most, has, high[has] - knots[starts[has]])
        np.maximum.at(most, has, knots[starts[has + 1] - 1] - low[has])
        return float((most / self.scales_).max())

    def nonzeros(self, block: Any) -> tuple[Ids, Ids, np.ndarray]:
        values = self.columns(np.arange(self.n_features), block)
        rows, ids = np.nonzero(values)
        return np.searchsorted(rows, np.arange(len(block) + 1)), ids, values[rows, ids]


def _short(knots: Floats) -> list[str]:
    """The knots of a column with the fewest digits, at least DIGITS, that show where they lie."""
    allowed = SHOWN_ERROR * np.diff(knots).min(initial=np.inf)
    texts: list[str] = []
    for digits in range(DIGITS, 18):
        texts = [f"{knot:.{digits}g}" for knot in knots.tolist()]
        if (np.abs(np.array(texts, np.float64) - knots) <= allowed).all():
            break
    return texts


def _names_in(text: str, scaled: bool) -> set[str]:
    """The names that the column of a description may have."""
    if scaled:
        text = text.rpartition(" / ")[0]
    inner = {text}
    for begin, end in (("max(0, ", ")"), ("(", ")")):
        if text.startswith(begin) and text.endswith(end):
            inner.add(text[len(begin) : -len(end)])
    found = set(inner)
    for words in inner:
        found |= {words.rpartition(sign)[0] for sign in (" - ", " + ")}
        found.add(words.partition(" - ")[2])
    return found - {""}
