"""Steps of numbers: is a column above one of its quantiles?"""

import numpy as np

from fcl.features import Generator


class Thresholds(Generator):
    """1[x_j > q] for the n quantiles q of each column j."""

    rows = "numbers"  # blocks are float32 or float64 (n, m)
    binary = True

    def __init__(self, n=32):
        self.n = n

    def fit(self, sample):
        shares = (np.arange(self.n) + 0.5) / self.n
        self.cuts_ = np.quantile(sample, shares, axis=0).T.ravel()  # learnt: the name ends in _
        self.n_features = len(self.cuts_)

    def columns(self, ids, block):
        return block[:, ids // self.n] > self.cuts_[ids]

    def describe(self, feature):
        return f"x{feature // self.n} > {self.cuts_[feature]:.6g} ({feature % self.n})"
