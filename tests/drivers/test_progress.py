"""Progress within long passes, and reports of kernels that must be compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

import fcl
import fcl.kernels.compilation
from fcl.drivers import kinds, session, warmup
from fcl.drivers.processes import compilation, supervisor
from fcl.drivers.processes.logic.protocol import CompileStarted
from fcl.kernels.compilation import Compilation
from fcl.run.events import Compiled, Compiling, Event, StepProgress
from tests import by_name


class Slow(fcl.Generator):
    """Columns of the rows, with a pause for each."""

    def fit(self, sample: np.ndarray) -> None:
        self.n_features = sample.shape[1]

    def columns(self, ids: np.ndarray, block: np.ndarray) -> np.ndarray:
        time.sleep(0.003 * len(ids))
        return block[:, ids]


def events_of(features: Any, kind: str = "numbers", **options: Any) -> list[Event]:
    random = np.random.default_rng(0)
    rows: Any = random.normal(size=(300, 12))
    if kind == "sequences":
        rows = random.integers(0, 4, (300, 12)).astype(np.uint8)
    labels = np.where(rows[:, 0] + rows[:, 1] > rows[:, 2], 1, -1)
    labels[:2] = 1, -1
    events: list[Event] = []
    data = fcl.open_data(rows, y=labels)
    by_name.train(data, features, C=0.1, block_rows=128, progress=events.append, **options)
    return events


def check_shares(events: list[Event]) -> set[str]:
    """Shares are from 0 to 1, and do not fall within a step; returns the steps."""
    told = [event for event in events if isinstance(event, StepProgress)]
    for _, some in groupby(told, key=lambda event: (event.number, event.step)):
        shares = [event.share for event in some]
        assert shares == sorted(shares) and shares[0] >= 0.0 and shares[-1] <= 1.0
    return {event.step for event in told}


@pytest.mark.parametrize(
    ("features", "kind"),
    [
        ("columns", "numbers"),
        ("products:degree=2", "numbers"),
        ("columns + products:degree=2", "numbers"),
        ("fourier:n=64", "numbers"),
        ("kmers:d=3", "sequences"),
        ("bag:d=3", "sequences"),
        ("bag:d=3,value=presence,wildcards=true", "sequences"),
    ],
)
def test_every_family_reports_its_progress(
    features: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PROGRESS_EVERY", 0.0)
    assert check_shares(events_of(features, kind)) == {"reading", "pricing", "columns"}


@pytest.mark.slow
def test_a_slow_pass_of_several_processes_shows_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PROGRESS_EVERY", 0.0)
    monkeypatch.setattr(supervisor, "SAMPLE_EVERY", 0.0)
    events = events_of(Slow(), driver="processes", writers=1, max_passes=1, warn=False)
    pricing = [e for e in events if isinstance(e, StepProgress) and e.step == "pricing"]
    check_shares(pricing)
    # the family is a single part: the writer reports its progress block by block
    assert any(0.0 < event.share < 1.0 for event in pricing)


def test_passes_of_less_than_two_seconds_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    clock = SimpleNamespace(monotonic=lambda: 1e-6 * next(ticks), perf_counter=time.perf_counter)
    monkeypatch.setattr(session, "time", clock)
    assert not check_shares(events_of("columns"))


def made_by(module: str) -> Callable[[Any], Any]:
    """A function that numba compiles when it is called, as if it belonged to a given module."""

    def add(value: Any) -> Any:
        return value + 1

    add.__module__ = module
    return numba.njit(add)  # type: ignore[no-any-return]


def test_only_own_kernels_that_this_thread_compiles_count() -> None:
    told: list[str] = []

    own, of_others = made_by("fcl.kernels.made_up"), made_by("somebody.else")
    with Compilation(lambda: told.append("begun")) as compilation:
        of_others(1)
        thread = threading.Thread(target=made_by("fcl.kernels.made_up"), args=(1,))
        thread.start()
        thread.join()
        assert not told and compilation.take() == 0.0
        own(1)
        own(2)  # compiled already
        own(2.0)  # still the same announcement
        assert told == ["begun"] and compilation.take() > 0.0
        own(1)
        assert told == ["begun"] and compilation.take() == 0.0
        own(1j)
        assert told == ["begun"] * 2
    made_by("fcl.kernels.made_up")(1)
    assert told == ["begun"] * 2


@pytest.mark.slow
def test_an_inline_run_reports_compilation_if_the_cache_lacks_kernels(tmp_path: Path) -> None:
    script = """
import numpy as np
import fcl

rows = np.random.default_rng(0).normal(size=(300, 4))
data = fcl.open_data(rows, y=np.where(rows[:, 0] > 0.0, 1, -1))
fcl.train(data, "columns", C=0.1, progress=lambda event: print(type(event).__name__))
"""
    from fcl.kernels.compilation import cache_folder

    lacking = shutil.ignore_patterns("losses-*", "*.tmp.*")
    shutil.copytree(cache_folder, tmp_path / "fcl" / cache_folder.name, ignore=lacking)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    told = []
    for _ in range(2):
        run = [sys.executable, "-c", script]
        result = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
        told.append([name for name in result.stdout.split() if name.startswith("Compil")])
    assert told == [["Compiling", "Compiled"], []]


def test_a_compiling_child_reports_a_missing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_kinds() -> list[object]:
        sent: list[object] = []
        link = SimpleNamespace(send=sent.append)
        warmup.Compiler(link).run()  # type: ignore[arg-type]
        return sent

    own = made_by("fcl.kernels.made_up")
    monkeypatch.setattr(fcl.kernels.compilation, "cache_folder", None)
    monkeypatch.setattr(warmup, "KINDS", {"some": lambda: own(1), "others": lambda: own(2.0)})
    monkeypatch.setenv(warmup.KINDS_VARIABLE, "some,others")
    assert compile_kinds() == [CompileStarted()]
    assert compile_kinds() == []  # no mark says so, but nothing is missing


@pytest.mark.parametrize("lacking", [True, False])
def test_several_processes_report_what_the_compiling_child_finds(
    lacking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Child:
        channel = SimpleNamespace(receive=lambda: [CompileStarted()] * lacking)
        turns = 3

        def __init__(self, *_: object) -> None: ...

        def alive(self) -> bool:
            self.turns -= 1
            return self.turns > 0

        def close(self) -> None:
            pass

    answers = iter([("numbers",), ()])
    monkeypatch.setattr(compilation, "missing", lambda kinds: next(answers))
    monkeypatch.setattr(compilation, "Child", Child)
    events = events_of("columns", driver="processes", writers=1)
    told = [event for event in events if isinstance(event, Compiling | Compiled)]
    assert len(told) == 2 * lacking
    if lacking:
        assert told[0] == Compiling(kinds.KIND_SECONDS["numbers"]) and told[1].seconds > 0.0
