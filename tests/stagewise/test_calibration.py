"""Calibrated least squares against algorithm 2 of the paper on the explicit matrix, and its theorem 2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from waves import Problem, Waves

import fcl
from fcl.stagewise.describe import end_in_words
from fcl.stagewise.model import load_stagewise
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise


@pytest.mark.parametrize("calibration", ["linear", "cubic"])
def test_calibration_matters_with_a_single_block(problem: Problem, calibration: str) -> None:
    """Powers reach a link that a linear calibration cannot."""
    margins = {
        name: problem.train(update="cls", rounds=3, calibration=name).model.margins(problem.x)
        for name in ("linear", "cubic")
    }
    assert np.abs(margins["linear"] - margins["cubic"]).max() > 0.01


def test_patience_counts_rounds_and_the_best_round_is_kept(problem: Problem) -> None:
    """Of 3 blocks each; the model has the weights of the lowest validation loss."""
    options: dict[str, Any] = {"block": 10, "valid_fraction": 0.3, "alpha": 0.01}
    result = problem.train(update="cls", rounds=50, patience=2, **options)
    model = result.model
    assert result.reason == "patience" and len(model.history) - model.best_number == 2 * 3
    losses = [row["valid_loss"] for row in model.history]
    assert model.best_number == 1 + int(np.argmin(losses))
    assert "round" in end_in_words(model, result.reason) and model.n_rounds < 50
    # a training that ends there has the same weights
    last = -(-model.best_number // 3)
    again = problem.train(update="cls", rounds=last, **options).model
    assert np.array_equal(again.weights.features, model.weights.features)
    assert np.array_equal(again.margins(problem.x), model.margins(problem.x))


def test_a_file_keeps_rounds(problem: Problem, tmp_path: Any) -> None:
    """Also of a training that ended within a round, whose calibration is missing."""
    ends = iter([False] * 4 + [True] * 9)
    running = StagewiseRunOptions(cores=1, should_stop=lambda: next(ends))
    for rounds, options in ((3, {}), (9, {"running": running, "block": 10})):
        model = problem.train(update="cls", rounds=rounds, **options).model
        assert model.n_rounds == (3 if rounds == 3 else 2)
        assert len(model.weights.calibration) == (3 if rounds == 3 else 1)
        model.save(tmp_path / f"{rounds}.fcl")
        again = load_stagewise(tmp_path / f"{rounds}.fcl", trusted="waves")
        assert np.array_equal(again.margins(problem.x), model.margins(problem.x))
        chances = again.predict_proba(problem.x)
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_two_classes_and_a_class_that_is_rare() -> None:
    """Predictions of two classes are the same up to a sign: the basis is singular."""
    random = np.random.default_rng(0)
    x = random.standard_normal((200, 4))
    y = (x[:, 0] > 2.0).astype(int)
    assert 0 < y.sum() < 10
    settings = Settings(update="cls", rounds=5, valid_fraction=0.0)
    model = train_stagewise(fcl.open_data(x, y=y), Waves(), settings).model
    chances = model.predict_proba(x)
    assert np.isfinite(chances).all() and np.abs(chances.sum(axis=1) - 1.0).max() < 1e-12
