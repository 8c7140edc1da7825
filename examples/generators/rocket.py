"""Random convolutions of series, as in ROCKET (Dempster, Petitjean and Webb, 2020), for stagewise models.

fcl stagewise series.zarr --features rocket:Rocket:n=10000 --out series.fcl
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fcl.features import Generator


class Rocket(Generator):
    """A row is a series. Two features for each convolution: maximum, and share of values above 0."""

    rows = "numbers"

    def __init__(self, n=10000, seed=0):
        self.n, self.seed = n, seed

    def fit(self, sample):
        if sample.shape[1] < 9:
            raise ValueError(f"expected series of at least 9 values, got {sample.shape[1]}")
        self.n_features = self.n

    def convolution(self, number, length):
        random = np.random.default_rng([self.seed, number])  # made again whenever it is needed
        weights = random.standard_normal(random.choice([7, 9]))
        dilation = int(2 ** random.uniform(0, np.log2((length - 1) / (len(weights) - 1))))
        return weights - weights.mean(), dilation, random.uniform(-1, 1)

    def columns(self, ids, block):
        found = np.empty((len(block), len(ids)))
        for place, feature in enumerate(ids):
            weights, dilation, bias = self.convolution(int(feature) // 2, block.shape[1])
            windows = sliding_window_view(block, (len(weights) - 1) * dilation + 1, axis=1)
            values = windows[:, :, ::dilation] @ weights + bias
            found[:, place] = (values > 0).mean(axis=1) if feature % 2 else values.max(axis=1)
        return found

    def describe(self, feature):
        return f"convolution {feature // 2}, {'share above 0' if feature % 2 else 'maximum'}"
