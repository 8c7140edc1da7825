"""The learner against independent solvers on the explicit matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from waves import Problem, Waves

import fcl
from fcl.errors import ConvergenceWarning
from fcl.stagewise.describe import unvisited
from fcl.stagewise.learner import first_order
from fcl.stagewise.links import find_link, project
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise


def test_a_random_order_has_each_feature_once() -> None:
    for seed in (0, 7):
        order = first_order(1000, Settings(order="random", seed=seed))
        assert np.array_equal(np.sort(order), np.arange(1000))
        # neighbours are far from each other, as in a random permutation
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.15
    assert not np.array_equal(order, first_order(1000, Settings(order="random")))


def test_the_projection_is_the_nearest_point_of_the_simplex() -> None:
    points = np.random.default_rng(0).normal(0, 1, (20, 3))
    ticks = np.linspace(0, 1, 201)
    grid = np.array([(a, b, 1 - a - b) for a in ticks for b in ticks if a + b <= 1 + 1e-12])
    found = project(points)
    assert np.allclose(found.sum(axis=1), 1) and (found >= 0).all()
    best = np.square(points[:, None] - grid).sum(axis=2).min(axis=1)
    assert (np.square(points - found).sum(axis=1) <= best + 1e-12).all()


def test_validation_keeps_the_best_model_and_stops_by_patience() -> None:
    problem = Problem(120, seed=3)
    with pytest.warns(ConvergenceWarning) as caught:
        result = problem.train(
            Waves(200), block=10, visits=1, alpha=1e-6, valid_fraction=0.3, patience=3
        )
    history = result.model.history
    losses = [row["valid_loss"] for row in history]
    best = int(np.argmin(losses)) + 1
    assert result.reason == "patience" and len(history) == best + 3 < 20
    assert result.model.best_number == best == result.model.n_blocks
    left = 20 - len(history)
    assert result.message == (
        f"patience ran out, 3 blocks without a lower validation loss, after visit 1, block "
        f"{len(history)} of 20; the other {left} blocks were never visited"
    )
    (warning,) = (str(one.message) for one in caught)
    assert f"uses {best} of 20 blocks, and the features of {left} were never visited" in warning
    assert "raise patience or alpha (--patience, --alpha)" in warning
    errors = [row["valid_error"] for row in history]
    assert ("yet the validation error fell" in warning) == (errors[-1] < errors[best - 1])
    valid = Problem(60, seed=4)
    given = train_stagewise(
        problem.data(),
        Waves(20),
        Settings(block=10, visits=1),
        fcl.open_data(valid.x, y=valid.y, weights=valid.s),
    ).model
    link = find_link("squared")
    wrong = np.unique(valid.y)[given.margins(valid.x).argmax(axis=1)] != valid.y
    row = given.history[given.best_number - 1]
    assert np.isclose(row["valid_error"], np.average(wrong, weights=valid.s))
    expected = np.average(link.losses(given.margins(valid.x), valid.one_hot), weights=valid.s)
    assert np.isclose(row["valid_loss"], expected)


@pytest.mark.parametrize(("end", "fell"), [(0.2, True), (0.4, False), (None, False)])
def test_a_lower_error_at_the_end_is_named(problem: Problem, end: float | None, fell: bool) -> None:
    model = problem.train(block=10, visits=1).model
    rows = [{"valid_error": None if end is None else error} for error in (0.3, end)]
    text = unvisited(replace(model, history=rows, best_number=1))
    assert text is not None and "the features of 1 were never visited" in text
    assert ("fell, from 0.3 there to 0.2 at the end" in text) == fell
    assert unvisited(model) is None


@pytest.mark.filterwarnings("error")
def test_patience_after_the_first_visit_is_no_warning() -> None:
    problem = Problem(120, seed=3)
    result = problem.train(
        Waves(30), block=10, visits=9, alpha=1e-6, valid_fraction=0.3, patience=3
    )
    assert result.reason == "patience" and "never" not in result.message


def test_rows_of_weight_0_do_not_exist(problem: Problem) -> None:
    s = problem.s * (np.arange(300) % 3 > 0)
    y = np.where(s > 0, problem.y, "other")
    settings = Settings(block=10, valid_fraction=0.2)
    found = train_stagewise(fcl.open_data(problem.x, y=y, weights=s), Waves(), settings).model
    keep = s > 0
    data = fcl.open_data(problem.x[keep], y=y[keep], weights=s[keep])
    expected = train_stagewise(data, Waves(), settings).model
    assert np.array_equal(found.weights.features, expected.weights.features)
    assert found.labels == ("a", "b", "c")


@pytest.mark.parametrize("update", ["ls", "gls"])
def test_offsets_are_added_to_the_margins(problem: Problem, update: str) -> None:
    """Least squares of y - o equals y with the offset o; the certificate of softmax stays a bound."""
    rng = np.random.default_rng(7)
    offset = rng.normal(size=(300, 2 if update == "ls" else 3))
    target = problem.numbers if update == "ls" else problem.y
    settings = Settings(update=update, block=15, visits=30, alpha=10.0, valid_fraction=0.0)
    running = StagewiseRunOptions(cores=1, certify=True)

    def train(y: Any, with_offset: bool) -> Any:
        data = problem.data(y)
        data = data.with_offset(offset) if with_offset else data
        return train_stagewise(data, Waves(), settings, numbers=update == "ls", running=running)

    found = train(target, True)
    model = found.model
    assert model.has_offset and 0.0 <= found.gap.gap < 1e-3
    margins = model.margins(problem.data().with_offset(offset))
    if update == "ls":
        other = train(target - offset, False)
        assert found.gap.objective == pytest.approx(other.gap.objective, rel=1e-7)
        assert found.gap.bound == pytest.approx(other.gap.bound, rel=1e-5)
        assert np.allclose(margins, other.model.margins(problem.x) + offset, atol=1e-4)
    else:
        losses = np.log(np.exp(margins).sum(axis=1)) - (margins * problem.one_hot).sum(axis=1)
        ridge = 5.0 * np.square(model.weights.features).sum()
        assert found.gap.objective == pytest.approx(problem.s @ losses + ridge, rel=1e-6)


def test_class_weights_multiply_the_weights_of_the_rows(problem: Problem) -> None:
    factors = {"a": 1.0, "b": 2.5, "c": 0.5}
    weighted = problem.train(update="ls", block=8, class_weight=factors).model
    s = problem.s * np.array([factors[y] for y in problem.y])
    data = problem.data().with_target(problem.y, s)
    settings = Settings(block=8, valid_fraction=0.0)
    expected = train_stagewise(data, Waves(), settings, running=StagewiseRunOptions(cores=1)).model
    assert np.array_equal(weighted.weights.features, expected.weights.features)
    assert weighted.settings.class_weight == [["a", 1.0], ["b", 2.5], ["c", 0.5]]
    balanced = problem.train(update="ls", block=8, class_weight="balanced").model
    assert balanced.settings.class_weight == "balanced"
