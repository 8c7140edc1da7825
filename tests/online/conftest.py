"""What tests of several learners share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from online_eager import chunk_of

from fcl.online import Learner, OnlineOptions, make_learner
from fcl.online.ogd import Ogd

N, P = 1200, 15
_RANDOM = np.random.default_rng(0)
#: Rows of 0 and 1, and labels -1 and 1.
ROWS = np.where(_RANDOM.random((N, P)) < 0.4, 1.0, 0.0)
LABELS = np.where(_RANDOM.random(N) < 1 / (1 + np.exp(-ROWS @ _RANDOM.normal(size=P))), 1, -1)


def feed(
    learner: Learner, X: np.ndarray, y: np.ndarray, s: np.ndarray | None = None, cuts: Any = ()
) -> np.ndarray:
    """Learn rows in calls that end at ``cuts``; returns the margins."""
    s, margins = np.ones(len(y)) if s is None else s, np.zeros(len(y))
    for a, b in pairwise([0, *sorted(cuts), len(y)]):
        assert learner.learn(chunk_of(X[a:b]), y[a:b], s[a:b], margins[a:b]) == b - a
    return margins


def ogd(p: int, factors: np.ndarray | None = None, **options: Any) -> Ogd:
    learner = make_learner(
        "ogd", p, OnlineOptions(**{"alpha": 0.0, "rate": 0.25} | options), factors
    )
    assert isinstance(learner, Ogd)
    return learner
