"""Losses of one margin, and sums over rows.

Codes: 0 logistic, 1 squared, 2 squared hinge (``fcl.objective.losses`` has the names). With target y
(-1 or +1 for the classification losses) and margin m:

    logistic        log(1 + exp(-y m))
    squared         (y - m)^2
    squared hinge   max(0, 1 - y m)^2

All forms are safe from overflow for any finite margin.
"""

import math

from fcl.kernels import kernel

LOGISTIC = 0
SQUARED = 1
SQUARED_HINGE = 2


@kernel
def add(total, carry, x):
    """Add x to a sum; returns (sum, carry), whose own sum is exact to the last digits (Neumaier 1974).

    Plain sums of millions of terms lose three digits more, and how many depends on the width of the
    processor's vectors: relative gaps below 1e-9 could then be reached on one machine and not on another.
    """
    new = total + x
    if abs(total) >= abs(x):
        carry += (total - new) + x
    else:
        carry += (x - new) + total
    return new, carry


@kernel
def loss_value(code, y, m):
    """The loss at margin ``m``."""
    if code == LOGISTIC:
        z = -y * m
        if z > 0.0:
            return z + math.log1p(math.exp(-z))
        return math.log1p(math.exp(z))
    if code == SQUARED:
        return (y - m) * (y - m)
    h = 1.0 - y * m
    return h * h if h > 0.0 else 0.0


@kernel
def loss_slope_curvature(code, y, m):
    """First and second derivative of the loss in ``m``."""
    if code == LOGISTIC:
        # e <= 1 always: p = sigma(-y m), the probability of the wrong side
        e = math.exp(-abs(m))
        if y * m > 0.0:
            p = e / (1.0 + e)
        else:
            p = 1.0 / (1.0 + e)
        return -y * p, e / ((1.0 + e) * (1.0 + e))
    if code == SQUARED:
        return 2.0 * (m - y), 2.0
    h = 1.0 - y * m
    if h > 0.0:
        return -2.0 * y * h, 2.0
    return 0.0, 0.0


@kernel
def residuals_curvatures(code, y, s, m, b, r, q):
    """Write r_i = s_i loss' and q_i = s_i loss'' at margins m_i + b for a block of rows."""
    for i in range(y.shape[0]):
        slope, curvature = loss_slope_curvature(code, y[i], m[i] + b)
        r[i] = s[i] * slope
        q[i] = s[i] * curvature


@kernel
def raise_curvatures(code, y, s, m, b, share, q):
    """Raise each q_i to what a model needs that promised too much.

    Logistic loss: at least ``share`` of the curvature with which the quadratic model lies above the loss
    everywhere, tanh(m / 2) / (2 m) (Jaakkola and Jordan 2000). Squared hinge: 2 within share^3 beyond
    the margin too, and everywhere for a share of 1: then the model lies above the loss as well.
    """
    for i in range(y.shape[0]):
        margin = m[i] + b
        if code == LOGISTIC:
            size = abs(margin)
            most = math.tanh(0.5 * size) / (2.0 * size) if size > 1e-4 else 0.25
            q[i] = max(q[i], share * s[i] * most)
        elif code == SQUARED_HINGE and (share >= 1.0 or y[i] * margin - 1.0 < share**3):
            q[i] = 2.0 * s[i]


@kernel
def weighted_loss(code, y, s, m, b):
    """Sum of s_i loss(y_i, m_i + b) over a block of rows."""
    total = carry = 0.0
    for i in range(y.shape[0]):
        total, carry = add(total, carry, s[i] * loss_value(code, y[i], m[i] + b))
    return total + carry


@kernel
def line_sums(code, y, s, m, dm, beta, b, out):
    """Write what a search along a line needs, at margins m_i + beta dm_i + b, for a block of rows.

    out : float64 (6,), overwritten: sum s loss, sum s loss', sum s loss'' , sum s loss' dm,
    sum s loss'' dm^2, sum s loss'' dm.
    """
    value = carry = 0.0
    slope_b = 0.0
    curve_b = 0.0
    slope_beta = 0.0
    curve_beta = 0.0
    cross = 0.0
    for i in range(y.shape[0]):
        t = m[i] + beta * dm[i] + b
        value, carry = add(value, carry, s[i] * loss_value(code, y[i], t))
        slope, curvature = loss_slope_curvature(code, y[i], t)
        slope *= s[i]
        curvature *= s[i]
        slope_b += slope
        curve_b += curvature
        slope_beta += slope * dm[i]
        curve_beta += curvature * dm[i] * dm[i]
        cross += curvature * dm[i]
    out[0] = value + carry
    out[1] = slope_b
    out[2] = curve_b
    out[3] = slope_beta
    out[4] = curve_beta
    out[5] = cross


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
def conjugate_sum(code, y, s, r, shift, scale_negative, scale_positive, t):
    """Sum of s_i loss*(t r~_i / s_i) over a block, r~_i the balanced residual.

    r~_i = r_i - shift s_i for the squared loss, else r_i times the scale of its side.
    Rows have s_i > 0. An argument outside the domain by rounding alone is put on its edge.
    """
    total = carry = 0.0
    for i in range(y.shape[0]):
        if code == SQUARED:
            u = t * (r[i] / s[i] - shift)
            total, carry = add(total, carry, s[i] * (0.25 * u * u + u * y[i]))
            continue
        scale = scale_negative if r[i] < 0.0 else scale_positive
        a = -y[i] * t * scale * r[i] / s[i]
        if code == LOGISTIC:
            a = min(max(a, 0.0), 1.0)
            if a > 0.0:
                total, carry = add(total, carry, s[i] * a * math.log(a))
            if a < 1.0:
                total, carry = add(total, carry, s[i] * (1.0 - a) * math.log1p(-a))
        else:
            a = max(a, 0.0)
            total, carry = add(total, carry, s[i] * (0.25 * a * a - a))
    return total + carry


@kernel
def squared_dual_sums(y, s, r, shift, out):
    """Write sum r~ y and sum r~^2 / s for the balanced residuals of the squared loss to ``out``."""
    linear = carry_linear = 0.0
    quadratic = carry_quadratic = 0.0
    for i in range(y.shape[0]):
        balanced = r[i] - shift * s[i]
        linear, carry_linear = add(linear, carry_linear, balanced * y[i])
        square = balanced * balanced / s[i]
        quadratic, carry_quadratic = add(quadratic, carry_quadratic, square)
    out[0] = linear + carry_linear
    out[1] = quadratic + carry_quadratic


@kernel
def hinge_dual_sums(s, r, scale_negative, scale_positive, out):
    """Write sum |r~| and sum r~^2 / s for the balanced residuals of the squared hinge to ``out``."""
    linear = carry_linear = 0.0
    quadratic = carry_quadratic = 0.0
    for i in range(s.shape[0]):
        scale = scale_negative if r[i] < 0.0 else scale_positive
        balanced = abs(scale * r[i])
        linear, carry_linear = add(linear, carry_linear, balanced)
        square = balanced * balanced / s[i]
        quadratic, carry_quadratic = add(quadratic, carry_quadratic, square)
    out[0] = linear + carry_linear
    out[1] = quadratic + carry_quadratic


@kernel
def combine(m, dm, beta, out):
    """Write out_i = m_i + beta dm_i."""
    for i in range(m.shape[0]):
        out[i] = m[i] + beta * dm[i]


@kernel
def difference(a, b, out):
    """Write out_i = a_i - b_i."""
    for i in range(a.shape[0]):
        out[i] = a[i] - b[i]


@kernel
def slope_sums(code, y, s, m, b, out):
    """Write sum r, sum q and sum |r| of a block of rows at margins m_i + b to out[0:3]."""
    total = carry = 0.0
    curve = 0.0
    absolute = 0.0
    for i in range(y.shape[0]):
        slope, curvature = loss_slope_curvature(code, y[i], m[i] + b)
        total, carry = add(total, carry, s[i] * slope)
        curve += s[i] * curvature
        absolute += s[i] * abs(slope)
    out[0] = total + carry
    out[1] = curve
    out[2] = absolute
