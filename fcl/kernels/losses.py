"""Losses of a single margin, and sums over rows.

A loss is given as the triple ``Loss.kernel``: its code and two options (0.0 for an option that it
lacks). Each loss has four functions of one row (value, slope and curvature, majorant, conjugate); the
sums are common to all losses. The formulas are in ``fcl.objective.losses``. No function overflows for a
finite margin.

The triple of each loss is a named tuple of its own class (:data:`TRIPLES`). Numba therefore compiles the
sums for each loss separately, with the functions of this loss alone, and a job compiles only what its
loss needs. Online learners take longer to compile than their losses: they get a plain tuple, and are
compiled once, with the functions of all losses.

Sums go over tiles of rows: first the numbers of a tile, then their sums, one after another. So the loops
that make the numbers compile to vector instructions; a compensated sum does not.
"""

import math
from collections import namedtuple
from functools import wraps
from typing import Any

import numba
import numpy as np
from numba.extending import overload

from fcl.kernels.compilation import WITHIN_KERNELS, inlined, kernel
from fcl.kernels.elementary import exp_of_negative, log1p_of_share, negative_entropy

LOGISTIC, SQUARED, SQUARED_HINGE, HUBER, POISSON, HINGE, PINBALL = range(7)

#: Classes of the triples, by code; not typing.NamedTuple: seven classes of the same fields.
TRIPLES: Any = tuple(
    namedtuple(name, "code first second")
    for name in ("Logistic", "Squared", "SquaredHinge", "Huber", "Poisson", "Hinge", "Pinball")
)
# numba's cache finds them by their names
Logistic, Squared, SquaredHinge, Huber, Poisson, Hinge, Pinball = TRIPLES

#: Above this margin, the exponential is continued by its tangent, which keeps sums finite.
MOST_EXPONENT = 500.0
#: Rows of a tile: their numbers stay in the first level of a processor's cache.
TILE = 256


def of_each_loss(*rows):
    """Declare a function of one row by the functions of each loss, by code; None: a loss has none.

    Kernels contain the machine code of the loss whose triple they get, or of all losses if it is plain.
    """

    def declare(stub):
        own = [None if row is None else inlined(row) for row in rows]

        @wraps(stub)
        def function(loss, *numbers):
            if not 0 <= loss[0] < len(own) or own[loss[0]] is None:
                raise ValueError(f"{stub.__name__}: no branch for the code of this loss")
            return own[loss[0]](loss, *numbers)

        @overload(function, strict=False, jit_options=WITHIN_KERNELS)
        def choose(loss, *numbers):
            of_class = getattr(loss, "instance_class", None)
            if of_class in TRIPLES:
                return rows[TRIPLES.index(of_class)]
            return _any_of(own)

        return function

    return declare


def _any_of(own, code=0):
    """A function that takes the loss by the code of its triple."""
    this, last = own[code], code == len(own) - 1
    others = this if last else numba.njit(**WITHIN_KERNELS)(_any_of(own, code + 1))

    def chosen(loss, y, m):
        if loss[0] == code:
            return this(loss, y, m)
        if last:
            raise ValueError("no branch for the code of this loss")
        return others(loss, y, m)

    return chosen


@inlined
def add(total, carry, x):
    """Add x to a compensated sum (total, carry), whose value is total + carry.

    The error of each addition is exact (Knuth 1969, 4.2.2, theorem C), as in the sums of Neumaier (1974),
    but without a branch.

    Plain sums of millions of terms lose about three more digits, depending on the vector width of the
    processor: a relative gap below 1e-9 might then be reached on one machine but not on another.
    """
    new = total + x
    part = new - total
    carry += (total - (new - part)) + (x - part)
    return new, carry


@inlined
def exp_above_tangent(d):
    """exp(d) - 1 - d, accurate even where it is small."""
    if abs(d) > 0.3:
        return math.expm1(d) - d
    total = 1.0
    for k in range(13, 2, -1):
        total = 1.0 + total * d / k
    return 0.5 * d * d * total


@inlined
def clipped_slope(loss, beyond):
    """The derivative of the pinball loss at a margin ``beyond`` above the target."""
    _, tau, width = loss
    return min(max(beyond / width, -tau), 1.0 - tau)


# -- values ----------------------------------------------------------------------------------------


def _logistic_value(loss, y, m):
    wrong = -y * m
    return (wrong if wrong > 0.0 else 0.0) + log1p_of_share(exp_of_negative(-abs(m)))


def _squared_value(loss, y, m):
    return (y - m) * (y - m)


def _squared_hinge_value(loss, y, m):
    h = 1.0 - y * m
    return h * h if h > 0.0 else 0.0


def _huber_value(loss, y, m):
    size, delta = abs(m - y), loss[1]
    return size * size if size <= delta else delta * (2.0 * size - delta)


def _poisson_value(loss, y, m):
    d = m - math.log(y) if y > 0.0 else math.inf
    if abs(d) <= 1.0:
        return y * exp_above_tangent(d)
    e = math.exp(min(m, MOST_EXPONENT)) * (1.0 + max(0.0, m - MOST_EXPONENT))
    return e - y * (1.0 + d) if y > 0.0 else e


def _hinge_value(loss, y, m):
    h = 1.0 - y * m
    return h if h > 0.0 else 0.0


def _pinball_value(loss, y, m):
    beyond = m - y
    slope = clipped_slope(loss, beyond)
    return slope * (beyond - 0.5 * loss[2] * slope)


@of_each_loss(
    _logistic_value,
    _squared_value,
    _squared_hinge_value,
    _huber_value,
    _poisson_value,
    _hinge_value,
    _pinball_value,
)
def loss_value(loss, y, m):
    """The loss at margin ``m``."""


# -- first and second derivatives ------------------------------------------------------------------


def _logistic_slope(loss, y, m):
    # e <= 1 always; ``wrong`` is the probability sigma(-y m) of the other label
    e = exp_of_negative(-abs(m))
    small, large = e / (1.0 + e), 1.0 / (1.0 + e)
    wrong = small if y * m > 0.0 else large
    return -y * wrong, small * large


def _squared_slope(loss, y, m):
    return 2.0 * (m - y), 2.0


def _squared_hinge_slope(loss, y, m):
    h = 1.0 - y * m
    if h > 0.0:
        return -2.0 * y * h, 2.0
    return 0.0, 0.0


def _huber_slope(loss, y, m):
    if abs(m - y) <= loss[1]:
        return 2.0 * (m - y), 2.0
    return math.copysign(2.0 * loss[1], m - y), 0.0


def _poisson_slope(loss, y, m):
    e = math.exp(min(m, MOST_EXPONENT))
    d = m - math.log(y) if y > 0.0 else math.inf
    return y * math.expm1(d) if abs(d) <= 1.0 else e - y, e


def _hinge_slope(loss, y, m):
    return (-y, 0.0) if y * m < 1.0 else (0.0, 0.0)


def _pinball_slope(loss, y, m):
    slope = clipped_slope(loss, m - y)
    return slope, 1.0 / loss[2] if -loss[1] < slope < 1.0 - loss[1] else 0.0


@of_each_loss(
    _logistic_slope,
    _squared_slope,
    _squared_hinge_slope,
    _huber_slope,
    _poisson_slope,
    _hinge_slope,
    _pinball_slope,
)
def loss_slope_curvature(loss, y, m):
    """First and second derivative of the loss in ``m``; at the kink of the hinge 0 and 0."""


# -- majorants -------------------------------------------------------------------------------------


def _logistic_majorant(loss, y, m, share):
    size = abs(m)
    return share * (math.tanh(0.5 * size) / (2.0 * size) if size > 1e-4 else 0.25)


def _squared_majorant(loss, y, m, share):
    return 0.0


def _squared_hinge_majorant(loss, y, m, share):
    return 2.0 if share >= 1.0 or y * m - 1.0 < share**3 else 0.0


def _huber_majorant(loss, y, m, share):
    far = abs(m - y) / loss[1]
    return 2.0 if far - 1.0 < share**3 and share < 1.0 else 2.0 * share / max(far, 1.0)


def _poisson_majorant(loss, y, m, share):
    return share * max(math.exp(min(m, MOST_EXPONENT)), y)


def _pinball_majorant(loss, y, m, share):
    # a Huber loss around the middle of the curved interval, plus a linear function
    far = 2.0 * abs((m - y) / loss[2] - (0.5 - loss[1]))
    near = far - 1.0 < share**3 and share < 1.0
    return (1.0 if near else share / max(far, 1.0)) / loss[2]


@of_each_loss(
    _logistic_majorant,
    _squared_majorant,
    _squared_hinge_majorant,
    _huber_majorant,
    _poisson_majorant,
    None,
    _pinball_majorant,
)
def majorant(loss, y, m, share):
    """A lower limit of the curvature at ``m`` for the model after a line search has cut a step short.

    It is at least 0. With a share of 1, the quadratic that touches the loss at ``m`` with this curvature,
    or with the loss's own if larger, lies above the loss where a quadratic can; a smaller share in (0, 1]
    gives at most the same limit.

    Logistic: ``share`` times tanh(m / 2) / (2 m), the curvature with which a quadratic lies above the
    loss everywhere (Jaakkola and Jordan 2000). Squared: 0, because the loss's own curvature is enough.
    Squared hinge and Huber: 2 within share^3 beyond the jump of the second derivative; elsewhere 0 for
    the squared hinge, and for Huber ``share`` times 2 delta / |y - m|, with which a quadratic lies above
    the loss. With a share of 1 the quadratic lies above both losses. Pinball: as Huber, whose loss it is
    but for scale, place and a linear function. Poisson: no quadratic does; the
    result is ``share`` times max(exp(m), y), which bounds the curvature from m to log y and below. The
    hinge has no branch: it is not for solvers that need curvatures.
    """


# -- conjugates ------------------------------------------------------------------------------------


def _logistic_conjugate(loss, y, u):
    a = -y * u
    a = 0.0 if a < 0.0 else a
    return negative_entropy(1.0 if a > 1.0 else a)


def _squared_conjugate(loss, y, u):
    return 0.25 * u * u + u * y


def _squared_hinge_conjugate(loss, y, u):
    a = max(-y * u, 0.0)
    return 0.25 * a * a - a


def _huber_conjugate(loss, y, u):
    u = min(max(u, -2.0 * loss[1]), 2.0 * loss[1])
    return 0.25 * u * u + u * y


def _poisson_conjugate(loss, y, u):
    v = max(y + u, 0.0)
    if y == 0.0:
        return v * math.log(v) - v if v > 0.0 else 0.0
    if v == 0.0:
        return y - y * math.log(y)
    if abs(u) <= 0.5 * y:
        return v * exp_above_tangent(-math.log1p(u / y)) + u * math.log(y)
    return v * math.log(v / y) + u * (math.log(y) - 1.0)


def _hinge_conjugate(loss, y, u):
    return -min(max(-y * u, 0.0), 1.0)


def _pinball_conjugate(loss, y, u):
    u = min(max(u, -loss[1]), 1.0 - loss[1])
    return 0.5 * loss[2] * u * u + u * y


@of_each_loss(
    _logistic_conjugate,
    _squared_conjugate,
    _squared_hinge_conjugate,
    _huber_conjugate,
    _poisson_conjugate,
    _hinge_conjugate,
    _pinball_conjugate,
)
def conjugate(loss, y, u):
    """The convex conjugate sup_m (u m - loss(y, m)).

    Rounding may put u just outside the domain, so it is clipped to the edge.
    """


@kernel
def losses(loss, y, m, out):
    """Write the loss of each row to ``out``."""
    for i in range(y.shape[0]):
        out[i] = loss_value(loss, y[i], m[i])


@kernel
def residuals_curvatures(loss, y, s, m, b, r, q):
    """Write r_i = s_i loss' and q_i = s_i loss'' at margins m_i + b for a block of rows."""
    for i in range(y.shape[0]):
        slope, curvature = loss_slope_curvature(loss, y[i], m[i] + b)
        r[i] = slope * s[i]
        q[i] = curvature * s[i]


@kernel
def raise_curvatures(loss, y, s, m, b, share, q):
    """Raise each q_i to at least s_i times :func:`majorant`, for a model that promised too much."""
    for i in range(y.shape[0]):
        q[i] = max(q[i], s[i] * majorant(loss, y[i], m[i] + b, share))


def workspace():
    """Make the buffers of a sum over tiles, ``work``."""
    return np.empty((4, TILE))


@kernel
def weighted_loss(loss, y, s, m, b, work):
    """Sum of s_i loss(y_i, m_i + b) over a block of rows."""
    values = work[0]
    total = carry = 0.0
    for first in range(0, y.shape[0], TILE):
        last = min(first + TILE, y.shape[0])
        own, weights, margins = y[first:last], s[first:last], m[first:last]
        for i in range(last - first):
            values[i] = loss_value(loss, own[i], margins[i] + b)
        for i in range(last - first):
            total, carry = add(total, carry, weights[i] * values[i])
    return total + carry


@kernel
def line_sums(loss, y, s, m, dm, beta, b, work, out):
    """Write the sums that a line search needs, at margins m_i + beta dm_i + b, for a block of rows.

    out : float64 (6,), overwritten with the sums of s loss, s loss', s loss'', s loss' dm, s loss'' dm^2
        and s loss'' dm.
    """
    at, values, slopes, curvatures = work[0], work[1], work[2], work[3]
    value = carry = 0.0
    slope_b = curve_b = slope_beta = curve_beta = cross = 0.0
    for first in range(0, y.shape[0], TILE):
        last = min(first + TILE, y.shape[0])
        own, weights = y[first:last], s[first:last]
        margins, way = m[first:last], dm[first:last]
        for i in range(last - first):
            at[i] = (margins[i] + beta * way[i]) + b
        for i in range(last - first):
            values[i] = loss_value(loss, own[i], at[i])
        for i in range(last - first):
            slopes[i], curvatures[i] = loss_slope_curvature(loss, own[i], at[i])
        for i in range(last - first):
            value, carry = add(value, carry, weights[i] * values[i])
            slope = slopes[i] * weights[i]
            curvature = curvatures[i] * weights[i]
            slope_b += slope
            curve_b += curvature
            slope_beta += slope * way[i]
            curve_beta += curvature * way[i] * way[i]
            cross += curvature * way[i]
    out[0], out[1], out[2] = value + carry, slope_b, curve_b
    out[3], out[4], out[5] = slope_beta, curve_beta, cross


@kernel
def side_sums(r, out):
    """Write the sums of the negative and of the positive entries of ``r`` to out[0], out[1]."""
    negative = carry_negative = 0.0
    positive = carry_positive = 0.0
    for i in range(r.shape[0]):
        if r[i] < 0.0:
            negative, carry_negative = add(negative, carry_negative, r[i])
        else:
            positive, carry_positive = add(positive, carry_positive, r[i])
    out[0] = negative + carry_negative
    out[1] = positive + carry_positive


@kernel
def conjugate_sum(loss, y, s, o, r, balance, t, work):
    """Sum of s_i [loss*(u_i) - u_i o_i] over a block, with u_i = t r~_i / s_i for balanced residuals r~.

    o : float64 (n,), offsets of the margins, or (0,) for none.
    balance : (shift, scale for r_i < 0, scale for r_i >= 0), with r~_i = scale r_i - shift s_i.
    """
    shift, scale_negative, scale_positive = balance
    offset = o.shape[0] > 0
    at, values = work[0], work[1]
    total = carry = 0.0
    for first in range(0, y.shape[0], TILE):
        last = min(first + TILE, y.shape[0])
        own, weights, residuals = y[first:last], s[first:last], r[first:last]
        for i in range(last - first):
            scale = scale_negative if residuals[i] < 0.0 else scale_positive
            at[i] = t * (scale * residuals[i] / weights[i] - shift)
        for i in range(last - first):
            values[i] = conjugate(loss, own[i], at[i])
        for i in range(last - first):
            value = values[i] - at[i] * o[first + i] if offset else values[i]
            total, carry = add(total, carry, weights[i] * value)
    return total + carry


@kernel
def ray_sums(y, s, o, r, balance, out):
    """Write sum r~ (y - o) and sum r~^2 / s for the balanced residuals to ``out``."""
    shift, scale_negative, scale_positive = balance
    offset = o.shape[0] > 0
    linear = carry_linear = 0.0
    quadratic = carry_quadratic = 0.0
    for i in range(y.shape[0]):
        scale = scale_negative if r[i] < 0.0 else scale_positive
        balanced = scale * r[i] - shift * s[i]
        linear, carry_linear = add(
            linear, carry_linear, balanced * (y[i] - o[i] if offset else y[i])
        )
        square = balanced * balanced / s[i]
        quadratic, carry_quadratic = add(quadratic, carry_quadratic, square)
    out[0] = linear + carry_linear
    out[1] = quadratic + carry_quadratic


@kernel
def slope_sums(loss, y, s, m, b, work, out):
    """Write sum r, sum q and sum |r| of a block of rows at margins m_i + b to out[0:3]."""
    slopes, curvatures = work[0], work[1]
    total = carry = curve = absolute = 0.0
    for first in range(0, y.shape[0], TILE):
        last = min(first + TILE, y.shape[0])
        own, weights, margins = y[first:last], s[first:last], m[first:last]
        for i in range(last - first):
            slopes[i], curvatures[i] = loss_slope_curvature(loss, own[i], margins[i] + b)
        for i in range(last - first):
            total, carry = add(total, carry, weights[i] * slopes[i])
            curve += weights[i] * curvatures[i]
            absolute += weights[i] * abs(slopes[i])
    out[0], out[1], out[2] = total + carry, curve, absolute
