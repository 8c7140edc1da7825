"""Folds and problems that are trained side by side in threads: the same bits as one after the other."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import acceptors

import fcl
from fcl.drivers import executor
from fcl.drivers.executor import INLINE, Needs, RunContext, ThreadExecutor
from fcl.drivers.job import make_job
from fcl.memory.ledger import INTERPRETER
from fcl.options import TrainOptions
from fcl.run.events import PassDone, PointDone
from tests.path.conftest import bits, counting, rows, train_path


@pytest.fixture(autouse=True)
def _small_jobs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "LEAST_ENTRIES", 1)


def data() -> fcl.DataSet:
    codes, y = rows()
    return fcl.open_data(codes, y=y)


def test_a_stop_and_an_error_end_all_folds(tmp_path: Path) -> None:
    done: list[Any] = []
    given: dict[str, Any] = {"cv": 3, "threads": 3, "folder": tmp_path / "path"}
    with pytest.raises(KeyboardInterrupt):
        train_path(data(), **given, progress=counting(done), should_stop=lambda: len(done) >= 4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fcl-jobs")]
    rest: list[Any] = []
    resumed = train_path(data(), **given, progress=counting(rest))
    whole = train_path(data(), cv=3, threads=1)
    assert bits(resumed) == bits(whole)
    assert len(rest) < sum(len(fold) for fold in whole.fold_points) + 6

    def fail(event: Any) -> None:
        if isinstance(event, PointDone) and event.part:
            raise RuntimeError("the display has gone")

    with pytest.raises(RuntimeError, match="the display has gone"):
        train_path(data(), cv=3, threads=3, progress=fail)


@pytest.mark.slow
def test_classes_have_the_same_bits() -> None:
    codes, y = acceptors(12, 300)
    classes = np.where(codes[:, 3] == 1, 2, y > 0)
    fits = [
        fcl.FCLClassifier("kmers:d=2", C=0.5, n_jobs=n, max_iter=20).fit(codes, classes)
        for n in (1, 3)
    ]
    assert fits[0].coef_.tobytes() == fits[1].coef_.tobytes()
    searches = [
        fcl.FCLClassifierCV("kmers:d=2", cv=3, n_jobs=n, alphas=3).fit(codes, classes)
        for n in (1, 3)
    ]
    assert searches[0].coef_.tobytes() == searches[1].coef_.tobytes()
    assert searches[0].alpha_ == pytest.approx(searches[1].alpha_, abs=0.0)


def test_jobs_side_by_side_stay_within_the_budget() -> None:
    found = []
    for memory in ("2GiB", "350MiB"):
        job = make_job(
            data(), "kmers:d=2", TrainOptions.checked(alpha=1.0, threads=8, memory=memory)
        )
        found.append(Needs.of(job).lanes)
        rest = job.plan.total - INTERPRETER - job.plan.of("tables of a pass")
        assert INTERPRETER + found[-1] * rest <= job.plan.budget
    assert found[0] == 8 and found[1] < 8
    processes = make_job(
        data(), "kmers:d=2", TrainOptions.checked(alpha=1.0, driver="processes", writers=2)
    )
    assert Needs.of(processes).lanes == 1


def test_time_is_shared_by_the_rounds_that_are_left() -> None:
    context = RunContext(lambda event: None, lambda: False)
    assert [context.shares(5 - fold, 5) for fold in range(5)] == [5, 4, 3, 2, 1]
    threads = replace(context, lanes=2, waits=False)
    assert [threads.shares(5 - fold, 5) for fold in range(5)] == [3, 3, 2, 2, 1]
    cluster = replace(context, lanes=2)
    assert [cluster.shares(5 - fold, 5) for fold in range(5)] == [3] * 5


def test_threads_are_shared_out_and_a_single_job_has_all() -> None:
    given: list[tuple[int, bool]] = []
    barrier = threading.Barrier(3)  # three run at a time

    def job(shared: Any, context: RunContext, number: int) -> Any:
        from fcl.parallel import threads_of_job

        if context.executor is INLINE:
            barrier.wait(60)
        given.append((threads_of_job(8), context.executor is INLINE))
        context.report(PassDone.__new__(PassDone))  # says little about one of several
        yield number

    shown: list[Any] = []
    lanes = ThreadExecutor(Needs(0, (), lanes=3, threads=8), shown.append, lambda: False)
    context = RunContext(shown.append, lambda: False, executor=lanes)
    assert context.run(job, None, 7) == 7 and given == [(8, False)] and len(shown) == 1
    found = lanes.each(lambda k: context.run(job, None, k), range(6))
    assert found == list(range(6)) and given[1:] == [(3, True)] * 6 and len(shown) == 1
    assert context.run(job, None, 1) == 1 and given[-1] == (8, False)
