"""Runs over 24-bit tables: the same bits from any point of resumption, plans, compact models."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stops import After

import fcl
from fcl.drivers.online import run as run_module
from fcl.drivers.online.run import End
from fcl.drivers.online.train import OnlineResult, plan_online, train_online
from fcl.errors import InputError
from fcl.model.online_state import read_state
from fcl.scoring.compact import compact_model

N, P = 3000, 30
RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((N, P)) < 0.3, 1.0, 0.0)
W = RANDOM.normal(size=P)
Y = np.where(RANDOM.random(N) < 1 / (1 + np.exp(-X @ W)), 1, -1)
OPTIONS: dict[str, Any] = {
    "features": "columns", "method": "ogd", "weights": "q2.13", "alpha": 1e-6, "rate": 0.25,
    "passes": 2, "block_rows": 256, "certify": False,
}  # fmt: skip


def data() -> fcl.DataSet:
    return fcl.open_data(X, y=Y)


def trained(**options: Any) -> OnlineResult:
    return train_online(data(), **(OPTIONS | options))


def bits(result: OnlineResult) -> list[bytes]:
    """All that a run has learnt."""
    model, state = result.model, result.state
    arrays = (model.ids, model.weights, state.ids, state.table, state.sums)
    return [*(array.tobytes() for array in arrays), repr(model.intercept).encode()]


@pytest.mark.parametrize("weights", ["q2.13", "q5.10", "float32", "float64"])
@pytest.mark.parametrize("calls", [1, 7, 12, 19])
def test_a_resumed_run_gives_the_same_bits(tmp_path: Path, weights: str, calls: int) -> None:
    whole = trained(weights=weights)
    part = trained(weights=weights, should_stop=After(calls))
    assert part.end is End.INTERRUPTED and 0 < part.learner.rows < 2 * N
    part.save(tmp_path / "part.fcl")
    state = read_state(tmp_path / "part.fcl")
    assert state.table.dtype == (np.float32 if weights[0] == "q" else np.float64)
    resumed = train_online(data(), resume=tmp_path / "part.fcl", passes=2, certify=False)
    assert resumed.end is End.PASSES and bits(resumed) == bits(whole)
    # the resumed run may be cut again
    again = train_online(
        data(), resume=tmp_path / "part.fcl", passes=2, certify=False, should_stop=After(2)
    )
    again.save(tmp_path / "again.fcl")
    last = train_online(data(), resume=tmp_path / "again.fcl", passes=2, certify=False)
    assert bits(last) == bits(whole)


def test_files_saved_on_the_way_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed leaves its last saved file."""
    monkeypatch.setattr(run_module, "SAVE_EVERY", 0.0)
    whole = trained()
    trained(save=tmp_path / "m.fcl", should_stop=After(9))
    resumed = train_online(data(), resume=tmp_path / "m.fcl", passes=2, certify=False)
    assert bits(resumed) == bits(whole)


def test_the_model_has_the_weights_of_the_table() -> None:
    result = trained()
    steps = result.model.weights * 2**13
    assert (steps == np.rint(steps)).all() and np.abs(steps).max() <= 32767
    assert result.model.options["weights"] == "q2.13"
    assert np.array_equal(result.state.table[:, 0][np.flatnonzero(result.state.table[:, 0])], steps)
    seeds = {trained(seed=seed, shuffle=False).model.weights.tobytes() for seed in range(3)}
    assert len(seeds) == 3  # the order is the same: rounding alone differs


def test_the_grid_is_chosen_by_the_features() -> None:
    small = fcl.open_data(X * 0.1, y=Y)
    for rows, grid in ((data(), "q2.13"), (small, "q5.10")):
        found = train_online(rows, **(OPTIONS | {"weights": "q"}))
        assert found.model.options["weights"] == grid


def test_the_plan_counts_three_bytes_a_feature() -> None:
    codes = fcl.open_data(RANDOM.integers(0, 4, (64, 60), dtype=np.uint8), y=Y[:64])
    given = {"method": "ogd", "alpha": 1e-6}
    features = "kmers:d=8"
    p = fcl.features.bind_features(fcl.parse_features(features), codes.rows, None).n_features
    sizes = {}
    for weights in ("q2.13", "float32"):
        parts = dict(plan_online(codes, features, weights=weights, **given).parts)
        sizes[weights] = parts[f"table of weights of {p:,} features"]
    assert sizes == {"q2.13": 3 * p, "float32": 8 * p}
    budget = plan_online(codes, features, weights="q2.13", **given).total
    with pytest.raises(fcl.BudgetError, match=r"needs at least .*table of weights") as error:
        train_online(codes, features, weights="q2.13", memory=budget - 1, **given)
    assert error.value.smallest == budget


def test_a_compact_model_of_an_online_model(tmp_path: Path) -> None:
    """It predicts, and is refused by --resume."""
    result = trained()
    result.save(tmp_path / "full.fcl")
    model = fcl.load_model(tmp_path / "full.fcl")
    small = compact_model(model, data(), max_loss=1e-3).model
    small.save(tmp_path / "small.fcl")
    again: Any = fcl.load_model(tmp_path / "small.fcl")
    assert again.margins(X).tobytes() == small.margins(X).tobytes()
    assert small.encoding.loss <= 1.001 * small.encoding.loss_full
    with pytest.raises(InputError, match=r"got a model without one .* compact"):
        train_online(data(), resume=tmp_path / "small.fcl", passes=3)


def test_blocks_of_another_size_give_the_same_bits() -> None:
    """If the rows are read in their own order; the intercept starts from the first block's targets."""
    given = {"shuffle": False, "intercept": False}
    found = [trained(block_rows=size, **given) for size in (64, 256, 65_536)]
    assert bits(found[0]) == bits(found[1]) == bits(found[2])


@pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
@pytest.mark.parametrize(
    ("method", "weights"), [("ftrl", "float64"), ("ogd", "q2.13"), ("ftrl", "float32")]
)
def test_the_plan_counts_what_a_dense_run_saves(tmp_path: Path, method: str, weights: str) -> None:
    """Every feature is touched; what model and state take is at most what the plan says, and near it."""
    from scipy.sparse import csr_array

    p, n = 1 << 19, 64
    indices = np.random.default_rng(0).permutation(p)
    matrix = csr_array((np.ones(p), indices, np.arange(0, p + 1, p // n)), shape=(n, p))
    rows = fcl.open_data(matrix, y=np.arange(n) % 2)
    given = {"method": method, "weights": weights, "alpha": 1e-9, "rate": 0.5, "certify": False}
    train_online(rows, "columns", **given).save(tmp_path / "m.fcl")  # compiles
    planned = dict(plan_online(rows, "columns", **given).parts)
    size = planned[f"model and saved state of {p:,} features"]
    result = train_online(rows, "columns", **given)
    assert len(result.model.ids) > 0.9 * p and len(result.state.ids) > 0.9 * p
    tracemalloc.start()
    try:
        state = result.learner.saved()
        point = result.learner.point()
        result.save(tmp_path / "again.fcl")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(state["ids"]) == len(result.state.ids) and len(point[0]) == len(result.model.ids)
    settled = 24 * p  # of the part of the plan for weights while they are counted
    assert 0.5 * size < peak < size + settled
