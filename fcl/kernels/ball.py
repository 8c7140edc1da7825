"""Projections onto the simplex and the L1 ball, in expected linear time without sorting.

Duchi, Shalev-Shwartz, Singer and Chandra (ICML 2008), *Efficient projections onto the l1-ball for
learning in high dimensions*: the projection subtracts one threshold from all sizes, and a random search
finds the threshold (Figure 2). The kernels differ from the figure in three ways:

- Sizes are taken from the top, d_j = |v_j| - max |v| <= 0. Sums of the d_j that matter are at most as
  large as the radius, however large the sizes are, and keep all their digits.
- The search begins with the sizes above a lower bound of the threshold. For every set I of coordinates,
  (sum_I d_j - z) / |I| is such a bound (Michelot 1986), so the bound rises while sizes are collected.
- A rejected pivot goes together with the sizes that equal it. As printed, the search drops one tie at a
  time, which takes n^2 / nnz steps on a vector with nnz nonzeros.

Loops that collect sizes always write, and advance by the condition: they have no branches to mispredict.
With weights a_j the sizes are |v_j| / a_j, counted a_j^2 times (section 5 of the paper).
"""

import numpy as np

from fcl.kernels.compilation import kernel

#: Sizes that are collected between two rises of the lower bound, and summed at a time.
BLOCK = 1024


@kernel
def sum_from(values, first, last):
    """The sum of ``values[first:last]``, float64, in four partial sums, which the processor overlaps."""
    s0 = s1 = s2 = s3 = 0.0
    i = first
    while i + 4 <= last:
        s0 += values[i]
        s1 += values[i + 1]
        s2 += values[i + 2]
        s3 += values[i + 3]
        i += 4
    while i < last:
        s0 += values[i]
        i += 1
    return (s0 + s1) + (s2 + s3)


@kernel
def survey(v, absolute):
    """Largest number, sum, and number of nonzeros of ``v``, float64 (n,); of |v| if ``absolute``.

    The sum is not finite if a number is not, or if the sum overflows. Blocks of the vector are summed
    apart, so that the error of the sum grows with n / BLOCK.
    """
    n = v.shape[0]
    largest = -np.inf
    total = 0.0
    nonzeros = 0
    for begin in range(0, n, BLOCK):
        s0 = s1 = s2 = s3 = 0.0
        l0 = l1 = l2 = l3 = -np.inf
        end = min(begin + BLOCK, n)
        i = begin
        while i + 4 <= end:
            x0, x1, x2, x3 = v[i], v[i + 1], v[i + 2], v[i + 3]
            nonzeros += (x0 != 0.0) + (x1 != 0.0) + (x2 != 0.0) + (x3 != 0.0)
            if absolute:
                x0, x1, x2, x3 = abs(x0), abs(x1), abs(x2), abs(x3)
            s0 += x0
            s1 += x1
            s2 += x2
            s3 += x3
            l0 = x0 if x0 > l0 else l0
            l1 = x1 if x1 > l1 else l1
            l2 = x2 if x2 > l2 else l2
            l3 = x3 if x3 > l3 else l3
            i += 4
        while i < end:
            x0 = abs(v[i]) if absolute else v[i]
            nonzeros += x0 != 0.0
            s0 += x0
            l0 = x0 if x0 > l0 else l0
            i += 1
        total += (s0 + s1) + (s2 + s3)
        largest = max(largest, l0, l1, l2, l3)
    return largest, total, nonzeros


@kernel
def collect(v, absolute, largest, bound, z, sizes):
    """Write the d_j = v_j - largest that may exceed the threshold to ``sizes``, float64 (n,).

    ``bound`` is a lower bound of the threshold, from the top. Returns the number of sizes, their sum, and
    the last bound; numbers below it were dropped, wrongly if rounding has put it above the threshold.
    """
    n = v.shape[0]
    count = 0
    total = 0.0
    for begin in range(0, n, BLOCK):
        before = count
        if absolute:
            for i in range(begin, min(begin + BLOCK, n)):
                d = abs(v[i]) - largest
                sizes[count] = d
                count += d >= bound
        else:
            for i in range(begin, min(begin + BLOCK, n)):
                d = v[i] - largest
                sizes[count] = d
                count += d >= bound
        if count > before:
            total += sum_from(sizes, before, count)
            bound = max(bound, (total - z) / count)
    return count, total, bound


@kernel
def draw(state, count):
    """The next state of a generator of 31 random bits, and a number below ``count`` <= 2^32 from it."""
    state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    return state, (state * count) >> 31


@kernel
def search(sizes, count, total, z):
    """The threshold theta with sum_j max(0, d_j - theta) = z over ``sizes[:count]``, which it overwrites.

    ``total`` is the sum of the sizes; the largest must be 0, and z > 0. A size u is active if
    sum_{d_j >= u} (d_j - u) < z (equation 9); theta = (sum of the active sizes - z) / (their number).
    """
    theta = (total - z) / count
    kept = 0
    for i in range(count):
        x = sizes[i]
        sizes[kept] = x
        kept += x >= theta
    if kept == count:  # all are active, as in a vector of equal numbers
        return theta
    count = state = kept
    total = 0.0
    active = 0
    while count > 0:
        state, at = draw(state, count)
        pivot = sizes[at]
        s0 = s1 = 0.0
        taken = 0
        i = 0
        while i + 2 <= count:
            x0, x1 = sizes[i], sizes[i + 1]
            s0 += x0 if x0 >= pivot else 0.0
            s1 += x1 if x1 >= pivot else 0.0
            taken += (x0 >= pivot) + (x1 >= pivot)
            i += 2
        if i < count and sizes[i] >= pivot:
            s0 += sizes[i]
            taken += 1
        s0 += s1
        kept = 0
        if (total + s0) - (active + taken) * pivot < z:
            total += s0
            active += taken
            theta = (total - z) / active
            for i in range(count):
                x = sizes[i]
                sizes[kept] = x
                kept += (x < pivot) & (x > theta)
        else:
            for i in range(count):
                x = sizes[i]
                sizes[kept] = x
                kept += x > pivot
        count = kept
    return (total - z) / active


@kernel
def shrink(v, absolute, largest, shift, w):
    """Write the projection to ``w``, float64 (n,): v_j - theta, or sign(v_j) (|v_j| - theta), cut at 0.

    theta = largest + shift, which is at least 0 if ``absolute``.
    """
    if absolute:
        for i in range(v.shape[0]):
            x = abs(v[i])
            # rounding must not move a number away from 0
            size = min(max((x - largest) - shift, 0.0), x)
            w[i] = size if v[i] > 0.0 else 0.0 - size
    else:
        for i in range(v.shape[0]):
            w[i] = max((v[i] - largest) - shift, 0.0)


@kernel
def project(v, absolute, largest, bound, z, w):
    """Project ``v`` onto {sum |w| = z} or, not ``absolute``, onto {w >= 0, sum w = z}; writes to ``w``.

    v, w : float64 (n,), n > 0; they must not overlap
    largest : the largest |v_j|, or v_j; with ``absolute``, sum |v| >= z
    bound : lower bound of the threshold, from the top, up to rounding
    z : float, above 0
    """
    # w holds the sizes until the threshold is known; the largest number alone gives the bound -z
    count, total, bound = collect(v, absolute, largest, max(bound, -z), z, w)
    shift = search(w, count, total, z) if count > 0 else -np.inf
    if shift < bound:  # rounding: the bound has dropped an active number
        count, total, bound = collect(v, absolute, largest, -z, np.inf, w)
        shift = search(w, count, total, z)
    shrink(v, absolute, largest, shift, w)


@kernel
def survey_weighted(v, a, z):
    """Sum of a_j |v_j|, largest ratio |v_j| / a_j, and a lower bound of the threshold, over a_j > 0."""
    total = squares = 0.0
    largest = bound = 0.0
    for i in range(v.shape[0]):
        if a[i] > 0.0 and v[i] != 0.0:
            x = abs(v[i])
            total += a[i] * x
            squares += a[i] * a[i]
            largest = max(largest, x / a[i])
            bound = max(bound, (x - z / a[i]) / a[i])
    return total, largest, max(bound, (total - z) / squares) if squares > 0.0 else 0.0


@kernel
def collect_weighted(v, a, largest, bound, sizes, squares):
    """Write the d_j = |v_j| / a_j - largest of at least ``bound``, and a_j^2; returns their number."""
    count = 0
    for i in range(v.shape[0]):
        if a[i] > 0.0:
            d = abs(v[i]) / a[i] - largest
            sizes[count] = d
            squares[count] = a[i] * a[i]
            count += d >= bound
    return count


@kernel
def search_weighted(sizes, squares, count, z):
    """The threshold theta with sum_j a_j^2 max(0, d_j - theta) = z; overwrites both arrays.

    As :func:`search`, with each size counted a_j^2 times.
    """
    state = count
    total = 0.0
    active = 0.0
    while count > 0:
        state, at = draw(state, count)
        pivot = sizes[at]
        sum_above = above = 0.0
        for i in range(count):
            q = squares[i] if sizes[i] >= pivot else 0.0
            sum_above += q * sizes[i]
            above += q
        accepted = (total + sum_above) - (active + above) * pivot < z
        low, high = pivot, np.inf
        if accepted:
            total += sum_above
            active += above
            low, high = (total - z) / active, pivot
        kept = 0
        for i in range(count):
            x = sizes[i]
            sizes[kept] = x
            squares[kept] = squares[i]
            kept += (x > low) & (x < high)
        count = kept
    return (total - z) / active


@kernel
def project_weighted(v, a, largest, bound, z, squares, w):
    """Project ``v`` onto {sum a_j |w_j| = z}; writes to ``w``, float64 (n,).

    v, a, squares, w : float64 (n,); ``squares`` is overwritten
    largest, bound : of :func:`survey_weighted`; sum a_j |v_j| >= z
    """
    bound -= largest
    count = collect_weighted(v, a, largest, bound, w, squares)
    shift = search_weighted(w, squares, count, z) if count > 0 else -np.inf
    if shift < bound:
        count = collect_weighted(v, a, largest, -np.inf, w, squares)
        shift = search_weighted(w, squares, count, z)
    for i in range(v.shape[0]):
        x = abs(v[i])
        if a[i] > 0.0:
            x = min(max(a[i] * ((x / a[i] - largest) - shift), 0.0), x)
        w[i] = x if v[i] > 0.0 else 0.0 - x
