"""Metrics of scores against a target, and when there are none."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from fcl.scoring.quality import Collected, quality
from tests.cli.scored import random_model


def test_one_class_has_a_log_loss_only() -> None:
    margins, weights = np.array([0.5, -2.0, 9.0]), np.array([1.0, 3.0, 0.0])
    y = np.array([1.0, 1.0, -1.0])  # the negative row has no weight
    found = quality(random_model(), y, margins, weights)
    probability = 1 / (1 + np.exp(-margins))
    expected = log_loss(y[:2], probability[:2], sample_weight=weights[:2], labels=[-1, 1])
    assert found == {"log loss": pytest.approx(expected)}
    assert list(quality(random_model(loss="squared_hinge"), -y, margins)) == ["AUPRC", "AUROC"]
    assert quality(random_model(), y, margins, np.zeros(3)) == {}
    squared = random_model(None, "squared")
    found = quality(squared, np.array([0.0, 2.0, 4.0]), np.array([0.0, 2.0, 3.0]))
    assert found == {"mse": pytest.approx(1 / 3), "R2": pytest.approx(1 - 1 / 8)}
    assert list(quality(squared, np.zeros(2), np.ones(2))) == ["mse"]
    poisson = random_model(None, "poisson")
    assert list(quality(poisson, np.array([0.0, 2.0, 3.0]), margins)) == ["deviance"]


def test_rows_that_are_not_compared() -> None:
    model = random_model(("no", "yes"))
    few = Collected(model, "y", most_bytes=3 * 128)
    assert few.line() is None
    few.add(np.array(["yes", "no"]), np.array([1.0, 2.0]), None, np.arange(2))
    assert str(few.line()).startswith("AUPRC 0.5000 (random 0.5000), AUROC 0.0000, log loss")
    few.add(np.array(["yes", "no"]), np.zeros(2), None, np.arange(2, 4))
    assert "more than 3 rows need more memory; raise --memory" in str(few.line())
    lenient = Collected(model, "t", 1000, strict=False)
    lenient.add(np.array(["maybe"]), np.zeros(1), None, np.array([7]))
    assert str(lenient.line()).startswith("not compared with the target: t: expected")
    light = Collected(random_model((0, 1)), "t", 1000)
    light.add(np.array([0, 1]), np.zeros(2), np.zeros(2), np.array([5, 9]))
    assert light.line() == "not compared with the target: no row has a weight above 0"
