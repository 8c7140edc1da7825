"""The learner against independent solvers on the explicit matrix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.linear_model import LogisticRegression, Ridge
from waves import Problem, Waves

import fcl
from fcl.errors import BudgetError, ConvergenceWarning
from fcl.stagewise.describe import unvisited
from fcl.stagewise.job import make_job
from fcl.stagewise.learner import first_order
from fcl.stagewise.links import find_link, project
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import Running, train_stagewise


def ridge(F: np.ndarray, Y: np.ndarray, s: np.ndarray, alpha: float) -> np.ndarray:
    """Margins of the ridge solution with a free intercept, from the normal equations."""
    A = np.column_stack([F, np.ones(len(F))])
    penalty = np.diag([alpha] * F.shape[1] + [0.0])
    return A @ np.linalg.solve(A.T @ (s[:, None] * A) + penalty, A.T @ (s[:, None] * Y))


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_one_block_is_ridge(problem: Problem, shift: float) -> None:
    features = Waves(30, shift)
    model = problem.train(features, block=64, visits=1, alpha=0.7).model
    expected = ridge(problem.matrix(Waves(30)), problem.one_hot, problem.s, 0.7)
    assert np.abs(model.margins(problem.x) - expected).max() < 1e-8


def test_visits_converge_to_the_joint_ridge(problem: Problem) -> None:
    model = problem.train(target=problem.numbers, block=7, visits=300, alpha=20.0).model
    joint = Ridge(alpha=20.0).fit(problem.matrix(), problem.numbers, sample_weight=problem.s)
    assert np.abs(model.margins(problem.x) - joint.predict(problem.matrix())).max() < 1e-6
    assert np.abs(model.weights.features - joint.coef_.T).max() < 1e-6


def test_gls_converges_to_the_softmax_optimum(problem: Problem) -> None:
    model = problem.train(update="gls", block=15, visits=200, inner=3, alpha=20.0).model
    joint = LogisticRegression(C=0.05, tol=1e-10, max_iter=10000)
    joint.fit(problem.matrix(), problem.y, sample_weight=problem.s)
    found = model.mean(model.margins(problem.x))
    assert np.abs(found - joint.predict_proba(problem.matrix())).max() < 1e-6


def test_blocks_in_the_order_of_gradients(problem: Problem) -> None:
    """Before each visit, the features are ordered by the norms of F' S R, with centred features."""
    F, Y, s = problem.matrix(), problem.one_hot, problem.s
    A = F - np.average(F, axis=0, weights=s)
    W, rest = np.zeros((30, 3)), Y - np.average(Y, axis=0, weights=s)
    for visits in (1, 2):
        order = np.argsort(-np.linalg.norm(A.T @ (s[:, None] * (rest - A @ W)), axis=1))
        for own in np.split(order, range(8, 30, 8)):
            R = rest - A @ W + A[:, own] @ W[own]
            gram = A[:, own].T @ (s[:, None] * A[:, own]) + 5.0 * np.eye(len(own))
            W[own] = np.linalg.solve(gram, A[:, own].T @ (s[:, None] * R))
        model = problem.train(block=8, visits=visits, alpha=5.0, order="gradient").model
        np.testing.assert_allclose(model.weights.features, W, atol=1e-8)
        expected = A @ W + np.average(Y, axis=0, weights=s)
        np.testing.assert_allclose(model.margins(problem.x), expected, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["ids", "random", "gradient"])
def test_any_order_ends_at_the_joint_ridge(problem: Problem, order: str) -> None:
    model = problem.train(block=7, visits=300, alpha=20.0, order=order, seed=3).model
    joint = Ridge(alpha=20.0).fit(problem.matrix(), problem.one_hot, sample_weight=problem.s)
    assert np.abs(model.weights.features - joint.coef_.T).max() < 1e-6


def test_a_random_order_has_each_feature_once() -> None:
    for seed in (0, 7):
        order = first_order(1000, Settings(order="random", seed=seed))
        assert np.array_equal(np.sort(order), np.arange(1000))
        # neighbours are far from each other, as in a random permutation
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.15
    assert not np.array_equal(order, first_order(1000, Settings(order="random")))


@pytest.mark.parametrize("update", ["ls", "gls"])
@pytest.mark.parametrize("alpha", [0.01, 10.0])
def test_the_objective_never_rises(problem: Problem, update: str, alpha: float) -> None:
    """After each visit, at the weights up to there: the model of a shorter training."""
    values = []
    for visits in range(1, 6):
        model = problem.train(update=update, block=8, visits=visits, alpha=alpha).model
        link = model.link
        losses = link.losses(model.margins(problem.x), problem.one_hot)
        values.append(problem.s @ losses + alpha / 2 * np.square(model.weights.features).sum())
    assert all(np.diff(values) <= 1e-9 * values[0]) and values[-1] < values[0]


def test_the_projection_is_the_nearest_point_of_the_simplex() -> None:
    points = np.random.default_rng(0).normal(0, 1, (20, 3))
    ticks = np.linspace(0, 1, 201)
    grid = np.array([(a, b, 1 - a - b) for a in ticks for b in ticks if a + b <= 1 + 1e-12])
    found = project(points)
    assert np.allclose(found.sum(axis=1), 1) and (found >= 0).all()
    best = np.square(points[:, None] - grid).sum(axis=2).min(axis=1)
    assert (np.square(points - found).sum(axis=1) <= best + 1e-12).all()


def big(n: int = 9000) -> Problem:
    return Problem(n, seed=5)


def test_same_bits_for_any_threads_memory_and_scratch(tmp_path: Path) -> None:
    """More than 4,096 rows are in float32, in three tiles."""
    problem = big()
    data = problem.data()
    settings = Settings(block=16, visits=2, memory="4GiB")
    features = Waves(32)
    plain = train_stagewise(data, features, settings, running=Running(cores=1)).model
    least = make_job(data, features, settings)
    held = sum(size for name, size in least.plan.parts if "kept" in name or "Cholesky" in name)
    assert least.plan.kept_tiles == 3 and least.plan.kept_factors == 2
    # without room for factors and kept tiles, and not quite for the prepared rows
    small = replace(settings, memory=least.plan.total - held - 1)
    tight = make_job(data, features, small)
    assert tight.plan.scratch and tight.plan.total <= tight.plan.budget
    for running, other in [
        (Running(cores=3), settings),
        (Running(cores=1, scratch=str(tmp_path)), small),
    ]:
        model = train_stagewise(data, features, other, running=running).model
        assert np.array_equal(model.weights.features, plain.weights.features)
        assert [row["valid_loss"] for row in model.history] == [
            row["valid_loss"] for row in plain.history
        ]
    with pytest.raises(BudgetError, match=r"at least \d+ MiB \(--memory \d+MiB\) for blocks of 16"):
        make_job(data, features, replace(settings, memory="321MiB"))
    exact = ridge(problem.matrix(features), problem.one_hot, problem.s, 1000.0)
    converged = train_stagewise(
        data,
        features,
        Settings(block=16, visits=60, valid_fraction=0.0, alpha=1000.0),
        running=Running(cores=2),
    ).model
    assert np.abs(converged.margins(problem.x) - exact).max() < 1e-4


@pytest.mark.parametrize("update", ["ls", "gls", "cls"])
def test_same_bits_of_fourier_models_for_any_threads_and_memory(
    update: str, tmp_path: Path
) -> None:
    """With products of strips of 16 and of 8 features, and tiles that several threads make at once."""
    problem = big(8500)
    y = np.arange(8500) % 17 if update == "gls" else problem.y
    data = fcl.open_data(problem.x, y=y, weights=problem.s)
    rounds = 2 if update == "cls" else None
    settings = Settings(update=update, block=40, visits=2, rounds=rounds, inner=2)
    features = "fourier:n=100,pca=3"
    roomy = make_job(data, features, settings).plan
    held = sum(size for name, size in roomy.parts if "kept" in name or "Cholesky" in name)
    tight = replace(settings, memory=roomy.total - held)
    assert roomy.kept_tiles > make_job(data, features, tight).plan.kept_tiles == 0
    models = [
        train_stagewise(data, features, chosen, running=Running(cores, str(tmp_path))).model
        for cores, chosen in ((1, settings), (3, settings), (1, tight))
    ]
    for model in models[1:]:
        for name in ("features", "intercepts", "calibration"):
            found, expected = getattr(model.weights, name), getattr(models[0].weights, name)
            assert np.array_equal(found, expected)


@pytest.mark.parametrize("features", [Waves(32), "fourier:n=32,pca=3"])
def test_same_bits_for_any_chunks_of_the_data(tmp_path: Path, features: Any) -> None:
    problem = big()
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    for name, rows in (("few", 1000), ("many", 7001)):
        group.create_array(name, data=problem.x, chunks=(rows, 2))
    found = [problem.data()]
    for name in ("few", "many"):
        stored = fcl.open_data(tmp_path / "data.zarr", x=name, y=None)
        found.append(stored.with_target(problem.y, problem.s))
    models = [
        train_stagewise(data, features, Settings(block=16), running=Running(cores=2)).model
        for data in found
    ]
    for model in models[1:]:
        assert np.array_equal(model.weights.features, models[0].weights.features)


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
    running = Running(cores=1, certify=True)

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
    expected = train_stagewise(data, Waves(), settings, running=Running(cores=1)).model
    assert np.array_equal(weighted.weights.features, expected.weights.features)
    assert weighted.settings.class_weight == [["a", 1.0], ["b", 2.5], ["c", 0.5]]
    balanced = problem.train(update="ls", block=8, class_weight="balanced").model
    assert balanced.settings.class_weight == "balanced"
