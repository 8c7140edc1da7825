"""Euclidean projections onto the simplex and the L1 ball."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.checks import positive, shown
from fcl.errors import InputError
from fcl.types import Floats

#: Radii and vectors above this power of two are scaled, so that no sum overflows.
_MOST = 600
#: Largest ratio of two weights above 0, whose squares must neither overflow nor underflow.
_MOST_RATIO = 1e100


def project_simplex(v: npt.ArrayLike, z: float = 1.0) -> Floats:
    """Project a vector onto the simplex {w >= 0, sum w = z}.

    Parameters
    ----------
    v : array_like of float, shape (n,)
        The vector, of any dtype of real numbers; n > 0.
    z : float, default 1.0
        Sum of the result, above 0.

    Returns
    -------
    w : ndarray of float64, shape (n,)
        The nearest point, max(v - theta, 0) with one threshold theta.

    Raises
    ------
    InputError
        If ``v`` is empty, is not a vector, or has a number that is not finite, or if z <= 0.

    Notes
    -----
    Takes expected time O(n) without sorting, and is accurate for vectors with a large common offset:
    Duchi, Shalev-Shwartz, Singer and Chandra (ICML 2008), *Efficient projections onto the l1-ball for
    learning in high dimensions*, Figure 2, with the changes that :mod:`fcl.kernels.ball` describes.

    Examples
    --------
    >>> from fcl.online import project_simplex
    >>> project_simplex([0.5, 1.0, -2.0])
    array([0.25, 0.75, 0.  ])
    """
    z = positive("z", z)
    v = _vector("v", v)
    if len(v) == 0:
        raise InputError(
            "v: expected at least one number, since the projection sums to z > 0, got none"
        )
    return _projected(v, False, z)


def project_l1_ball(
    v: npt.ArrayLike,
    radius: float,
    weights: npt.ArrayLike | None = None,
    *,
    nonnegative: bool = False,
) -> Floats:
    """Project a vector onto the L1 ball {sum_j a_j |w_j| <= radius}.

    Parameters
    ----------
    v : array_like of float, shape (n,)
        The vector, of any dtype of real numbers.
    radius : float
        Radius of the ball, above 0.
    weights : array_like of float, shape (n,), optional
        The a_j >= 0; by default all are 1. A coordinate of weight 0 is free, and stays as it is.
    nonnegative : bool, default False
        Project onto the part of the ball in which all numbers are at least 0.

    Returns
    -------
    w : ndarray of float64, shape (n,)
        The nearest point: ``v`` itself inside the ball, else sign(v_j) max(|v_j| - theta a_j, 0) with one
        threshold theta > 0.

    Raises
    ------
    InputError
        If ``v`` or ``weights`` is not a vector or has a number that is not finite, if they differ in
        length, if a weight is negative, if two weights above 0 differ by a factor of more than 1e100, or
        if radius <= 0.

    Notes
    -----
    Takes expected time O(n) without sorting: Duchi, Shalev-Shwartz, Singer and Chandra (ICML 2008),
    *Efficient projections onto the l1-ball for learning in high dimensions*, section 4 and Figure 2, and
    section 5 for weights, with the changes that :mod:`fcl.kernels.ball` describes.

    Examples
    --------
    >>> from fcl.online import project_l1_ball
    >>> project_l1_ball([3.0, -2.0, 0.5], 2.0)
    array([ 1.5, -0.5,  0. ])
    """
    z = positive("radius", radius)
    v = _vector("v", v)
    if nonnegative:
        v = np.maximum(v, 0.0)
    if weights is None:
        return _projected(v, True, z) if len(v) else v.copy()
    a = _vector("weights", weights)
    if len(a) != len(v):
        raise InputError(
            f"weights: expected one for each of the {len(v):,} numbers of v, got {len(a):,}"
        )
    return _projected_weighted(v, a, z)


def _vector(name: str, given: npt.ArrayLike) -> Floats:
    """The numbers as a contiguous float64 vector that kernels may read; not always a copy."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InputError(f"{name}: expected a vector of numbers, got {shown(given)}") from error
    if array.ndim != 1:
        raise InputError(f"{name}: expected a vector, got an array of shape {array.shape}")
    if array.size == 0:
        return np.empty(0)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{name}: expected real numbers, got an array of dtype {array.dtype}")
    # kernels are compiled for writeable arrays; they do not write to this one
    return np.require(array, np.float64, ["C", "W", "A"])


def _check_finite(name: str, numbers: Floats) -> None:
    """Raise InputError that names the first number that is not finite."""
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise InputError(
            f"{name}: expected finite numbers, got {numbers[wrong[0]]} at position {wrong[0]}; "
            "remove it or replace it by a number"
        )


def _check_weights(a: Floats) -> None:
    """Raise InputError for weights that are not finite, negative, or too different in size."""
    _check_finite("weights", a)
    if (a < 0.0).any():
        at = int(np.argmax(a < 0.0))
        raise InputError(
            f"weights: expected numbers of at least 0, got {a[at]} at position {at}; "
            "0 leaves a coordinate free"
        )
    least, most = np.min(a, where=a > 0.0, initial=np.inf), np.max(a, initial=0.0)
    if most / least > _MOST_RATIO:
        raise InputError(
            f"weights: expected weights above 0 that differ by a factor of at most {_MOST_RATIO:g}, "
            f"got {least:g} at position {int(np.argmax(a == least))} and {most:g}; "
            "set the smaller one to 0"
        )


def _excess(largest: float) -> int:
    """The power of two by which numbers up to ``largest`` must be divided; 0 if they may stay."""
    exponent = math.frexp(largest)[1]
    return exponent if exponent > _MOST else 0


def _projected(v: Floats, absolute: bool, z: float) -> Floats:
    """The projection onto the ball (``absolute``) or the simplex."""
    largest, total, nonzeros = kernels.ball.survey(v, absolute)
    bound = -math.inf
    if math.isfinite(total):
        bound = (total - z) / (nonzeros if absolute else len(v)) - largest if nonzeros else bound
    else:
        _check_finite("v", v)  # else the sum has overflown
    if absolute and abs(total) <= z:
        return v.copy()
    w = np.empty_like(v)
    if scale := _excess(z):
        v, z, bound = np.ldexp(v, -scale), math.ldexp(z, -scale), -math.inf
        largest = math.ldexp(largest, -scale)
    kernels.ball.project(v, absolute, largest, bound, z, w)
    return np.ldexp(w, scale) if scale else w


def _projected_weighted(v: Floats, a: Floats, z: float) -> Floats:
    """The projection onto the weighted ball, with weights of at most 1."""
    _check_finite("v", v)
    _check_weights(a)
    across = math.frexp(np.max(a, initial=0.0))[1]
    scale = _excess(np.max(np.abs(v), initial=0.0))
    if scale or across:
        # a radius above the largest float holds all vectors
        with np.errstate(over="ignore"):
            z = float(np.ldexp(z, -scale - across))
    u, b = np.ldexp(v, -scale) if scale else v, np.ldexp(a, -across)
    if z == 0.0:  # the radius has more than 300 decimal places less than the vector
        return np.where(a > 0.0, 0.0, v)
    total, largest, bound = kernels.ball.survey_weighted(u, b, z)
    if total <= z:
        return v.copy()
    w = np.empty_like(v)
    kernels.ball.project_weighted(u, b, largest, bound, z, np.empty_like(v), w)
    return np.ldexp(w, scale) if scale else w
