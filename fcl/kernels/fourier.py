"""Random Fourier features: frequencies from a counter-based generator, angles, and sums over cosines.

Angles are in turns, so that subtracting whole turns is exact: cos(2 pi t) = sin(2 pi u) with
u = 1/4 - |t - rint t| in [-1/4, 1/4], which is computed by an odd polynomial in u. The polynomial
interpolates sin(2 pi u) / u in u^2 at Chebyshev nodes of [0, 1/16]; its errors were measured on 200,000
points.

Values can be rounded to 8 bits: they are then ``step`` times the integer nearest to 127 cos(2 pi t). A
``step`` of 0.0 leaves the cosines unrounded. ``step`` has the dtype of the angles.

Random numbers come from Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
as 1, 2, 3", SC 2011) with counter (id low, id high, number, stream) and key (seed low, seed high).
Logarithms, sines and cosines are computed here with additions, multiplications, divisions and square
roots, which all machines round in the same way.
"""

import math

import numpy as np

from fcl.kernels.compilation import kernel

#: float32: |error| <= 1.8e-7, including rounding; |value| <= 1 + 1.2e-7.
SINE_32 = tuple(
    np.float32(c)
    for c in (
        6.2831852801544065,
        -41.341680613346515,
        81.602476368925180,
        -76.581172644278724,
        39.759827085319101,
    )
)
#: float64: |error| <= 3.2e-16; |value| <= 1 + 2.3e-16.
SINE_64 = (
    6.2831853071795864756,
    -41.341702240399756862,
    81.605249276073615183,
    -76.705859752824919209,
    42.05869392542868225,
    -15.094641676117900093,
    3.8199280942271642021,
    -0.71773379214134533133,
    0.10089695501646811163,
)
#: Streams of the generator.
FREQUENCIES, PHASES = 0, 1
#: Distributions of frequencies.
NORMAL, CAUCHY = 0, 1
QUARTER_32, QUARTER_64 = np.float32(0.25), 0.25
#: The number of steps for a cosine of 1, in 8 bits.
STEPS_32, STEPS_64 = np.float32(127.0), 127.0


@kernel
def angles(z, waves, turns):
    """Write z @ waves to ``turns`` (n, k); z is (n, m), and n is a multiple of 4.

    Every element is a sum in the order of the inputs, whatever its place and the shapes. A product of a
    BLAS library may differ in its last bits from place to place (float32 of OpenBLAS with AVX2 does), so
    that a feature would have one value where it is priced and another where it is cached. With four rows
    and four inputs at a time, this loop is as fast as a BLAS library with vectors of the same length.
    """
    n, m = z.shape
    turns[:] = 0.0
    for i in range(0, n, 4):
        t0, t1, t2, t3 = turns[i], turns[i + 1], turns[i + 2], turns[i + 3]
        k = 0
        while k + 4 <= m:
            a0, a1, a2, a3 = z[i, k], z[i, k + 1], z[i, k + 2], z[i, k + 3]
            b0, b1, b2, b3 = z[i + 1, k], z[i + 1, k + 1], z[i + 1, k + 2], z[i + 1, k + 3]
            c0, c1, c2, c3 = z[i + 2, k], z[i + 2, k + 1], z[i + 2, k + 2], z[i + 2, k + 3]
            d0, d1, d2, d3 = z[i + 3, k], z[i + 3, k + 1], z[i + 3, k + 2], z[i + 3, k + 3]
            for j in range(turns.shape[1]):
                w0, w1, w2, w3 = waves[k, j], waves[k + 1, j], waves[k + 2, j], waves[k + 3, j]
                t0[j] = (((t0[j] + a0 * w0) + a1 * w1) + a2 * w2) + a3 * w3
                t1[j] = (((t1[j] + b0 * w0) + b1 * w1) + b2 * w2) + b3 * w3
                t2[j] = (((t2[j] + c0 * w0) + c1 * w1) + c2 * w2) + c3 * w3
                t3[j] = (((t3[j] + d0 * w0) + d1 * w1) + d2 * w2) + d3 * w3
            k += 4
        while k < m:
            for j in range(turns.shape[1]):
                t0[j] += z[i, k] * waves[k, j]
                t1[j] += z[i + 1, k] * waves[k, j]
                t2[j] += z[i + 2, k] * waves[k, j]
                t3[j] += z[i + 3, k] * waves[k, j]
            k += 1


@kernel
def _cosine(t, quarter, sine):
    """cos(2 pi t), in the dtype of the arguments."""
    u = quarter - abs(t - np.rint(t))
    s = u * u
    p = sine[-1]
    for k in range(len(sine) - 2, -1, -1):
        p = p * s + sine[k]
    return u * p


@kernel
def cosines(turns, phases, quarter, sine, steps, step):
    """Replace ``turns`` (n, k) with cos(2 pi (turns[i, j] + phases[j])), in place.

    steps : STEPS_32 or STEPS_64.
    step : the size of a step; 0.0: values are not rounded.
    """
    if step == 0.0:
        for i in range(turns.shape[0]):
            for j in range(turns.shape[1]):
                turns[i, j] = _cosine(turns[i, j] + phases[j], quarter, sine)
    else:
        for i in range(turns.shape[0]):
            for j in range(turns.shape[1]):
                value = _cosine(turns[i, j] + phases[j], quarter, sine)
                turns[i, j] = step * np.rint(steps * value)


@kernel
def cosine_columns(turns, phases, quarter, sine, steps, step, out, feature, row, n):
    """Write values of :func:`cosines` to ``out`` (features, rows): those of n rows from ``row`` on.

    turns : (k, rows), angles of the features from ``feature`` on; those beyond the end of ``out`` are
        left out.
    """
    for j in range(min(turns.shape[0], out.shape[0] - feature)):
        angles, phase, values = turns[j], phases[j], out[feature + j]
        if step == 0.0:
            for i in range(n):
                values[row + i] = _cosine(angles[i] + phase, quarter, sine)
        else:
            for i in range(n):
                value = _cosine(angles[i] + phase, quarter, sine)
                values[row + i] = step * np.rint(steps * value)


@kernel
def cosine_sums(turns, phases, quarter, sine, steps, step, r, out):
    """Add sum_i r_i phi_ij to out[j], with i over ``r`` and phi of :func:`cosines`; overwrites ``turns``.

    Cosines and sums have separate loops, because a loop that mixes float32 and float64 is much slower.
    """
    cosines(turns, phases, quarter, sine, steps, step)
    n = r.shape[0]
    i = 0
    while i + 4 <= n:  # four rows at a time, so that sums are read and written once for all four
        r0, r1, r2, r3 = r[i], r[i + 1], r[i + 2], r[i + 3]
        for j in range(out.shape[0]):
            a = r0 * turns[i, j] + r1 * turns[i + 1, j]
            out[j] += a + (r2 * turns[i + 2, j] + r3 * turns[i + 3, j])
        i += 4
    while i < n:
        for j in range(out.shape[0]):
            out[j] += r[i] * turns[i, j]
        i += 1


@kernel
def cosine_sums_of_several(turns, phases, quarter, sine, steps, step, r, rows, out):
    """Add sum_i r[k, i] phi_ij to out[k, j], with i over ``rows``; overwrites ``turns``.

    Each sum has the bits of :func:`cosine_sums`. Values are converted to float64 once for all outputs.

    rows : first and last row (excluded), which are the first of ``turns``.
    out : float64 (K, k), with k as in ``turns``.
    """
    cosines(turns, phases, quarter, sine, steps, step)
    first, last = rows
    n, width = last - first, out.shape[1]
    wide = np.empty((4, width))
    t0, t1, t2, t3 = wide[0], wide[1], wide[2], wide[3]
    i = 0
    while i + 4 <= n:
        for j in range(width):
            t0[j], t1[j], t2[j], t3[j] = (
                turns[i, j],
                turns[i + 1, j],
                turns[i + 2, j],
                turns[i + 3, j],
            )
        at = first + i
        for k in range(r.shape[0]):
            r0, r1, r2, r3 = r[k, at], r[k, at + 1], r[k, at + 2], r[k, at + 3]
            sums = out[k]
            for j in range(width):
                a = r0 * t0[j] + r1 * t1[j]
                sums[j] += a + (r2 * t2[j] + r3 * t3[j])
        i += 4
    while i < n:
        for k in range(r.shape[0]):
            for j in range(width):
                out[k, j] += r[k, first + i] * turns[i, j]
        i += 1


@kernel
def cosine_margins(turns, phases, quarter, sine, steps, step, weights, out):
    """Add sum_j weights[j] phi_ij to out[i], with phi of :func:`cosines`; overwrites ``turns``.

    weights : float64 (k,), where k is a multiple of 8.
    """
    cosines(turns, phases, quarter, sine, steps, step)
    for i in range(out.shape[0]):
        g0 = g1 = g2 = g3 = g4 = g5 = g6 = g7 = 0.0
        for j in range(0, weights.shape[0], 8):
            g0 += weights[j] * turns[i, j]
            g1 += weights[j + 1] * turns[i, j + 1]
            g2 += weights[j + 2] * turns[i, j + 2]
            g3 += weights[j + 3] * turns[i, j + 3]
            g4 += weights[j + 4] * turns[i, j + 4]
            g5 += weights[j + 5] * turns[i, j + 5]
            g6 += weights[j + 6] * turns[i, j + 6]
            g7 += weights[j + 7] * turns[i, j + 7]
        out[i] += ((g0 + g1) + (g2 + g3)) + ((g4 + g5) + (g6 + g7))


# -- random numbers --------------------------------------------------------------------------------


@kernel
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: four words of 32 bits from a counter and a key; all are uint64."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & mask, (p0 >> shift) ^ c3 ^ k1, p0 & mask
        k0 = (k0 + np.uint64(0x9E3779B9)) & mask
        k1 = (k1 + np.uint64(0xBB67AE85)) & mask
    return c0, c1, c2, c3


@kernel
def _uniform(high, low):
    """A number in (0, 1] from two 32-bit words: (53 bits + 1/2) / 2^53, rounded to float64."""
    bits = ((high >> np.uint64(5)) << np.uint64(26)) | (low >> np.uint64(6))
    return (np.float64(bits) + 0.5) / 9007199254740992.0


@kernel
def uniforms(seed, feature, number, stream):
    """Two numbers in (0, 1], the same on every machine. All arguments are int64 and nonnegative."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    f, s = np.uint64(feature), np.uint64(seed)
    a, b, c, d = philox(
        f & mask, f >> shift, np.uint64(number), np.uint64(stream), s & mask, s >> shift
    )
    return _uniform(a, b), _uniform(c, d)


@kernel
def logarithm(x):
    """ln x = 2 artanh((m - 1) / (m + 1)) + e ln 2 for normal x > 0, to about 1e-15 relative."""
    m, e = math.frexp(x)
    if m < 0.7071067811865476:
        m *= 2.0
        e -= 1
    q = (m - 1.0) / (m + 1.0)
    s = q * q
    p = 0.0
    for k in range(21, 0, -2):
        p = p * s + 1.0 / k
    return 2.0 * q * p + e * 0.6931471805599453


@kernel
def frequencies(seed, ids, kind, scale, sine, out):
    """Write ``scale`` times the frequencies of features ``ids`` to out (m, >= k), one feature per column.

    NORMAL: N(0, 1), two at a time (Box and Muller). CAUCHY: tan(pi (u - 1/2)).

    sine : SINE_64, even if ``out`` is float32.
    """
    m = out.shape[0]
    for j in range(ids.shape[0]):
        for q in range((m + 1) // 2):
            u, v = uniforms(seed, ids[j], q, FREQUENCIES)
            if kind == NORMAL:
                radius = math.sqrt(-2.0 * logarithm(u))
                a = radius * _cosine(v, QUARTER_64, sine)
                b = radius * _cosine(v - 0.25, QUARTER_64, sine)
            else:
                t, w = 0.5 * (u - 0.5), 0.5 * (v - 0.5)
                a = _cosine(t - 0.25, QUARTER_64, sine) / _cosine(t, QUARTER_64, sine)
                b = _cosine(w - 0.25, QUARTER_64, sine) / _cosine(w, QUARTER_64, sine)
            out[2 * q, j] = scale * a
            if 2 * q + 1 < m:
                out[2 * q + 1, j] = scale * b


@kernel
def phases(seed, ids, out):
    """Write the phases of features ``ids``, in turns in (0, 1], to ``out``."""
    for j in range(ids.shape[0]):
        out[j] = uniforms(seed, ids[j], 0, PHASES)[0]
