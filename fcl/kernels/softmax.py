"""Softmax loss of K margins a row, lse(m_i) - m_i[y_i]: sums over rows, derivatives, dual.

Margins are float64 (K, n), one row of the array for each class. Loops go over tiles of ``TILE``
rows of the data, inside them over classes, so that memory is read in order whatever the number of
classes. ``work`` is the caller's buffer, float64 (K + 3, TILE). Targets y are class numbers 0 .. K
- 1 in float64. Row ranges are ``start`` .. ``stop`` - 1.

Probabilities are exp(m_k - top) / (1 + others): ``top`` is the largest margin of the row, and
``others`` is the sum of the exponentials of all other classes. 1 - p of the most probable class is
others / (1 + others), so that no digit cancels where p is near 1.
"""

import math

import numpy as np

from fcl.kernels.compilation import kernel
from fcl.kernels.elementary import exp_of_negative
from fcl.kernels.losses import add

#: Rows of a tile: the numbers of a dozen classes fit in the first level of a processor's cache.
TILE = 256


@kernel
def exponentials(m, dm, beta, shift, first, size, work):
    """Write exp(t_k - top), top, others and the best class to ``work``.

    Margins are t_k = m_k + beta dm_k + shift_k.
    """
    K = m.shape[0]
    for i in range(size):
        work[K, i] = -math.inf
        work[K + 1, i] = 0.0
    for k in range(K):
        for i in range(size):
            t = m[k, first + i] + shift[k]
            if beta != 0.0:
                t += beta * dm[k, first + i]
            work[k, i] = t
            larger = t > work[K, i]
            work[K, i] = t if larger else work[K, i]
            work[K + 2, i] = k if larger else work[K + 2, i]
    for k in range(K):
        for i in range(size):
            e = exp_of_negative(work[k, i] - work[K, i])
            work[k, i] = e
            work[K + 1, i] += 0.0 if work[K + 2, i] == k else e


@kernel
def own_loss(k, i, at, shift, m, dm, beta, work):
    """The loss of tile row i, whose class is k; ``at`` is its number in the arrays."""
    K = m.shape[0]
    value = math.log1p(work[K + 1, i])
    if work[K + 2, i] != k:
        t = m[k, at] + shift[k]
        if beta != 0.0:
            t += beta * dm[k, at]
        value += work[K, i] - t
    return value


@kernel
def weighted_loss(y, s, m, shift, start, stop, work):
    """Sum of s_i loss_i at margins m + shift_k; writes ``work``."""
    total = carry = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        exponentials(m, m, 0.0, shift, first, size, work)
        for i in range(size):
            at = first + i
            value = own_loss(int(y[at]), i, at, shift, m, m, 0.0, work)
            total, carry = add(total, carry, s[at] * value)
    return total + carry


@kernel
def residuals_curvatures(y, s, m, shift, start, stop, work, r, q):
    """Write r_ik = s_i (p_ik - [y_i = k]) and q_ik = s_i p_ik (1 - p_ik).

    r, q : float64 (K, n), of which the columns ``start`` .. ``stop`` - 1 are written; q may be
        (0, 0), and is then left.
    """
    K = m.shape[0]
    curved = q.shape[0] > 0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        exponentials(m, m, 0.0, shift, first, size, work)
        for k in range(K):
            for i in range(size):
                at = first + i
                total = 1.0 + work[K + 1, i]
                p = work[k, i] / total
                if work[K + 2, i] == k:
                    rest = work[K + 1, i] / total
                else:
                    rest = 1.0 - p
                r[k, at] = -s[at] * rest if y[at] == k else s[at] * p
                if curved:
                    q[k, at] = s[at] * p * rest


@kernel
def balances(y, s, m, shift, start, stop, work, out):
    """Write sums by class to ``out`` and return the sum of s_i loss_i, at margins m + shift_k.

    out : float64 (5, K), overwritten with sum r, sum s p, sum q, sum |r| and max_i (t_ik -
    top_i).
    """
    K = m.shape[0]
    value = carry = 0.0
    out[:4] = 0.0
    out[4] = -math.inf
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        exponentials(m, m, 0.0, shift, first, size, work)
        for i in range(size):
            at = first + i
            found = own_loss(int(y[at]), i, at, shift, m, m, 0.0, work)
            value, carry = add(value, carry, s[at] * found)
        for k in range(K):
            balance = mass = curve = absolute = 0.0
            peak = -math.inf
            for i in range(size):
                at = first + i
                total = 1.0 + work[K + 1, i]
                p = work[k, i] / total
                rest = work[K + 1, i] / total if work[K + 2, i] == k else 1.0 - p
                r = -s[at] * rest if y[at] == k else s[at] * p
                balance += r
                absolute += abs(r)
                mass += s[at] * p
                curve += s[at] * p * rest
                peak = max(peak, m[k, at] + shift[k] - work[K, i])
            out[0, k] += balance
            out[1, k] += mass
            out[2, k] += curve
            out[3, k] += absolute
            out[4, k] = max(out[4, k], peak)
    return value + carry


@kernel
def probabilities(s, m, shift, start, stop, work, out):
    """Write sqrt(s_i) p_ik of the rows start .. stop - 1 to ``out``, float64 (K, stop - start)."""
    K = m.shape[0]
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        exponentials(m, m, 0.0, shift, first, size, work)
        for k in range(K):
            for i in range(size):
                root = math.sqrt(s[first + i])
                out[k, first - start + i] = root * work[k, i] / (1.0 + work[K + 1, i])


@kernel
def line_sums(y, s, m, dm, beta, shift, start, stop, work, out):
    """Write the sums of s loss, and of its first and second derivative in beta, at margins m + beta dm.

    out : float64 (3,). The derivatives use differences from the direction of the own class, and
    from the
        mean direction, so that a constant in dm costs no digits.
    """
    K = m.shape[0]
    value = carry = 0.0
    slope = carry_slope = 0.0
    curve = 0.0
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        exponentials(m, dm, beta, shift, first, size, work)
        for i in range(size):
            at = first + i
            own = int(y[at])
            found = own_loss(own, i, at, shift, m, dm, beta, work)
            value, carry = add(value, carry, s[at] * found)
            # in units of the class with the largest margin, beside which all others are small
            best = int(work[K + 2, i])
            work[K, i] = dm[best, at]
            work[K + 2, i] = 0.0
        for k in range(K):
            for i in range(size):
                at = first + i
                share = work[k, i] / (1.0 + work[K + 1, i])
                work[k, i] = share
                work[K + 2, i] += share * (
                    dm[k, at] - work[K, i]
                )  # mean minus dm of the best class
        for i in range(size):
            at = first + i
            work[K + 1, i] = 0.0
            found = s[at] * (work[K + 2, i] + (work[K, i] - dm[int(y[at]), at]))
            slope, carry_slope = add(slope, carry_slope, found)
        for k in range(K):
            for i in range(size):
                away = dm[k, first + i] - work[K, i] - work[K + 2, i]
                work[K + 1, i] += work[k, i] * away * away
        for i in range(size):
            curve += s[first + i] * work[K + 1, i]
    out[0] = value + carry
    out[1] = slope + carry_slope
    out[2] = curve


@kernel
def close_rows(y, r, step, start, stop):
    """Truncate residuals of other classes to a grid; write minus their sum to each row's own class.

    step : a power of two, at least 2^-52 times the largest weight, so that the sums are exact.
    r : float64 (K, n), changed in place in the columns ``start`` .. ``stop`` - 1.
    """
    inverse = 1.0 / step
    others = np.empty(TILE)
    for first in range(start, stop, TILE):
        last = min(first + TILE, stop)
        others[:] = 0.0
        for k in range(r.shape[0]):
            for i in range(first, last):
                if y[i] != k:
                    value = math.floor(max(r[k, i], 0.0) * inverse) * step
                    r[k, i] = value
                    others[i - first] += value
        for i in range(first, last):
            r[int(y[i]), i] = -others[i - first]


@kernel
def entropy_sum(y, s, offset, r, kept, lost, gained, t):
    """Sum of s_i [H(A^t_i) + <A^t_i - Y_i, o_i>] over a block, for the balanced distributions A.

    y, s : float64 (n,).  offset : float64 (K, n), or (0, 0) for none. r : float64 (K, n),
    residuals; those of the own class are taken as minus the sum of the others. kept, lost, gained :
    float64 (K,). The balanced A_ik is p_ik kept_k + gained_k sum_j p_ij lost_j. t : A^t = Y + t (A
    - Y), 0 <= t <= 1.
    """
    K = r.shape[0]
    total = carry = 0.0
    for i in range(y.shape[0]):
        own = int(y[i])
        away = moved = 0.0
        for k in range(K):
            if k != own:
                p = max(r[k, i], 0.0) / s[i]
                away += p
                moved += p * lost[k]
        moved += max(1.0 - away, 0.0) * lost[own]
        away = value = 0.0
        for k in range(K):
            if k != own:
                a = t * (max(r[k, i], 0.0) / s[i] * kept[k] + moved * gained[k])
                away += a
                if a > 0.0:
                    value -= a * math.log(a)
                if offset.shape[0] > 0:
                    value += a * (offset[k, i] - offset[own, i])
        if away < 1.0:
            value -= (1.0 - away) * math.log1p(-away)
        total, carry = add(total, carry, s[i] * value)
    return total + carry
