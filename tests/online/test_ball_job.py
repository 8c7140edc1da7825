"""Method ball over a data set and as a command: near the optimum, resumed with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fcl
from fcl.cli.online import command
from fcl.drivers.online.run import End
from fcl.drivers.online.train import plan_online, train_online
from fcl.model.online_state import read_state

RADIUS = 2.0


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """2,500 rows of 40 columns of which 5 count, labels 0 and 1, and weights; some weights are 0."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(2500, 40))
    margin = X[:, :5] @ np.array([1.0, -1.0, 0.5, 2.0, -0.7])
    y = (margin + rng.logistic(size=2500) > 0.0).astype(np.int8)
    return X, y, rng.choice([0.0, 1.0, 2.0], 2500)


@pytest.fixture
def data() -> fcl.DataSet:
    X, y, s = rows()
    return fcl.open_data(X, y=y, weights=s)


def learn(data: fcl.DataSet, **options: Any) -> Any:
    given = {"C": 0.05, "method": "ball", "radius": RADIUS, "rate": 0.5, "block_rows": 640}
    return train_online(data, "columns", certify=False, **{**given, **options})


def mean_loss(model: fcl.Model) -> float:
    """The mean logistic loss of a model, recomputed."""
    X, y, s = rows()
    w = np.zeros(X.shape[1])
    w[model.ids] = model.weights
    return float(
        np.average(np.logaddexp(0.0, -(2.0 * y - 1.0) * (X @ w + model.intercept)), weights=s)
    )


@pytest.mark.parametrize(("step", "batch"), [("implicit", 1), ("explicit", 1), ("explicit", 100)])
def test_the_loss_approaches_that_of_the_optimum_of_the_same_norm(
    data: fcl.DataSet, step: str, batch: int
) -> None:
    optimum = fcl.train(data, "columns", C=0.05, tol=1e-7).model
    radius = float(np.abs(optimum.weights).sum())
    least = mean_loss(optimum)
    found = [
        learn(data, radius=radius, step=step, batch=batch, rate="auto", decay=0.8, passes=passes)
        for passes in (1, 20)
    ]
    for result in found:
        assert np.abs(result.model.weights).sum() <= radius * (1.0 + 1e-12)
        assert result.progress[-1].norm <= radius * (1.0 + 1e-12)
        # the optimum of the penalised problem is that of the ball, too, to its gap
        assert mean_loss(result.model) >= least * (1.0 - 1e-6)
    first, last = (mean_loss(result.model) / least - 1.0 for result in found)
    assert last < 0.005 and last < first < 0.2


def test_the_certificate_is_that_of_the_radius(data: fcl.DataSet, tmp_path: Path) -> None:
    """Of the ball of --radius, also where the weights are inside of it, and from the file."""
    optimum = fcl.train(data, "columns", C=0.05, tol=1e-7).model
    radius = float(np.abs(optimum.weights).sum())
    # at a rate this small one pass ends inside of the ball
    given = {"C": 0.05, "method": "ball", "radius": radius, "rate": 0.01, "block_rows": 640}
    result = train_online(data, "columns", **given)
    found = result.optimality
    assert found is not None and found.radius == radius and found.penalty < 0.9 * radius
    above = (mean_loss(result.model) - mean_loss(optimum)) * result.model.sum_weights
    assert 0.0 < above <= found.ball_gap
    result.save(tmp_path / "m.fcl")
    again = fcl.certify(tmp_path / "m.fcl", data)
    assert again.radius == radius and again.ball_gap == pytest.approx(found.ball_gap, rel=1e-9)
    # an option still overrides it
    assert fcl.certify(tmp_path / "m.fcl", data, radius=2.0 * radius).radius == 2.0 * radius


@pytest.mark.parametrize("chunks", [1, 3, 4, 6])
def test_a_run_that_is_cut_goes_on_with_the_same_bits(
    data: fcl.DataSet, tmp_path: Path, chunks: int
) -> None:
    whole = learn(data, passes=2, seed=3)
    polled: list[int] = []

    def should_stop() -> bool:
        polled.append(0)
        return len(polled) > chunks

    part = learn(data, passes=2, seed=3, should_stop=should_stop)
    assert part.end is End.INTERRUPTED and 0 < part.learner.rows < whole.learner.rows
    part.save(tmp_path / "m.fcl")
    resumed = train_online(data, passes=2, certify=False, resume=tmp_path / "m.fcl")
    assert resumed.learner.rows == whole.learner.rows
    for one, other in (
        (resumed.model, whole.model),
        (fcl.load_model(tmp_path / "m.fcl"), part.model),
    ):
        assert np.array_equal(one.ids, other.ids) and one.intercept == other.intercept
        assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(resumed.learner.state, whole.learner.state)
    assert resumed.progress[-1].loss == whole.progress[-1].loss


def test_penalty_factors_weigh_the_norm(data: fcl.DataSet) -> None:
    model = learn(data, passes=3).model
    weighted = train_online(
        data, "columns * 2", C=0.05, method="ball", radius=RADIUS, rate=0.5, passes=3, certify=False
    ).model
    assert np.abs(model.weights).sum() == pytest.approx(RADIUS)
    assert 2.0 * np.abs(weighted.weights).sum() == pytest.approx(RADIUS)


def test_the_plan_counts_positions_and_heap(data: fcl.DataSet) -> None:
    plan = plan_online(data, "columns", C=0.05, method="ball", radius=1.0)
    assert dict(plan.parts)["table of weights of 40 features"] == 40 * 20


# -- the command -------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    X, y, s = rows()
    for name, array in {"X": X, "y": y, "s": s}.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = (tmp_path, "--weights", "s")
    return lambda *more: CliRunner().invoke(command, [str(item) for item in (*given, *more)])


LEARN = ("--features", "columns", "--C", 0.05, "--no-certify")
BALL = ("--method", "ball", "--radius", RADIUS)


def test_the_command_learns_and_goes_on(run: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "m.fcl"
    result = run(*LEARN, *BALL, "--rate", 0.5, "--out", out)
    assert result.exit_code == 0, result.output
    model, options = fcl.load_model(out), read_state(out).run["options"]
    assert options["method"] == "ball" and options["radius"] == model.options["radius"] == RADIUS
    result = run("--resume", out, "--passes", 2, "--no-certify", "--out", tmp_path / "m2.fcl")
    assert result.exit_code == 0, result.output
    result = run(*LEARN, *BALL, "--rate", 0.5, "--passes", 2, "--out", tmp_path / "m3.fcl")
    assert result.exit_code == 0, result.output
    second, third = (fcl.load_model(tmp_path / name) for name in ("m2.fcl", "m3.fcl"))
    assert np.array_equal(second.weights, third.weights)
    assert np.array_equal(second.ids, third.ids) and second.intercept == third.intercept
    assert np.abs(third.weights).sum() <= RADIUS * (1.0 + 1e-12)
