"""What a certificate needs, and the means that it balances."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from waves import Problem, Waves

from fcl.stagewise.certify import certify
from fcl.stagewise.job import make_job
from fcl.stagewise.links import find_link
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions


def test_balancing_stays_in_the_simplex() -> None:
    random = np.random.default_rng(0)
    targets = np.eye(4)[random.integers(0, 4, 60)]
    s = random.uniform(0.1, 3, 60)
    before = softmax(3 * random.standard_normal((60, 4)), axis=1)
    found = find_link("softmax").balance(before, s @ targets, s @ before, s.sum())
    assert found.min() >= 0 and np.allclose(found.sum(axis=1), 1)
    assert np.abs(s @ (found - targets)).max() < 1e-12


def test_a_certificate_needs_the_margins_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the training, and those that become residuals; all else is by tiles, as planned."""
    big = Problem(40_000)
    numbers = np.random.default_rng(0).standard_normal((40_000, 40))
    peaks = []

    def measured(learner: Any) -> Any:
        tracemalloc.start()
        try:
            gap = certify(learner)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        return gap

    monkeypatch.setattr("fcl.stagewise.train.certify", measured)
    big.train(
        Waves(8), numbers, block=4, visits=1, running=StagewiseRunOptions(cores=1, certify=True)
    )
    own = numbers.nbytes
    assert own < peaks[0] < 1.7 * own


def test_the_plan_has_room_for_tiles_of_a_certificate() -> None:
    big, settings = Problem(9000).data(), Settings(block=8, valid_fraction=0.0)
    plain, certified = (
        make_job(big, Waves(64), settings, cores=2, certify=wanted).plan.parts
        for wanted in (False, True)
    )
    work = "features of the tiles in work"
    # float64 in place of float32, less the Gram matrices, which no longer exist
    gram = dict(plain)["Gram matrix and its parts"]
    assert dict(certified)[work] == 2 * dict(plain)[work] - gram > dict(plain)[work]
