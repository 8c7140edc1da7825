"""The intercept of plain columns and the one of centred columns (:mod:`fcl.features.centred`)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from fcl.types import Floats


def folded(constant: float, weights: Floats, at: Floats) -> tuple[float, float]:
    """constant - sum_j weights_j at_j, as the nearest float64 and what it leaves out."""
    exact = Fraction(constant) - _product(weights, at)
    return float(exact), float(exact - Fraction(float(exact)))


def unfolded(intercept: float, rest: float, weights: Floats, at: Floats) -> float:
    """intercept + rest + sum_j weights_j at_j, rounded once."""
    return float(Fraction(intercept) + Fraction(rest) + _product(weights, at))


def _product(weights: Floats, at: Floats) -> Fraction:
    terms: Sequence[tuple[float, float]] = [
        (w, c) for w, c in zip(weights.tolist(), at.tolist(), strict=True) if c != 0.0
    ]
    return sum((Fraction(w) * Fraction(c) for w, c in terms), Fraction(0))
