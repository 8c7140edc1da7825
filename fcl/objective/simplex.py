"""Balance distributions over classes, as free intercepts need it of a point of the dual.

Given A_i in the simplex, with class sums N = sum_i s_i A_i that differ from the weights n of the classes,
every class with N_k > n_k gives up the share (N_k - n_k) / N_k of each of its numbers, and each row hands
what it lost to the other classes in proportion to n_k - N_k:

    A~_ik = A_ik n_k / N_k                                     where N_k > n_k
    A~_ik = A_ik + (lost by row i) (n_k - N_k) / sum_l max(0, n_l - N_l)    elsewhere

Numbers stay positive and rows keep their sum of 1, so A~_i is in the simplex. sum_i s_i A~_i = n up to
rounding, and sum_i s_i |A~_ik - A_ik| = |N_k - n_k|, by which, times the largest |phi_ij|, the price of a
feature changes at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcl.types import Floats


@dataclass(frozen=True)
class Balanced:
    """How to balance: A~_ik = A_ik kept_k + gained_k sum_l A_il lost_l; float64 (K,) each."""

    kept: Floats
    lost: Floats
    gained: Floats


def balanced(delta: Floats, n: Floats) -> Balanced:
    """The balance of distributions with class sums n + delta; float64 (K,), the sum of delta is 0."""
    over = np.maximum(delta, 0.0)
    under = np.maximum(-delta, 0.0)
    lost = np.divide(over, n + over, out=np.zeros(len(n)), where=over > 0.0)
    kept = np.where(over > 0.0, n / np.where(over > 0.0, n + over, 1.0), 1.0)
    return Balanced(kept, lost, under / max(float(under.sum()), np.finfo(float).tiny))
