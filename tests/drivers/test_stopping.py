"""Runs that end before their tolerance: the model is usable and its certificate true."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge import Problem, Solution, confirm, kmer_matrix
from rows import acceptors

import fcl
from fcl.drivers import plan as planning
from fcl.drivers.session import Session
from fcl.drivers.train import TrainResult
from fcl.run.events import Event, PassDone, Started, Stopped
from fcl.solve.solver import Solver
from tests import by_name
from tests.stops import After


@pytest.fixture(scope="module")
def problem() -> Problem:
    codes, y = acceptors(14, 400)
    return Problem(kmer_matrix(codes, 3), y, np.ones(400), "logistic", 1.0)


@pytest.fixture(scope="module")
def best(problem: Problem) -> Solution:
    return problem.solve()


def train(**options: Any) -> TrainResult:
    codes, y = acceptors(14, 400)
    options = {"C": 1.0, "tol": 1e-9, "block_rows": 256, "memory": "1GiB"} | options
    return by_name.train(fcl.open_data(codes, y=y), fcl.Kmers(3), **options)


def check(result: TrainResult, problem: Problem, best: Solution, reason: str) -> None:
    assert not result.converged and result.reason == reason
    w = np.zeros(problem.phi.shape[1])
    w[result.model.ids] = result.model.weights
    confirm(problem, w, result.model.intercept, result.certificate, best)
    assert result.model.certificate == result.certificate
    assert result.passes == len(result.model.history)
    matches = (problem.phi[:, result.model.ids] != 0).sum(axis=0)
    assert result.model.support.tolist() == matches.tolist()


@pytest.mark.slow
def test_stopped_at_every_poll(problem: Problem, best: Solution) -> None:
    counter = After()
    train(should_stop=counter)
    polls = counter.calls
    assert polls > 20
    with_result, moved, objectives = 0, 0, []
    for k in range(polls):
        try:
            with pytest.warns(fcl.ConvergenceWarning, match="interrupted: relative gap"):
                result = train(should_stop=After(k))
        except KeyboardInterrupt:
            assert with_result == 0  # only before the first pass was done
            continue
        except pytest.fail.Exception:  # no warning: it was done by then
            break
        check(result, problem, best, "interrupted")
        priced = result.model.history[-1]
        if result.certificate.objective < priced["objective"]:
            # an anchor accepted since: what it violates is not known, and not claimed
            assert result.certificate.max_violation == np.inf
            moved += 1
        else:
            # the same one, or one that differs from it by rounding
            violation = result.certificate.max_violation  # with an allowance for rounding
            assert violation in (pytest.approx(priced["max_violation"], rel=1e-9), np.inf)
            assert violation >= priced["max_violation"]
        with_result += 1
        objectives.append(result.certificate.objective)
    assert with_result >= 20 and moved >= 4
    assert objectives == sorted(objectives, reverse=True)


@pytest.mark.parametrize("limit", [1, 3])
def test_max_passes(problem: Problem, best: Solution, limit: int) -> None:
    expected = r"reached max_passes: relative gap .*, requested 1e-09; raise max_passes or tol"
    with pytest.warns(fcl.ConvergenceWarning, match=expected) as caught:
        result = train(max_passes=limit)
    check(result, problem, best, "max-passes")
    # pass 0 certifies the null model and is not counted
    assert result.model.history[-1]["number"] == limit
    assert f"relative gap {result.certificate.gap:.3g}" in str(caught[0].message)
    assert caught[0].filename == __file__  # of the caller


def test_max_time(problem: Problem, best: Solution) -> None:
    with pytest.warns(fcl.ConvergenceWarning, match=r"reached max_time: .* raise max_time"):
        result = train(max_time=1e-9)
    check(result, problem, best, "max-time")
    assert len(result.model.ids) == 0  # one pass, of the null model, is always made


@pytest.mark.slow
def test_out_of_time_at_every_look_at_the_clock(
    problem: Problem, best: Solution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run abandons unfinished columns, and returns the last certified model."""
    clock = After()
    begun, done = [], []
    admit = Solver.admit

    def watched(solver: Solver) -> int:
        begun.append(solver.outer.objective)
        admitted = admit(solver)
        done.append(admitted)
        return admitted

    monkeypatch.setattr(Session, "out_of_time", property(lambda session: clock()))
    monkeypatch.setattr(Solver, "admit", watched)
    monkeypatch.setattr(planning, "STAGING", 1000)  # batches of a few columns
    assert train(tol=1e-6, max_time=1.0).converged
    looks = clock.calls
    passes_before, within = 0, 0
    for k in range(looks):
        begun.clear()
        done.clear()
        clock = After(k)
        result = train(tol=1e-6, max_time=1.0, warn=False)
        if result.converged:  # by the pass that the point of the trainer was worth
            break
        check(result, problem, best, "max-time")
        last = result.model.history[-1]
        assert result.certificate.objective == last["objective"]
        violation = result.certificate.max_violation  # with an allowance for rounding
        assert violation >= last["max_violation"] == pytest.approx(violation, rel=1e-9)
        assert result.passes >= passes_before
        passes_before = result.passes
        within += len(done) < len(begun)
    assert within > passes_before > 3  # also between two batches


def test_events_agree_with_the_result() -> None:
    events: list[Event] = []
    result = train(tol=1e-5, progress=events.append, valid_fraction=0.25)
    assert isinstance(events[0], Started) and isinstance(events[-1], Stopped)
    passes = [event for event in events if isinstance(event, PassDone)]
    assert [event.to_dict() for event in passes] == result.model.history
    assert [event.number for event in passes] == list(range(result.passes))
    assert events[-1].certificate == result.certificate
    assert events[0].n_rows == result.model.n_rows < 400
    for event in passes:
        assert event.validation is not None
        assert event.validation["n_rows"] == 400 - result.model.n_rows
        assert event.cache_bytes <= event.cache_capacity
    assert passes[-1].validation["auprc"] > 0.8  # type: ignore[index]


def test_scratch_files_are_closed_whatever_happens(tmp_path: Path) -> None:
    codes, y = acceptors(100, 3000)
    data = fcl.open_data(codes, y=y)
    options: dict[str, Any] = {"C": 0.3, "memory": "350MiB", "block_rows": 256, "scratch": tmp_path}
    assert fcl.plan_training(data, "kmers:d=2", **options).scratch
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    for k in (0, 3, 12):  # while reading, and before the first pass
        with pytest.raises(KeyboardInterrupt):
            fcl.train(data, "kmers:d=2", **options, should_stop=After(k))
    with pytest.warns(fcl.ConvergenceWarning):
        fcl.train(data, "kmers:d=2", **options, should_stop=After(16))
    assert not list(tmp_path.iterdir())
    if before:
        assert set(os.listdir("/proc/self/fd")) == before
