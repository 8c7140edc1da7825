"""Sums over the rows of one block; :meth:`Objective.over_blocks` calls them for each block.

A function gets the objective, the rows of a block as a slice, the vectors' values at these rows, and
further arguments. It depends on nothing else, so that another process that holds the block can call it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fcl import kernels
from fcl.types import Floats

#: Relative error of a number after a few roundings.
EPSILON = 2.0**-50
#: Rounding may move a row across a jump of the second derivative within the cube of this distance (see
#: :func:`fcl.kernels.losses.majorant`).
NEAR = 1e-4


def _rows(of: Any, rows: slice) -> tuple[Any, Floats, Floats]:
    """What kernels need of the rows: the loss, the targets and the weights."""
    return of.loss.kernel, of.y[rows], of.s[rows]


def loss(of: Any, rows: slice, m: Floats, b: float) -> float:
    """sum s loss(m + b)."""
    return kernels.losses.weighted_loss(*_rows(of, rows), m, b, kernels.losses.workspace())


def line(of: Any, rows: slice, m: Floats, dm: Floats, beta: float, b: float) -> Floats:
    """The fields of :class:`fcl.objective.LineSums`."""
    out, work = np.zeros(6), kernels.losses.workspace()
    kernels.losses.line_sums(*_rows(of, rows), m, dm, beta, b, work, out)
    return out


def slopes(of: Any, rows: slice, m: Floats, b: float) -> Floats:
    """sum s loss', sum s loss'' and sum |s loss'| at m + b."""
    out, work = np.zeros(3), kernels.losses.workspace()
    kernels.losses.slope_sums(*_rows(of, rows), m, b, work, out)
    return out


def slopes_along(of: Any, rows: slice, m: Floats, dm: Floats, b: float, beta: float) -> Floats:
    """The same at m + beta dm + b."""
    return slopes(of, rows, m + beta * dm, b)


def sides(of: Any, rows: slice, r: Floats) -> Floats:
    """Sum of the negative numbers and sum of the positive numbers."""
    out = np.zeros(2)
    kernels.losses.side_sums(r, out)
    return out


def total(of: Any, rows: slice, values: Floats) -> float:
    """Sum of numbers."""
    return float(values.sum())


def ray(of: Any, rows: slice, r: Floats, balance: tuple[float, float, float]) -> Floats:
    """sum r~ (y - o) and sum r~^2 / s of the balanced residuals r~."""
    out = np.zeros(2)
    kernels.losses.ray_sums(of.y[rows], of.s[rows], of.offset_of(rows), r, balance, out)
    return out


def conjugate(
    of: Any, rows: slice, r: Floats, balance: tuple[float, float, float], t: float
) -> float:
    """sum s loss*(t r~ / s) - t r~ o of the balanced residuals r~."""
    offset, work = of.offset_of(rows), kernels.losses.workspace()
    return kernels.losses.conjugate_sum(*_rows(of, rows), offset, r, balance, t, work)


def margin_sizes(of: Any, rows: slice, margins: Floats, b: float, shift: float = 0.0) -> Floats:
    """Sizes of the numbers that make up each margin, with which its rounding error grows.

    shift : added to the intercept later.
    """
    sizes = np.abs(margins) + (abs(b) + abs(shift))
    if of.loss.translates:
        sizes += np.abs(of.y[rows])
    return np.asarray(sizes)


def rounding(of: Any, rows: slice, margins: Floats, b: float, shift: float) -> tuple[float, float]:
    """What rounding of margins may add to the value and to a slope, apart from common factors.

    shift : added to the intercept later.
    """
    y, s = of.y[rows], of.s[rows]
    r, q = np.empty((2, len(s)))
    kernels.losses.residuals_curvatures(of.loss.kernel, y, s, margins, b, r, q)
    if of.loss.clipped:  # rows at a jump of the curvature
        kernels.losses.raise_curvatures(of.loss.kernel, y, s, margins, b, NEAR, q)
    sizes = margin_sizes(of, rows, margins, b, shift)
    residuals = np.abs(r)
    with np.errstate(over="ignore"):  # near the largest number, rounding has no limit
        value = float((residuals + 0.5 * EPSILON * q * sizes) @ sizes)
        return value, float(q @ sizes) + float(residuals.sum())


def sum_columns(parts: list[Floats]) -> list[float]:
    """Add the numbers of the blocks, each exactly rounded."""
    return [math.fsum(column) for column in zip(*parts, strict=True)]
