"""Truncated gradient whose model is the mean of its iterates (theorem 3.2 of the paper).

The kernels of :mod:`fcl.kernels.online` learn the rows; these add up the weights before each of them.
"""

from fcl.kernels.compilation import kernel
from fcl.kernels.online import (
    DIVERGED,
    DONE,
    INTERCEPT,
    MOST_MARGIN,
    REBASE,
    ROWS,
    SHRINK,
    STATES,
    learn_truncated,
    truncated,
)
from fcl.kernels.ordered import first_from

#: Further places of ``state`` with averages: the sum of the intercept over the rows, the number of
#: truncations since the last flush, and for each the row from which on it holds, and SHRINK after it.
INTERCEPT_SUM, TRUNCATIONS, HISTORY = range(STATES, STATES + 3)
#: Most truncations between two flushes with averages.
MOST_HISTORY = 1024
AVERAGED_STATES = HISTORY + 2 * MOST_HISTORY


@kernel
def span_sum(w, stamp, factor, first, last, rule, state):
    """The sum of a weight over the iterates from ``first`` to ``last``, in which no row has its feature.

    w : the weight when SHRINK was ``stamp``.  factor : penalty factor.
    """
    if w == 0.0 or first > last:
        return 0.0
    n = int(state[TRUNCATIONS])
    starts = state[HISTORY : HISTORY + n]
    shrinks = state[HISTORY + MOST_HISTORY : HISTORY + MOST_HISTORY + n]
    k = first_from(starts, first + 1)
    total = 0.0
    while first <= last:
        end = min(last, starts[k] - 1.0) if k < n else last
        due = (shrinks[k - 1] if k > 0 else 0.0) - stamp
        now = truncated(w, due * factor, rule.theta, rule.rounding)
        if now == 0.0:
            break
        total += now * (end - first + 1.0)
        first, k = end + 1.0, k + 1
    return total


@kernel
def count_iterates(j, rule, factors, table, state):
    """Add a weight to its sum, over the iterates up to the last row; bring it up to date."""
    w, f = table[j, 0], 1.0 if factors is None else factors[j]
    if w != 0.0:
        table[j, 2] += span_sum(w, table[j, 1], f, table[j, 3] + 1.0, state[ROWS], rule, state)
        table[j, 0] = truncated(w, (state[SHRINK] - table[j, 1]) * f, rule.theta, rule.rounding)
    table[j, 1], table[j, 3] = state[SHRINK], state[ROWS]


@kernel
def learn_averaged(indptr, ids, values, y, s, margins, loss, rule, factors, table, state):
    """Learn rows as :func:`learn_truncated`, and sum the iterates w_1, w_2, ..., one before each row.

    An iterate is the weights before a row. Those of a feature that rows do not have change at truncations
    alone, of which ``state`` has a list; their sum is computed when a row has the feature.

    table : (p, 4) float64: the weight, SHRINK at its last truncation, the sum of its iterates, and their
        number.
    """
    for i in range(y.shape[0]):
        if s[i] == 0.0:
            continue
        lo, hi = indptr[i], indptr[i + 1]
        rows, shrink, b = state[ROWS], state[SHRINK], state[INTERCEPT]
        m = 0.0
        for e in range(lo, hi):
            count_iterates(ids[e], rule, factors, table, state)
            m += table[ids[e], 0] * values[e]
        if not abs(margins[i] + (m + b)) < MOST_MARGIN:
            return i, DIVERGED
        for e in range(lo, hi):
            j = ids[e]
            if table[j, 3] == rows:
                table[j, 2] += table[j, 0]
                table[j, 3] = rows + 1.0
        _, why = learn_truncated(
            indptr[i : i + 2],
            ids,
            values,
            y[i : i + 1],
            s[i : i + 1],
            margins[i : i + 1],
            loss,
            rule,
            factors,
            table,
            state,
        )
        state[INTERCEPT_SUM] += b
        if state[SHRINK] != shrink:
            n = int(state[TRUNCATIONS])
            state[HISTORY + n] = state[ROWS] + 1.0
            state[HISTORY + MOST_HISTORY + n] = state[SHRINK]
            state[TRUNCATIONS] = n + 1.0
            if n + 1 == MOST_HISTORY:
                why = REBASE
        if why == REBASE:
            return i + 1, REBASE
    return y.shape[0], DONE


@kernel
def flush_averaged(rule, factors, table, state):
    """Bring all weights and sums of iterates up to the last row; the caller forgets the truncations."""
    for j in range(table.shape[0]):
        count_iterates(j, rule, factors, table, state)
        table[j, 1] = 0.0


@kernel
def settle_averaged(rule, factors, table, state, first, last, out):
    """Write the means of the iterates, up to the one after the last row, to ``out``."""
    rows = state[ROWS]
    for j in range(first, last):
        w, stamp, f = table[j, 0], table[j, 1], 1.0 if factors is None else factors[j]
        total = table[j, 2] + span_sum(w, stamp, f, table[j, 3] + 1.0, rows, rule, state)
        total += truncated(w, (state[SHRINK] - stamp) * f, rule.theta, rule.rounding)
        out[j - first] = total / (rows + 1.0)
