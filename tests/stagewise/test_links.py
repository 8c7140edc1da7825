"""Links by their definitions, and models of each against an independent solver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waves import Problem, Waves

import fcl
from fcl.stagewise.links import find_link
from fcl.stagewise.model import load_stagewise
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import train_stagewise
from tests.stagewise.conftest import joint, labels_of

TEXTS = ["squared", "softmax", "logistic", "probit", "power", "power:p=3.5", "power:p=1"]
SEPARATE = ["logistic", "probit", "power"]


def margins(seed: int, K: int = 3, n: int = 40) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal(0, random.choice([0.3, 1.0, 6.0]), (n, K))


@pytest.mark.thin(2)
@pytest.mark.parametrize("text", TEXTS)
@given(seed=st.integers(0, 1 << 30))
def test_a_link_is_the_gradient_of_its_potential_and_lipschitz(text: str, seed: int) -> None:
    link, u = find_link(text), margins(seed)
    for k in range(3):
        step = np.zeros(3)
        step[k] = 1e-6
        slope = (link.potential(u + step) - link.potential(u - step)) / 2e-6
        np.testing.assert_allclose(slope, link.mean(u)[:, k], atol=2e-6)
    v = margins(seed + 1)
    far = np.linalg.norm(link.mean(u) - link.mean(v), axis=1)
    assert (far <= link.lipschitz * np.linalg.norm(u - v, axis=1) * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("text", "u", "v"),
    [
        ("squared", [3.0, 1.0], [2.0, 1.0]),
        ("softmax", [1e-4, -1e-4], [-1e-4, 1e-4]),
        ("logistic", [1e-4, 0.0], [-1e-4, 0.0]),
        ("probit", [1e-4, 0.0], [-1e-4, 0.0]),
        ("power:p=3", [1.0, 0.0], [1.0 - 1e-5, 0.0]),
    ],
)
def test_no_lipschitz_constant_is_too_large(text: str, u: list[float], v: list[float]) -> None:
    link, a, b = find_link(text), np.array([u]), np.array([v])
    ratio = np.linalg.norm(link.mean(a) - link.mean(b)) / np.linalg.norm(a - b)
    assert ratio == pytest.approx(link.lipschitz, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
@given(seed=st.integers(0, 1 << 30))
def test_losses_and_duals_are_conjugate(text: str, seed: int) -> None:
    """A loss is 0 at its own means and never below; weak duality holds, with equality at residuals."""
    link, u = find_link(text), margins(seed)
    means = link.mean(u)
    np.testing.assert_allclose(link.losses(u, means), 0.0, atol=1e-9) if text != "softmax" else None
    random = np.random.default_rng(seed + 2)
    if link.couples or text == "squared":
        y = np.eye(3)[random.integers(0, 3, len(u))]
    else:
        y = random.integers(0, 2, u.shape).astype(float)
    residuals = y - means
    losses, duals = link.losses(u, y), link.dual(residuals, y)
    assert (losses >= -1e-12).all()
    size = 1.0 + np.abs(u).sum(axis=1)
    # equality of Fenchel and Young: loss = dual - <residual, u>
    assert (np.abs(losses - duals + (residuals * u).sum(axis=1)) <= 1e-9 * size).all()
    other = margins(seed + 3)
    assert (link.losses(other, y) >= duals - (residuals * other).sum(axis=1) - 1e-9 * size).all()


@pytest.mark.parametrize("text", SEPARATE)
@given(seed=st.integers(0, 1 << 30), wanted=st.floats(0.0, 1.0))
def test_balanced_means_stay_in_the_range(text: str, seed: int, wanted: float) -> None:
    link, u = find_link(text), margins(seed)
    s = np.random.default_rng(seed).uniform(0.1, 3.0, len(u))
    means, total = link.mean(u), float(s.sum())
    aims = np.array([wanted, 1.0 - wanted, 0.5]) * total
    found = link.balance(means, aims, s @ means, total)
    assert found.min() >= 0.0 and found.max() <= 1.0
    np.testing.assert_allclose(s @ found, aims, atol=1e-9 * total)


@pytest.mark.parametrize("text", ["softmax", "logistic", "probit"])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_theorem_1(problem: Problem, text: str, scale: float) -> None:
    """After t steps, the mean loss is within 2 L |W*|^2 / (t + 4) of the optimum, for any condition.

    |W|^2 is the mean squared margin, as in the proof, here of the optimum less the start.
    """
    link, n = find_link(text), len(problem.x)
    sizes = np.where(np.arange(8) % 2, scale, 1.0)

    class Scaled(Waves):
        def columns(self, ids: Any, block: Any) -> np.ndarray:
            return super().columns(ids, block) * sizes[np.asarray(ids)]

    data = problem.data(problem.y, weights=False)
    optimum, margins = joint(link, problem.matrix(Waves(8)), problem.one_hot, np.ones(n), 1e-9)
    far = np.square(margins - link.start(problem.one_hot.mean(axis=0))).sum() / n
    for steps in (1, 2, 5, 20):
        settings = Settings(
            update="gls", loss=text, inner=steps, visits=1, alpha=1e-9, valid_fraction=0.0
        )
        loss = train_stagewise(data, Scaled(8), settings).model.history[-1]["loss"]
        assert -1e-9 <= loss - optimum / n <= 2.0 * link.lipschitz * far / (steps + 4)


@pytest.mark.parametrize("update", ["ls", "gls", "cls"])
def test_several_labels(problem: Problem, update: str, tmp_path: Path) -> None:
    Y = labels_of(problem)
    model = fcl.StagewiseClassifier(Waves(), block=10, update=update).fit(
        problem.x, Y, sample_weight=problem.s
    )
    assert model.multilabel_ and list(model.classes_) == [0, 1, 2]
    chances, chosen = model.predict_proba(problem.x), model.predict(problem.x)
    assert chances.shape == Y.shape and chances.min() >= 0.0 and chances.max() <= 1.0
    np.testing.assert_array_equal(chosen, chances > 0.5)
    assert (chosen == Y).mean() > 0.8 and model.decision_function(problem.x).shape == Y.shape
    assert model.model_.settings.loss == ("logistic" if update == "gls" else "squared")
    # the error of the training rows at the end is the share of wrong labels
    whole = Settings(update=update, block=10, valid_fraction=0.0)
    own = train_stagewise(problem.data(Y), Waves(), whole).model
    wrong = np.average((own.predict(problem.x) != Y).mean(axis=1), weights=problem.s)
    assert own.history[-1]["error"] == pytest.approx(wrong, abs=1e-9)
    model.model_.save(tmp_path / "m.fcl")
    again = load_stagewise(tmp_path / "m.fcl", trusted="waves")
    assert again.noun == "label"
    np.testing.assert_array_equal(again.predict(problem.x), chosen)
