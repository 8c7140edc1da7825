"""The contract of stagewise models: plain loops over blocks, the joint optimum, the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from waves import Problem, Waves

import fcl
from fcl.errors import BudgetError, InputError, ModelFileError
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.job import make_job
from fcl.stagewise.links import LINKS, find_link
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise
from tests.stagewise.conftest import interrupted, joint, labels_of

#: Update, loss, and whether rows have several labels.
PROBLEMS = [
    ("ls", "squared", False),
    ("gls", "softmax", False),
    ("gls", "logistic", False),
    ("gls", "logistic", True),
    ("gls", "probit", False),
    ("gls", "power:p=3.5", False),
]


def nearest(points: np.ndarray) -> np.ndarray:
    """The nearest points of the simplex, by bisection on the shift."""
    low, high = points.min(axis=1) - 1.0, points.max(axis=1)
    for _ in range(200):
        middle = 0.5 * (low + high)
        above = np.maximum(points - middle[:, None], 0.0).sum(axis=1) > 1.0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.maximum(points - high[:, None], 0.0)


def calibration(U: np.ndarray, Y: np.ndarray, s: np.ndarray, degree: int) -> np.ndarray:
    """Equation 19: the targets fitted to a constant and powers of the predictions, and projected."""
    G = np.column_stack([np.ones(len(U)), *(U**power for power in range(1, degree + 1))])
    root = np.sqrt(s)[:, None]
    return nearest(G @ np.linalg.lstsq(root * G, root * Y, rcond=None)[0])


def fitted(
    F: np.ndarray, R: np.ndarray, s: np.ndarray, alpha: float = 1.0, block: int = 1024,
    visits: int = 1, order: str = "ids",
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Equation 18: residuals R fitted by ridge regression of blocks in turn, and the weights.

    The order of gradients sorts features by the norms of F' S R before each visit, F centred.
    """
    A, W = F - np.average(F, axis=0, weights=s), np.zeros((F.shape[1], R.shape[1]))
    mean, features = np.average(R, axis=0, weights=s), np.arange(F.shape[1])
    for _ in range(visits):
        if order == "gradient":
            slopes = A.T @ (s[:, None] * (R - mean - A @ W))
            features = np.argsort(-np.linalg.norm(slopes, axis=1))
        for own in np.split(features, range(block, F.shape[1], block)):
            rest = R - mean - A @ W + A[:, own] @ W[own]
            gram = A[:, own].T @ (s[:, None] * A[:, own]) + alpha * np.eye(len(own))
            W[own] = np.linalg.solve(gram, A[:, own].T @ (s[:, None] * rest))
    return mean + A @ W, W


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize(
    "options",
    [
        {"block": 64, "alpha": 0.7},
        {"block": 7, "visits": 3},
        {"block": 8, "visits": 1, "alpha": 5.0, "order": "gradient"},
        {"block": 8, "visits": 2, "alpha": 5.0, "order": "gradient"},
    ],
)
def test_least_squares_is_its_plain_loop(options: dict[str, Any], shift: float) -> None:
    """However far the features are from 0."""
    problem = Problem()
    margins, W = fitted(problem.matrix(), problem.one_hot, problem.s, **options)
    model = problem.train(Waves(30, shift), **{"visits": 1, **options}).model
    np.testing.assert_allclose(model.weights.features, W, atol=1e-8)
    np.testing.assert_allclose(model.margins(problem.x), margins, atol=1e-8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 20.0},
        {"calibration": "linear"},
        {"calibration": "quadratic", "block": 7},
        {"block": 10, "visits": 3},
    ],
)
def test_calibrated_rounds_are_algorithm_2(options: dict[str, Any]) -> None:
    problem, own = Problem(), dict(options)
    degree = {"linear": 1, "quadratic": 2, "cubic": 3}[own.pop("calibration", "cubic")]
    F, Y, s = problem.matrix(), problem.one_hot, problem.s
    U, expected = np.tile(np.average(Y, axis=0, weights=s), (len(Y), 1)), []
    for _ in range(4):
        U = calibration(U + fitted(F, Y - U, s, **own)[0], Y, s, degree)
        expected.append(U)
    for rounds in (1, 4):
        model = problem.train(update="cls", rounds=rounds, **options).model
        assert np.abs(model.margins(problem.x) - expected[rounds - 1]).max() < 1e-7
    of_round = len(model.history) // 4
    losses = [row["loss"] for row in model.history[of_round - 1 :: of_round]]
    found = [np.average(np.square(U - Y).sum(axis=1), weights=s) / 2 for U in expected]
    np.testing.assert_allclose(losses, found, rtol=1e-7)


def test_each_link_is_in_the_table() -> None:
    assert {text.partition(":")[0] for _, text, _ in PROBLEMS} == set(LINKS)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("update", "loss", "several"),
    [*PROBLEMS[:3], *(pytest.param(*case, marks=pytest.mark.slow) for case in PROBLEMS[3:])],
)
def test_training_ends_at_the_joint_optimum_and_its_bounds_hold(
    update: str, loss: str, several: bool
) -> None:
    """The objective never rises from visit to visit; the bound of each visit is below the optimum."""
    problem, objectives, link = Problem(), [], find_link(loss)
    y = labels_of(problem) if several else problem.y
    Y = y.astype(float) if several else problem.one_hot
    best, _ = joint(link, problem.matrix(), Y, problem.s, 20.0)
    for visits in (1, 2, 4, 120):
        settings = Settings(
            update=update, loss=loss, block=15, visits=visits, alpha=20.0, valid_fraction=0.0
        )
        running = StagewiseRunOptions(cores=2, certify=True)
        result = train_stagewise(problem.data(y), Waves(), settings, running=running)
        model = result.model
        assert result.gap is not None and result.gap.bound <= best * (1 + 1e-9)
        ridge = 10.0 * np.square(model.weights.features).sum()
        own = problem.s @ link.losses(model.margins(problem.x), Y) + ridge
        assert result.gap.objective == pytest.approx(own, rel=1e-9)
        assert model.certificate is not None and model.certificate.gap == result.gap.gap
        objectives.append(own)
    assert all(np.diff(objectives) <= 1e-9 * best)
    assert objectives[-1] == pytest.approx(best, rel=1e-6) and result.gap.gap < 1e-5


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "order", ["ids", "random", pytest.param("gradient", marks=pytest.mark.slow)]
)
def test_any_order_and_several_numbers_end_at_the_joint_ridge(order: str) -> None:
    problem = Problem()
    options: dict[str, Any] = {"block": 7, "visits": 200, "alpha": 20.0, "order": order}
    model = problem.train(target=problem.numbers, **options).model
    margins, W = fitted(problem.matrix(), problem.numbers, problem.s, alpha=20.0)
    assert np.abs(model.margins(problem.x) - margins).max() < 1e-6
    assert np.abs(model.weights.features - W).max() < 1e-6


# -- the same bits ---------------------------------------------------------------------------------


def same(found: StagewiseModel, expected: StagewiseModel) -> None:
    for name in ("features", "intercepts", "calibration"):
        assert np.array_equal(getattr(found.weights, name), getattr(expected.weights, name))
    assert found.best_number == expected.best_number
    for name in ("loss", "valid_loss"):
        assert [row[name] for row in found.history] == [row[name] for row in expected.history]


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("update", "features", "more"),
    [
        ("ls", Waves(), {"order": "random", "visits": 2}),
        ("ls", Waves(), {"order": "gradient"}),
        ("gls", Waves(), {}),
        ("cls", Waves(), {"rounds": 3, "visits": 2, "block": 15}),
        ("ls", "fourier:n=20,pca=3", {}),
    ],
)
def test_a_job_resumes_after_any_block(
    update: str, features: Any, more: dict[str, Any], tmp_path: Path
) -> None:
    problem = Problem()
    options = {"features": features, "update": update, "block": 8, "inner": 2, **more}
    options["valid_fraction"] = 0.2
    whole = problem.train(**options).model
    for stop_at in range(1, len(whole.history)):
        folder = interrupted(problem, tmp_path / f"{stop_at}", stop_at, cores=2, **options)
        resumed = StagewiseRunOptions(cores=1, checkpoint=folder, resume=folder.load())
        same(problem.train(**options, running=resumed).model, whole)


@pytest.mark.parametrize(
    ("update", "first", "then"),
    [
        *((update, {"visits": 1}, {"visits": 3}) for update in ("ls", "gls")),
        ("cls", {"rounds": 1}, {"rounds": 3}),
        ("ls", {"visits": 3, "patience": 1}, {"visits": 3, "patience": 99}),
        ("gls", {"visits": 3, "patience": 1}, {"visits": 3, "patience": 99}),
        ("cls", {"rounds": 9, "patience": 1}, {"rounds": 9, "patience": 99}),
    ],
)
def test_a_finished_job_continues_as_a_longer_one(
    update: str, first: dict[str, Any], then: dict[str, Any], tmp_path: Path
) -> None:
    problem, folder = Problem(), StateFolder(tmp_path / "c")
    options: dict[str, Any] = {"update": update, "block": 8, "inner": 2, "valid_fraction": 0.2}
    options["alpha"] = 1e-6 if "patience" in first else 1.0
    part = problem.train(
        **options, **first, running=StagewiseRunOptions(cores=1, checkpoint=folder)
    )
    assert part.reason == ("patience" if "patience" in first else "done")
    whole = problem.train(**options, **then).model
    assert len(part.model.history) < len(whole.history)
    model = problem.train(
        **options, **then, running=StagewiseRunOptions(cores=1, resume=folder.load())
    ).model
    same(model, whole)
    assert model.settings == whole.settings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("update", "features"),
    [("ls", Waves(32)), *((update, "fourier:n=100,pca=3") for update in ("ls", "gls", "cls"))],
)
def test_threads_memory_scratch_and_chunks_change_no_bit(
    update: str, features: Any, tmp_path: Path
) -> None:
    """More than 4,096 rows are in float32, in three tiles; strips have 16 and 8 features."""
    problem = Problem(9000, seed=5)
    y = np.arange(9000) % 17 if update == "gls" else problem.y
    data = fcl.open_data(problem.x, y=y, weights=problem.s)
    block, rounds = (16 if isinstance(features, Waves) else 40), (2 if update == "cls" else None)
    settings = Settings(update=update, block=block, visits=2, rounds=rounds, inner=2)
    roomy = make_job(data, features, settings).plan
    held = sum(size for name, size in roomy.parts if "kept" in name or "Cholesky" in name)
    assert roomy.kept_tiles == 3 and roomy.kept_factors > 0
    # without room for factors and kept tiles, and not quite for the prepared rows
    tight = replace(settings, memory=roomy.total - held - 1)
    plan = make_job(data, features, tight).plan
    assert plan.kept_tiles < roomy.kept_tiles and plan.scratch and plan.total <= plan.budget
    plain = train_stagewise(data, features, settings, running=StagewiseRunOptions(cores=1)).model
    group = zarr.open_group(tmp_path / "data.zarr", mode="w")
    group.create_array("X", data=problem.x, chunks=(1000, 2))
    stored = fcl.open_data(tmp_path / "data.zarr", x="X", y=None).with_target(y, problem.s)
    for rows, cores, chosen in ((data, 3, settings), (data, 1, tight), (stored, 2, settings)):
        running = StagewiseRunOptions(cores=cores, scratch=str(tmp_path))
        same(train_stagewise(rows, features, chosen, running=running).model, plain)
    words = rf"blocks of {block} features needs at least \d+ MiB \(--memory \d+MiB\)"
    with pytest.raises(BudgetError, match=words):
        make_job(data, features, replace(settings, memory="321MiB"))


@pytest.mark.parametrize("update", ["ls", "gls", "cls"])
def test_a_model_is_read_as_it_was_saved(update: str, tmp_path: Path) -> None:
    problem = Problem()
    running = StagewiseRunOptions(cores=1, certify=update != "cls")
    model = problem.train(update=update, block=10, running=running).model
    model.save(tmp_path / "m.fcl")
    read = fcl.load_model(tmp_path / "m.fcl")
    assert isinstance(read, StagewiseModel) and read.labels == ("a", "b", "c")
    same(read, model)
    assert read.history == model.history and read.certificate == model.certificate
    margins = model.margins(problem.x)
    assert np.array_equal(read.margins(problem.x), margins)
    assert np.allclose(read.margins(problem.x, block_rows=7), margins, atol=1e-12)
    assert np.allclose(read.scorer()(problem.x), margins, atol=1e-12)
    chances = read.predict_proba(problem.x)
    assert np.allclose(chances.sum(axis=1), 1.0) and chances.min() >= 0.0
    assert (read.predict(problem.x) == np.array(["a", "b", "c"])[margins.argmax(axis=1)]).all()
    with pytest.raises(InputError, match="exists"):
        model.save(tmp_path / "m.fcl")
    with pytest.raises(ModelFileError, match="format is 'fcl-stagewise'"):
        fcl.Model.load(tmp_path / "m.fcl")
    read.save(tmp_path / "again.fcl")
    assert (tmp_path / "again.fcl").read_bytes() == (tmp_path / "m.fcl").read_bytes()
