"""The memory plan: within the budget, correct on the smallest budget, and on the allocations."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import acceptors
from scipy.sparse import csr_array

import fcl
from fcl import open_data, plan_training
from fcl.cache import ColumnCache
from fcl.cache.store import largest_column
from fcl.drivers import plan as plan_module
from fcl.drivers.job import make_job
from fcl.drivers.plan import Plan, Sizes
from fcl.errors import BudgetError
from fcl.features import Fourier, KmerFamily, bind_features, parse_features
from fcl.memory.ledger import MIB
from fcl.options import TrainOptions
from tests import by_name
from tests.windows import examples

jobs = st.builds(
    lambda d, letters, n, valid, block_rows, reading, extra: {
        "family": KmerFamily(d, d + letters),
        "n_rows": n,
        "n_valid": valid,
        "block_rows": min(block_rows, -(-n // 64) * 64),
        "reading": reading,
        "extra": extra,
    },
    st.integers(1, 12),
    st.integers(0, 400),
    st.one_of(st.integers(1, 1000), st.integers(1, 100_000_000)),
    st.one_of(st.just(0), st.integers(1, 10_000_000)),
    st.sampled_from([64, 256, 4096, 65536]),
    st.integers(0, 1 << 28),
    st.one_of(st.just(0), st.integers(0, 1 << 30)),
)


def make_plan(budget: int, **job: Any) -> Plan:
    """A plan of the sizes and settings in one dictionary."""
    sizes = {name: job.pop(name) for name in Sizes.__dataclass_fields__ if name in job}
    return plan_module.make_plan(Sizes(**sizes), budget, **job)


def job_of(d: int, length: int, n_rows: int, **more: Any) -> dict[str, Any]:
    """The sizes of a job over windows of letters."""
    sizes = {"n_rows": n_rows, "n_valid": 0, "block_rows": 65536, "reading": MIB}
    return {"family": KmerFamily(d, length)} | sizes | more


def smallest_budget(job: dict[str, Any]) -> int:
    with pytest.raises(BudgetError) as caught:
        make_plan(**job, budget=MIB)
    found = re.search(
        r"a budget of 1 MiB is too small; .* \(--memory (\d+)MiB\): ", str(caught.value)
    )
    assert found is not None, str(caught.value)
    return int(found[1]) * MIB


def check(plan: Plan, job: dict[str, Any], budget: int) -> None:
    assert plan.budget == budget
    assert plan.total == sum(size for _, size in plan.parts) <= budget
    assert all(size >= 0 for _, size in plan.parts)
    column = ColumnCache.largest_column(plan.view_rows or job["n_rows"], job["block_rows"])
    assert plan.cache_bytes >= column  # else the cache would refuse it
    assert plan.staging >= column
    assert plan.max_columns >= 1 and plan.entries >= 1
    record = int(np.prod(job["family"].record_shape(job["block_rows"])))
    blocks = -(-job["n_rows"] // job["block_rows"]) - (-job["n_valid"] // job["block_rows"])
    assert plan.scratch_bytes == (blocks * record if plan.scratch else 0)


@given(jobs, st.integers(0, 1 << 36))
@examples(150)
def test_the_smallest_budget_works_and_a_mebibyte_less_does_not(
    job: dict[str, Any], more: int
) -> None:
    least = smallest_budget(job)
    for budget in (least, least + 1, least + more):
        check(make_plan(**job, budget=budget), job, budget)
    with pytest.raises(BudgetError, match=f"--memory {least // MIB}MiB"):
        make_plan(**job, budget=least - MIB)


def test_smaller_blocks_are_suggested_where_they_need_less() -> None:
    rows = np.zeros((300_000, 500), np.uint8)
    data = open_data(rows, y=np.arange(len(rows)) % 2)
    with pytest.raises(BudgetError, match="at least") as caught:
        plan_training(data, "kmers:d=6", C=1.0, memory="300MiB")
    found = re.search(
        r"--memory (\d+)MiB.*--block-rows (\d+) needs at least .* \(--memory (\d+)MiB\)$",
        str(caught.value),
    )
    assert found is not None, str(caught.value)
    least, blocks, less = map(int, found.groups())
    assert less < least
    plan_training(data, "kmers:d=6", C=1.0, memory=f"{less}MiB", block_rows=blocks)
    with pytest.raises(BudgetError, match=f"--memory {less}MiB"):
        plan_training(data, "kmers:d=6", C=1.0, memory=f"{less - 1}MiB", block_rows=blocks)


def test_smaller_blocks_are_not_suggested_to_a_resumed_job(tmp_path: Path) -> None:
    """Its block rows cannot change."""
    codes = np.random.default_rng(0).integers(0, 4, (70_000, 80), dtype=np.uint8)
    data = open_data(codes, y=np.arange(len(codes)) % 2)
    train = {"C": 1e-3, "max_passes": 1, "warn": False, "driver": "inline"}
    by_name.train(data, "kmers:d=2", **train, checkpoint=tmp_path / "ck")
    tight = train | {"memory": "330MiB", "row_view": "all"}
    with pytest.raises(BudgetError, match="Smaller blocks need less: --block-rows"):
        by_name.train(data, "kmers:d=2", **tight)
    for run in (by_name.train, by_name.plan_training):
        with pytest.raises(BudgetError, match="at least") as caught:
            run(data, "kmers:d=2", **tight, resume=tmp_path / "ck")
        assert "Smaller blocks" not in str(caught.value)


def test_memory_found_while_reading_is_refused_with_a_larger_budget() -> None:
    # by then rows are in memory or on disk, even if the other place would be cheaper
    unknown = 2000 * MIB  # letters everywhere
    job = job_of(8, 141, 8_323_752, reading=32 * MIB, extra=unknown)
    in_memory, on_disk = (smallest_budget({**job, "scratch": scratch}) for scratch in (False, True))
    assert in_memory > on_disk + MIB
    for scratch, least in ((False, in_memory), (True, on_disk)):
        assert make_plan(**job, scratch=scratch, budget=least).total <= least
        with pytest.raises(BudgetError, match=f"--memory {least // MIB}MiB"):
            make_plan(**job, scratch=scratch, budget=least - MIB)


def test_rows_that_do_not_fit_go_to_a_scratch_file() -> None:
    # 8.3 million windows of 141 letters: 300 MB of prepared rows
    job = job_of(8, 141, 8_323_752, reading=32 * MIB)
    least = smallest_budget(job)
    tight, wide = (make_plan(**job, budget=size) for size in (least + MIB, least + 1024 * MIB))
    assert tight.scratch and tight.scratch_bytes >= 36 * 8_323_752
    assert not wide.scratch and wide.scratch_bytes == 0
    assert any("scratch file" in name for name, _ in tight.parts)
    assert wide.cache_bytes > tight.cache_bytes


@pytest.mark.parametrize("scratch", [None, False, True])
@pytest.mark.parametrize("n", [1000, 8_323_752, 60_000_000, 400_000_000])
def test_several_processes_start_within_the_budget(n: int, scratch: bool | None) -> None:
    # targets and weights are copied into shared memory, where the vectors have their room already
    blocks = min(65536, -(-n // 64) * 64)
    job = job_of(4, 8, n, n_valid=n // 10, block_rows=blocks, writers=2, held=n, scratch=scratch)
    least = smallest_budget(job)
    plan = make_plan(**job, budget=least)
    assert plan.total <= least
    vectors = 48 * n + 24 * (n // 10)
    rows = 0 if plan.scratch else 2 * (n + n // 10)
    assert least >= vectors + rows + 16 * (n + n // 10) + n + 70 * MIB
    with pytest.raises(BudgetError, match=f"--memory {least // MIB}MiB"):
        make_plan(**job, budget=least - MIB)


def test_more_memory_never_makes_the_cache_smaller_while_rows_stay_where_they_are() -> None:
    job = job_of(6, 60, 500_000)
    for scratch in (False, True):
        sizes = [
            make_plan(**job, budget=size * MIB, scratch=scratch).cache_bytes
            for size in range(512, 4096, 128)
        ]
        assert sizes == sorted(sizes)


def test_tables_of_long_patterns_are_refused_where_they_cannot_fit() -> None:
    short, long = (job_of(d, 141, 10_000, block_rows=10_048) for d in (8, 12))
    make_plan(**short, budget=384 * MIB)
    message = r"384 MiB is too small; .*tables of a pass 14\d MiB"
    with pytest.raises(BudgetError, match=message):
        make_plan(**long, budget=384 * MIB)
    least = smallest_budget(long)
    assert least > 8 * 4**12  # the table of one position, at the very least
    assert make_plan(**long, budget=least).total <= least


def test_the_plan_does_not_depend_on_the_threads() -> None:
    codes, y = acceptors(14, 900)
    data = open_data(np.where(np.arange(14) == 3, 4, codes).astype(np.uint8), y=y)
    plans = [plan_training(data, "kmers:d=8", C=1.0, threads=t) for t in (1, 2, 64)]
    assert plans[0] == plans[1] == plans[2] and plans[0].most_threads > 1
    tight = plan_training(data, "kmers:d=8", C=1.0, memory="420MiB")
    assert tight.most_threads < plans[0].most_threads


def test_a_small_family_gets_no_more_room_than_it_can_use() -> None:
    rng = np.random.default_rng(0)
    data = fcl.open_data(rng.random((100, 10)), y=rng.integers(0, 2, 100))
    plan = fcl.plan_training(data, "columns", C=1.0, memory="4GiB")
    assert plan.max_columns == 256 and 10 * 101 <= plan.entries <= 2 * 10 * 101
    # every column dense, all of them active: the room does
    result = fcl.train(data, "columns", C=1e6, memory="4GiB", tol=1e-6)
    assert result.converged and result.model.n_active == 10
    wide = fcl.open_data(rng.integers(0, 4, (100, 50)).astype(np.uint8), y=np.arange(100) % 2)
    assert fcl.plan_training(wide, "kmers:d=8", C=1.0, memory="4GiB").max_columns > 10_000


def test_a_step_makes_room_for_four_times_as_many_columns() -> None:
    """The plan for columns of one byte per row, compared with float32; it suffices for both."""
    x = np.random.default_rng(0).normal(size=(3000, 4))
    rows = fcl.open_data(x, y=None).rows
    families = [bind_features(Fourier(n=100_000, dtype=dtype), rows) for dtype in (None, "int8")]
    job = {"n_rows": 1_000_000, "n_valid": 0, "block_rows": 65536, "reading": MIB, "view_rows": 0}
    for writers in (None, 2):
        jobs = [{**job, "family": family, "writers": writers} for family in families]
        least = [smallest_budget(job) for job in jobs]
        assert least[1] < least[0] - MIB * 8
        # at the least budget most of the room is for what is beside the cache
        for budget, times in ((max(least), 2), (max(least) + 1024 * MIB, 3.9)):
            real, steps = (make_plan(**job, budget=budget) for job in jobs)
            columns = [
                plan.cache_bytes // largest_column(1_000_000, 65536, False, family.step)
                for plan, family in zip((real, steps), families, strict=True)
            ]
            assert columns[1] >= times * columns[0] and columns[0] >= 4
            assert real.total <= budget and steps.total <= budget
            assert steps.staging >= largest_column(1_000_000, 65536, False, families[1].step)


@pytest.mark.parametrize(
    ("features", "rows", "letters"),
    [
        ("columns", np.random.default_rng(0).normal(size=(50, 7)), False),
        ("kmers:d=3", np.random.default_rng(0).integers(0, 4, (50, 9)), True),
    ],
)
def test_a_budget_too_small_speaks_of_letters_where_there_are_some(
    features: str, rows: np.ndarray, letters: bool
) -> None:
    family = bind_features(parse_features(features), fcl.open_data(rows, y=None).rows)
    with pytest.raises(BudgetError, match="is too small") as caught:
        plan_module.make_plan(Sizes(family, len(rows), 0, 64, 0), MIB)
    assert ("letters" in str(caught.value)) is letters
    with pytest.raises(BudgetError, match="is too small") as caught:
        plan_module.make_plan(Sizes(family, len(rows), 0, 64, 0, extra=MIB), MIB)
    assert ("unknown letters 1 MiB" in str(caught.value)) is letters


@examples(40)
@given(
    st.integers(1, 3_000_000), st.integers(0, 100_000), st.integers(1, 400), st.integers(0, 4096)
)
def test_entries_of_sparse_rows_are_in_the_plan(n: int, n_valid: int, each: int, more: int) -> None:
    """They count as prepared rows, go to the scratch file, and tell the size of columns."""
    rows = fcl.open_data(csr_array(np.eye(2, 400_000)), y=None).rows
    family = bind_features(parse_features("columns"), rows)
    block_rows = min(16384, -(-n // 64) * 64)
    sides = family.most_side_bytes(np.array([each * n, each * n_valid]))
    sizes = Sizes(family, n, n_valid, block_rows, MIB, sides=int(sides.sum()), block_sides=5 * MIB)
    for writers in (None, 2):
        least = []
        for scratch in (False, True):
            with pytest.raises(BudgetError, match="is too small") as caught:
                plan_module.make_plan(sizes, MIB, writers=writers, scratch=scratch)
            least.append(caught.value.smallest)
        budget = min(least) + more * MIB
        plan = plan_module.make_plan(sizes, budget, writers=writers)
        assert plan.total <= budget
        assert plan.scratch_bytes >= sizes.sides * plan.scratch
        if not plan.scratch:
            held = plan.of("prepared rows")
            assert held >= sizes.sides - 1
        assert plan.max_columns <= 200_000


@pytest.mark.parametrize(("writers", "warned"), [(3, True), (1, False), (None, False)])
def test_writers_that_the_memory_has_no_room_for(writers: int | None, warned: bool) -> None:
    """A number that the user named, and that became smaller, is said."""
    codes, y = acceptors(12, 420)
    data = fcl.open_data(codes, y=y)
    options: dict[str, Any] = {"C": 0.1, "driver": "processes"}
    one = 0
    try:
        make_job(data, "kmers:d=2", TrainOptions.checked(**options, writers=1, memory="40MiB"))
    except BudgetError as error:
        one = error.smallest + (8 << 20)
    job = make_job(data, "kmers:d=2", TrainOptions.checked(**options, writers=writers, memory=one))
    assert job.options.writers == job.plan.writers == 1
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        job.warn()
    words = ["writers: the memory budget has room for 1 writer, not for 3; raise memory for more"]
    assert [str(warning.message) for warning in found] == words * warned
