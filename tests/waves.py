"""Rows, features without kernels, and the explicit matrix of a stagewise model."""

from __future__ import annotations

from typing import Any

import numpy as np

import fcl
from fcl.features import Generator
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseResult, StagewiseRunOptions, train_stagewise


class Waves(Generator):
    """sin((j + 1) x_a + j): n dense features of numbers, which need no kernel."""

    rows = "numbers"

    def __init__(self, n: int = 30, shift: float = 0.0) -> None:
        self.n, self.shift = n, shift

    def fit(self, sample: Any) -> None:
        self.n_features = self.n

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        picked = np.asarray(block, np.float64)[:, np.asarray(ids) % block.shape[1]]
        return np.sin(picked * (0.5 + np.asarray(ids) * 0.37 % 4) + np.asarray(ids)) + self.shift


class Problem:
    """300 rows of 4 columns, three classes, weights."""

    def __init__(self, n: int = 300, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.x = random.standard_normal((n, 4))
        scores = self.x[:, :3] + 0.7 * random.standard_normal((n, 3))
        self.y = np.array(["a", "b", "c"])[scores.argmax(axis=1)]
        self.s = random.uniform(0.5, 2.0, n)
        self.numbers = np.column_stack([np.sin(2 * self.x[:, 0]), self.x[:, 1] ** 2])

    @property
    def one_hot(self) -> np.ndarray:
        return (self.y[:, None] == np.unique(self.y)).astype(float)

    def data(self, target: Any = None, weights: bool = True) -> fcl.DataSet:
        data = fcl.open_data(self.x, y=None)
        target = self.y if target is None else target
        return data.with_target(target, self.s if weights else None)

    def train(self, features: Any = None, target: Any = None, **options: Any) -> StagewiseResult:
        """Train without validation unless it is requested."""
        running = options.pop("running", None) or StagewiseRunOptions(cores=options.pop("cores", 1))
        settings = Settings(**{"valid_fraction": 0.0, **options})
        data = self.data(target)
        numbers = target is not None
        features = Waves() if features is None else features
        return train_stagewise(data, features, settings, numbers=numbers, running=running)

    def matrix(self, features: Waves | None = None) -> np.ndarray:
        features = features or Waves()
        return features.columns(np.arange(features.n), self.x)
