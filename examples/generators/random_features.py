"""Random logits and random polynomials of low degree, for stagewise models.

fcl stagewise train.zarr --features random_features:RandomLogits:n=8192 --out model.fcl
"""

import numpy as np
from scipy.special import expit

from fcl.features import Generator

GROUP = 256  # features whose weights are drawn together


class RandomForms(Generator):
    """Linear forms with Gaussian weights of rows that are centred and divided by their mean norm."""

    rows = "numbers"
    forms = 1  # for each feature

    def __init__(self, n=8192, scale=1.0, seed=0):
        self.n, self.scale, self.seed = n, scale, seed

    def fit(self, sample):
        self.mean_ = sample.mean(axis=0, dtype=np.float64)
        self.norm_ = float(np.sqrt(np.square(sample - self.mean_).sum(axis=1).mean())) or 1.0
        self.n_features = self.n

    def weights(self, group, width):
        random = np.random.default_rng([self.seed, group])  # made again whenever they are needed
        drawn = random.standard_normal((width + 1, self.forms * GROUP))
        return self.scale * drawn.astype(np.float32)

    def values(self, ids, block):
        """The forms of each feature, (rows, features, forms)."""
        rows = ((block - self.mean_) / self.norm_).astype(np.float32)
        rows = np.column_stack([rows, np.full(len(rows), 0.5, np.float32)])
        found = np.empty((len(rows), len(ids), self.forms), np.float32)
        groups = ids // GROUP
        for group in np.unique(groups):
            made = rows @ self.weights(int(group), block.shape[1])
            own = groups == group
            found[:, own] = made.reshape(len(rows), GROUP, self.forms)[:, ids[own] % GROUP]
        return found


class RandomLogits(RandomForms):
    """1 / (1 + exp(-z)) of a random linear form z."""

    def columns(self, ids, block):
        return expit(self.values(ids, block)[:, :, 0])

    def describe(self, feature):
        return f"random logit {feature}"


class RandomPolynomials(RandomForms):
    """Products of two random linear forms: random polynomials of degree 2."""

    forms = 2

    def columns(self, ids, block):
        return self.values(ids, block).prod(axis=2) / self.scale**2

    def describe(self, feature):
        return f"random polynomial {feature}"
