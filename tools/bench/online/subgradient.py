"""Stochastic sub-gradients of the L1 norm, which leave no weight at 0 before they are rounded at the end.

Langford, Li and Zhang, *Sparse online learning via truncated gradient*, NIPS 2008, equation 5: the peer
of truncated gradient in their experiments.
"""

import math

import numpy as np

from fcl.kernels import kernel
from fcl.kernels.losses import loss_slope_curvature

#: Places of ``state``: rows taken; the intercept; rows since the last step of the penalty.
ROWS, INTERCEPT, PENDING = range(3)
STATES = 3


@kernel
def descend_subgradient(indptr, ids, values, y, loss, rate, gravity, period, w, state):
    """Learn all rows in order; changes ``w``, float64 (p,), and ``state`` in place.

    Row t has the rate ``rate`` / sqrt(t). Every ``period`` rows, each weight moves by rate * gravity *
    ``period`` towards 0, and past it.
    """
    for i in range(y.shape[0]):
        m = state[INTERCEPT]
        for e in range(indptr[i], indptr[i + 1]):
            m += w[ids[e]] * values[e]
        state[ROWS] += 1.0
        state[PENDING] += 1.0
        eta = rate / math.sqrt(state[ROWS])
        slope, _ = loss_slope_curvature(loss, y[i], m)
        state[INTERCEPT] -= eta * slope
        for e in range(indptr[i], indptr[i + 1]):
            w[ids[e]] -= eta * slope * values[e]
        if state[PENDING] >= period:
            for j in range(w.shape[0]):
                w[j] -= eta * gravity * state[PENDING] * np.sign(w[j])
            state[PENDING] = 0.0
