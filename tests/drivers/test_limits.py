"""No limit of the memory plan ends a run that has begun without its model and a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge import Problem, kmer_matrix
from rows import acceptors

import fcl
from fcl.cli.umbrella import main
from fcl.drivers import plan
from fcl.drivers.processes.layout import Layout
from fcl.drivers.processes.logic.protocol import Raised
from fcl.drivers.processes.supervisor import Supervisor
from fcl.errors import BudgetError
from fcl.solve.solver import Solver
from tests.drivers.conftest import fit

N, C = 300, 1.0
drivers = pytest.mark.parametrize("driver", ["inline", "processes"])


def rows() -> fcl.DataSet:
    codes, labels = acceptors(14, N)
    return fcl.open_data(codes, y=labels)


def problem() -> Problem:
    codes, labels = acceptors(14, N)
    return Problem(kmer_matrix(codes, 3), labels, np.ones(N), "logistic", C)


def train(**options: Any) -> fcl.TrainResult:
    return fit(rows(), "kmers:d=3", C=C, **{"tol": 1e-4, "memory": "4GiB"} | options)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Limit the places for columns and for features with a weight."""

    def limit(columns: int, active: int) -> None:
        for name in ("MIN_COLUMNS", "LEAST_COLUMNS", "MAX_COLUMNS"):
            monkeypatch.setattr(plan, name, columns)
        monkeypatch.setattr(plan, "LEAST_ACTIVE", active)
        monkeypatch.setattr(plan, "ACTIVE_A_COLUMN", 0)
        monkeypatch.setattr(plan, "ACTIVE_SHARE", 1 << 60)

    return limit


@pytest.mark.slow
def test_more_active_features_than_places(
    places: Callable[[int, int], None], tmp_path: Path
) -> None:
    """The run goes on with the features that have places; a resumed one gets more."""
    places(20, 24)
    best = problem().solve(1e-9)
    short = train(driver="processes", checkpoint=tmp_path / "c", memory="400MiB")
    assert (short.converged, short.reason) == (False, "memory")
    assert len(short.model.ids) <= 24
    assert short.history[0]["objective"] > short.certificate.objective > best.objective
    assert short.certificate.bound <= best.objective * (1.0 + 1e-9)
    named = re.search(r"room for 24 features with a weight.*\(--memory (\d+MiB)\)", short.message)
    assert named is not None, short.message
    assert named[1] == "401MiB"
    result = train(driver="processes", resume=tmp_path / "c", memory=named[1])
    assert result.converged, result.message
    assert len(result.model.ids) > 24
    assert result.certificate.objective <= best.objective * (1.0 + 1e-4)


@pytest.mark.slow
def test_the_command_ends_with_exit_code_3(
    places: Callable[[int, int], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places(12, 16)
    for name, array in zip("Xy", acceptors(14, N), strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    out = tmp_path / "m.fcl"
    words = ["train", tmp_path, "--features", "kmers:d=3", "--C", "1", "--out", out, "--driver"]
    words += ["processes", "--block-rows", "64", "--memory", "400MiB"]
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 3
    found = capsys.readouterr().err
    assert "stopped early (memory)" in found
    assert "resume from a checkpoint, or start again, with 400 MiB (--memory 401MiB)" in found
    assert 1 <= len(fcl.load_model(out).ids) <= 16
    assert Path(f"{out}.checkpoint").is_dir()


@pytest.mark.parametrize(
    ("kind", "words"), [(BudgetError, "shared memory: no room"), (MemoryError, "")]
)
@drivers
def test_memory_that_runs_out(
    driver: str, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run ends with the best model, and a checkpoint continues it."""
    calls = 0
    where, name = (Solver, "train") if driver == "inline" else (Layout, "back")
    before = getattr(where, name)

    def fails(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise kind(words)
        return before(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(where, name, fails)
        options: dict[str, Any] = {"driver": driver, "checkpoint": tmp_path / "c"}
        if driver == "processes":
            options["memory"] = "310MiB"
        result = train(**options)
    assert (result.converged, result.reason) == (False, "memory")
    assert "free memory, then resume" in result.message
    assert (words or "no more could be allocated") in result.message
    assert len(result.model.ids)
    again = train(driver=driver, resume=tmp_path / "c")
    assert again.converged
    assert again.certificate.objective <= result.certificate.objective


def test_a_child_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback of a child is no more use here than the model."""
    before = Supervisor._report_pass

    def report(supervisor: Supervisor) -> None:
        before(supervisor)
        if supervisor.logic.pass_number == 2:
            supervisor._tell(
                Raised("writer 0", "builtins.MemoryError", "8 GiB", "Traceback", doing="in a task")
            )

    monkeypatch.setattr(Supervisor, "_report_pass", report)
    result = train(driver="processes")
    assert (result.reason, result.passes) == ("memory", 3)
    assert "writer 0 could not allocate memory in a task: 8 GiB" in result.message


@drivers
def test_memory_that_is_short_from_the_start(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a model there is nothing to keep: the error is raised."""

    def fails(*_: Any) -> Any:
        raise BudgetError("no room")

    where, name = (Solver, "price") if driver == "inline" else (Layout, "back")
    monkeypatch.setattr(where, name, fails)
    with pytest.raises(BudgetError, match="no room"):
        train(driver=driver)


def test_memory_that_is_not_needed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is allocated ahead of its columns; a run does not end where that fails."""

    def fails(*_: Any) -> Any:
        raise BudgetError("no room")

    monkeypatch.setattr(Layout, "back_more", fails)
    assert train(driver="processes").converged
