"""Pairs of short motifs with a gap between them, in windows of letters."""

import numpy as np

from fcl.features import Generator


class SpacedPairs(Generator):
    """Two words of k letters at a position, with 0 to gap letters between them: 1 if both are there."""

    rows = "sequences"  # blocks are uint8 (n, L): 0-3 for A, C, G, T, 4 for unknown
    binary = True

    def __init__(self, k=2, gap=6):
        self.k, self.gap = k, gap  # options are kept under their names

    def fit(self, sample):
        self.places_ = sample.shape[1] - 2 * self.k - self.gap + 1
        self.n_features = self.places_ * (self.gap + 1) * 16**self.k

    def parts(self, feature):
        rest, words = divmod(feature, 16**self.k)
        place, gap = divmod(rest, self.gap + 1)
        letters = [words // 4**i % 4 for i in reversed(range(2 * self.k))]
        return place, place + self.k + gap, letters[: self.k], letters[self.k :]

    def columns(self, ids, block):
        found = np.empty((len(block), len(ids)), bool)
        for j, feature in enumerate(ids):
            first, second, a, b = self.parts(int(feature))
            found[:, j] = (block[:, first : first + self.k] == a).all(axis=1)
            found[:, j] &= (block[:, second : second + self.k] == b).all(axis=1)
        return found

    def describe(self, feature):
        first, second, a, b = self.parts(feature)
        words = ["".join("ACGT"[x] for x in word) for word in (a, b)]
        return f"{words[0]} at {first}, {words[1]} at {second}"
