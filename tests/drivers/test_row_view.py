"""The rows of the trainer: all, a sample that grows, or one of a given size; the optimum is the same."""

from __future__ import annotations

import tracemalloc
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import ACCEPTORS, acceptors, pyrimidines

import fcl
from fcl.drivers import plan as planning
from fcl.drivers.job import make_job
from fcl.drivers.plan import Sizes, make_plan
from fcl.errors import BudgetError
from fcl.features import KmerFamily
from fcl.files.folder import CheckpointFolder
from fcl.memory.ledger import MIB
from fcl.options import TrainOptions
from fcl.solve.line import Line
from fcl.solve.sampling import Sampler
from fcl.solve.solver import Solver
from tests import by_name
from tests.drivers.conftest import bits, fit

N = 700
STRENGTHS = {"logistic": 1.0, "squared": 0.05, "squared_hinge": 0.3}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``auto`` take samples of a few hundred rows."""
    monkeypatch.setattr(planning, "ALL_ROWS", 200)
    monkeypatch.setattr(planning, "LEAST_SAMPLE", 96)


def data(loss: str = "logistic") -> fcl.DataSet:
    codes, labels = acceptors(14, N)
    return fcl.open_data(codes, y=pyrimidines(N) if loss == "squared" else labels)


def train(given: fcl.DataSet | None = None, **options: Any) -> fcl.TrainResult:
    loss = options.get("loss", "logistic")
    defaults: dict[str, Any] = {"C": STRENGTHS[loss], "tol": 1e-5}
    if options.get("driver") == "processes":
        defaults["writers"] = 2
    return fit(given or data(loss), "kmers:d=3", **(defaults | options))


class Draws:
    """Records the number of rows of each sample of an inline run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        before = Sampler._draw

        def draw(sampler: Sampler, *arguments: Any) -> Any:
            drawn = before(sampler, *arguments)
            self.sizes.append(sampler.size.drawn)
            return drawn

        monkeypatch.setattr(Sampler, "_draw", draw)


# -- the optimum -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_sizes_of_samples(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Draws(monkeypatch)
    train(row_view="all")
    train(row_view=N)
    assert draws.sizes == []
    train(row_view=300)
    # that is the first; it grows where it does not do, and what is drawn varies about what was asked
    assert 200 < draws.sizes[0] <= 300
    assert all(later > 0.8 * earlier for earlier, later in pairwise(draws.sizes))
    draws.sizes.clear()
    train(row_view="auto")
    assert draws.sizes == sorted(draws.sizes) and draws.sizes[0] <= 96 < draws.sizes[-1]


@cache
def forty_thousand() -> fcl.DataSet:
    import zarr

    group = zarr.open_group(ACCEPTORS, mode="r")
    X, y = np.asarray(group["X"][:40_000, 60:84]), np.asarray(group["y"][:40_000])
    return fcl.open_data(X, y=y)


@pytest.mark.slow
def test_a_sample_far_too_small_is_slow_and_never_divergent() -> None:
    """1,000 of 40,000 rows, most columns with a handful of them."""
    options: dict[str, Any] = {"C": 0.1, "block_rows": 4096, "warn": False}
    whole, few = (
        by_name.train(forty_thousand(), "kmers:d=5", tol=1e-3, row_view=view, **options)
        for view in ("all", 1000)
    )
    assert whole.converged and whole.model.n_active > 50
    objectives = [h["objective"] for h in few.model.history]
    assert all(b <= a for a, b in pairwise(objectives))
    assert few.converged, few.message
    assert few.passes > whole.passes
    assert few.passes < 60
    assert few.certificate.objective == pytest.approx(whole.certificate.objective, rel=1.1e-3)
    assert few.certificate.bound <= whole.certificate.objective
    assert whole.certificate.bound <= few.certificate.objective


# -- the same bits ---------------------------------------------------------------------------------


def test_the_sample_depends_on_the_seed(small: None) -> None:
    first = bits(train(row_view="auto"))
    assert bits(train(row_view="auto")) == first
    assert bits(train(row_view="all")) != first
    assert bits(train(row_view="auto", seed=1)) != first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "driver"),
    [
        ("all", "auto", "inline"),
        (400, "all", "inline"),
        ("auto", 300, "inline"),
        ("auto", "all", "processes"),
        ("all", 300, "processes"),
    ],
)
def test_a_resumed_job_may_have_another_view(
    small: None, tmp_path: Path, before: str | int, after: str | int, driver: str
) -> None:
    best = train(row_view="all").certificate
    folder = tmp_path / "c"
    first = train(row_view=before, checkpoint=folder, max_passes=4, warn=False)
    assert not first.converged
    result = train(row_view=after, resume=folder, driver=driver)
    assert result.converged
    assert result.certificate.objective <= first.certificate.objective
    assert result.certificate.objective == pytest.approx(best.objective, rel=2e-5)


@pytest.mark.parametrize(("before", "after"), [(300, 340), ("auto", 600)])
def test_a_resumed_job_has_at_least_as_many_rows_as_are_asked_for_now(
    small: None, tmp_path: Path, before: str | int, after: int
) -> None:
    folder = tmp_path / "c"
    train(row_view=before, checkpoint=folder, max_passes=1, warn=False)
    first = CheckpointFolder(folder).load().state["sample"]
    assert first["draws"] >= 1 and first["wanted"] < after
    train(row_view=after, resume=folder, checkpoint=folder, max_passes=2, warn=False)
    again = CheckpointFolder(folder).load().state["sample"]
    # drawn once: what it was drawn at is the present anchor
    assert again["wanted"] == after and again["draws"] == first["draws"] + 1
    assert train(row_view=after, resume=folder).converged


# -- memory ----------------------------------------------------------------------------------------


def plan_of(n: int, budget: int, **options: Any) -> planning.Plan:
    return make_plan(Sizes(KmerFamily(8, 141), n, 0, 65536, 32 * MIB), budget, **options)


def smallest(n: int, **options: Any) -> int:
    with pytest.raises(BudgetError) as caught:
        plan_of(n, MIB, **options)
    return int(str(caught.value).split("--memory ")[1].split("MiB")[0])


@pytest.mark.parametrize("writers", [None, 2])
def test_the_plan_goes_by_the_view(writers: int | None) -> None:
    n, budget = 8_323_752, 6 << 30
    views = {
        view: plan_of(n, budget, row_view=view, writers=writers).view_rows
        for view in ("all", "auto", 100_000, n, 2 * n)
    }
    assert views["all"] == views[n] == views[2 * n] == 0
    assert views[100_000] == views["auto"] and 100_000 < views["auto"] <= n  # as far as it may grow
    assert plan_of(65_536, budget, writers=writers).view_rows == 0
    assert plan_of(200_000, budget, writers=writers).view_rows == 200_000
    # a sample of a given size is not made smaller, however little room there is
    least = smallest(n, row_view=3_000_000, writers=writers)
    tight = plan_of(n, least * MIB, row_view=3_000_000, writers=writers)
    assert tight.view_rows == 3_000_000 and tight.total <= least * MIB
    assert any("3,000,000 rows" in name for name, _ in tight.parts)


@pytest.mark.parametrize("writers", [None, 2])
def test_a_sampled_view_needs_less(writers: int | None) -> None:
    n = 8_323_752
    needs = [smallest(n, row_view=view, writers=writers) for view in ("all", "auto", 1000)]
    # what each row costs the trainer: buffers of 4 vectors and more, and bits of cached columns
    assert needs[1] < needs[0] - (52 * n >> 20) and needs[2] <= needs[1]
    assert plan_of(n, needs[1] * MIB, writers=writers).view_rows == planning.LEAST_SAMPLE


def test_passes_allocate_no_vectors_over_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if a sample is drawn: its vectors exist, and are reused."""
    n, block = 40_000, 1024
    monkeypatch.setattr(planning, "ALL_ROWS", 1000)
    monkeypatch.setattr(planning, "_view_sizes", lambda *_: [20_000])  # nor may it grow
    solvers: list[Solver] = []
    peaks: list[int] = []
    price, admit = Solver.price, Solver.admit

    def watched(step: Any) -> Any:
        def measured(solver: Solver, *arguments: Any) -> Any:
            solvers.append(solver)
            if tracemalloc.is_tracing():
                tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            result = step(solver, *arguments)
            if len(solvers) > 2:  # then the sample has its records
                peaks.append(tracemalloc.get_traced_memory()[1] - before)
            return result

        return measured

    monkeypatch.setattr(Solver, "price", watched(price))
    monkeypatch.setattr(Solver, "admit", watched(admit))
    draws = Draws(monkeypatch)
    for traced in (False, True):  # first all kernels are compiled
        if traced:
            tracemalloc.start()
        try:
            data = forty_thousand()
            fcl.train(data, "kmers:d=3", C=0.1, tol=1e-4, block_rows=block, row_view=20_000)
        finally:
            if traced:
                tracemalloc.stop()
        if not traced:
            for kept in (solvers, peaks, draws.sizes):
                kept.clear()
    assert len(draws.sizes) >= 2 and draws.sizes[-1] > 18_000
    assert peaks and max(peaks) < 8 * n, peaks


@pytest.mark.parametrize("value", ["all", "auto", 64, np.int64(100), 1 << 40])
def test_good_values(value: Any) -> None:
    options = make_job(data(), "kmers:d=2", TrainOptions.checked(C=1.0, row_view=value)).options
    assert options.row_view == value and type(options.row_view) in (str, int)


# -- dense columns ---------------------------------------------------------------------------------


class Steps:
    """Records the length of each step of the trainer's line search."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.betas: list[float] = []
        before = Line.search

        def search(line: Line) -> Any:
            taken = before(line)
            self.betas.append(taken.beta if taken else 0.0)
            return taken

        monkeypatch.setattr(Line, "search", search)

    @property
    def shortened(self) -> float:
        """The share of steps that were shortened."""
        return float(np.mean(np.array(self.betas) < 1.0))


def numbers(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(n, 6))
    wrong = 0.5 * random.normal(size=n)
    return x, np.where(x[:, 0] + x[:, 1] * x[:, 2] + wrong > 0.0, 1, -1)


def test_columns_far_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of 2,000 +- 10: changes that the intercept compensates shorten no step."""
    steps = Steps(monkeypatch)
    x, y = numbers()
    far = 2000.0 + 10.0 * x[:, :3] + 5.0 * np.random.default_rng(1).normal(size=(len(x), 3))
    given = fcl.open_data(np.concatenate([x[:, :3], far], 1), y=y)
    options: dict[str, Any] = {"C": 0.1, "tol": 1e-5, "memory": "1GiB", "block_rows": 512}
    whole, part = (fcl.train(given, "columns", row_view=view, **options) for view in ("all", 600))
    assert part.passes <= whole.passes + 5
    assert steps.shortened <= 0.2
    assert part.certificate.objective == pytest.approx(whole.certificate.objective, rel=2e-5)


def test_columns_that_nearly_add_up_to_a_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner model is exact for quadratic terms, so its steps are not shortened."""
    steps = Steps(monkeypatch)
    x, y = numbers()
    options: dict[str, Any] = {"C": 1.0, "tol": 1e-4, "memory": "1GiB", "row_view": 1000}
    result = fcl.train(fcl.open_data(x, y=y), "fourier:n=60", **options)
    assert result.converged
    assert steps.shortened <= 0.2
