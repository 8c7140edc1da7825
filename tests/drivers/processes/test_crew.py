"""Children that are kept from job to job: the same results, nothing of a job left, none lent wrongly."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from rows import acceptors

import fcl
from fcl.drivers import plan
from fcl.drivers.events import Event, PassDone
from fcl.drivers.processes import children, faults, supervisor
from fcl.drivers.processes import crew as module
from fcl.drivers.processes.channel import TEXT_BYTES
from fcl.drivers.processes.child import BEAT
from fcl.drivers.processes.children import Child, dismiss
from fcl.drivers.processes.crew import Crew
from fcl.drivers.processes.memory import rss_anon
from fcl.drivers.processes.shared import Segment

HERE = Path(__file__).parent
N, LENGTH, TOL = 400, 14, 1e-6
PRICED = ("objective", "bound", "gap", "max_violation", "priced", "active")
LIMIT = 20.0  # seconds for anything here to happen, on a busy machine
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as lender:
        yield lender


@pytest.fixture
def segments() -> Iterator[dict[str, Segment]]:
    made = {name: Segment.create(name) for name in ("control", "config", "texts", "data")}
    made["control"].allocate(64)
    made["texts"].allocate(8 * TEXT_BYTES)
    yield made
    for segment in made.values():
        segment.close()


def train(crew: Crew | None, data: fcl.DataSet | None = None, **options: Any) -> fcl.TrainResult:
    if data is None:
        codes, y = acceptors(LENGTH, N)
        data = fcl.open_data(codes, y=y)
    if crew is not None:
        options |= {"driver": "processes", "crew": crew}
        options.setdefault("writers", 1)
    options = {"tol": TOL, "block_rows": 64, "memory": "1GiB", "C": 1.0} | options
    return fcl.train(data, options.pop("features", "kmers:d=3"), **options)


def same(result: fcl.TrainResult, expected: fcl.TrainResult) -> None:
    """The first pass to the last bit; of the ends each bound is below the other's objective."""
    assert result.converged and expected.converged
    first, other = result.model.history[0], expected.model.history[0]
    assert [first[name] for name in PRICED] == [other[name] for name in PRICED]
    for a, b in ((result, expected), (expected, result)):
        assert a.certificate.bound <= b.certificate.objective * (1.0 + 1e-12)
    objectives = [h["objective"] for h in result.model.history]
    assert all(b <= a for a, b in pairwise(objectives))


def until(condition: Callable[[], bool], limit: float = LIMIT) -> bool:
    deadline = time.monotonic() + limit
    while not (there := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return there


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits to be reaped."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: ended(pid))


# -- jobs one after the other ----------------------------------------------------------------------


def test_other_jobs_with_the_same_processes(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another family, other rows, from a file, a sample, validation: nothing is left of the last."""
    codes, y = acceptors(LENGTH, N)
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "X.npy", codes)
    np.save(tmp_path / "data" / "y.npy", y)
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(150, 9))
    matrix = fcl.open_data(numbers, y=numbers[:, 0] + 0.1 * rng.normal(size=150))
    pids: list[int] = []
    jobs: list[tuple[fcl.DataSet | None, dict[str, Any]]] = [
        (None, {}),
        (matrix, {"features": "columns", "loss": "squared"}),
        (fcl.open_data(tmp_path / "data"), {"features": "kmers:d=4", "C": 0.3}),
        (None, {"valid_fraction": 0.3}),
        (None, {"features": "bag:d=3 + kmers:d=2", "loss": "squared_hinge", "C": 0.2}),
    ]
    for data, options in jobs:
        same(train(crew, data, **options), train(None, data, **options))
        assert pids in ([], sorted(crew.pids)) and len(crew.pids) == 2
        pids = sorted(crew.pids)
    monkeypatch.setattr(plan, "ALL_ROWS", 100)
    monkeypatch.setattr(plan, "LEAST_SAMPLE", 128)
    same(train(crew), train(None))
    assert sorted(crew.pids) == pids


@linux
def test_nothing_of_a_job_is_held(crew: Crew, tmp_path: Path) -> None:
    """Descriptors, here and there, and mappings; of ten jobs as of one."""
    codes, y = acceptors(LENGTH, N)
    np.save(tmp_path / "X.npy", codes)
    np.save(tmp_path / "y.npy", y)
    data = fcl.open_data(tmp_path)

    def counts() -> list[int]:
        gc.collect()
        return [psutil.Process(pid).num_fds() for pid in (os.getpid(), *sorted(crew.pids))]

    train(crew, data)
    before, pids = counts(), sorted(crew.pids)
    peaks = []
    for k in range(9):
        peaks.append(train(crew, data, C=0.5 + 0.1 * k, shared_files=tmp_path).peak_memory)
        for pid in crew.pids:
            assert "fcl-" not in Path(f"/proc/{pid}/maps").read_text()
            links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
            assert not [link for link in links if "fcl-" in link or "X.npy" in link]
    assert sorted(crew.pids) == pids and counts() == before
    assert psutil.Process(pids[0]).num_threads() == psutil.Process(pids[1]).num_threads() == 1
    assert max(peaks) < min(peaks) + (32 << 20)
    assert {child.pid for child in psutil.Process().children()} >= set(pids)
    crew.close()
    assert all(ended(pid) for pid in pids) and not crew.pids


def test_idle_children_count_as_memory(crew: Crew) -> None:
    train(crew, writers=2)
    lent = sorted(crew.pids)
    train(crew, writers=1)  # the second writer is not wanted, and there is no room for it
    assert len(lent) == 3 and set(crew.pids) < set(lent) and len(crew.pids) == 2
    gone = next(iter(set(lent) - set(crew.pids)))
    assert ended(gone)


def test_a_child_that_holds_more_than_is_planned_for_leaves(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(crew)
    sizes = [rss_anon(pid) for pid in crew.pids]
    assert 0 < max(sizes) <= plan.child_bytes()
    monkeypatch.setattr(supervisor, "child_bytes", lambda: max(sizes) // 2)
    assert train(crew).converged and not crew.pids


# -- who is kept -----------------------------------------------------------------------------------


def test_a_killed_idle_child_is_replaced(crew: Crew) -> None:
    train(crew)
    one, other = crew.pids
    kill(one)
    result = train(crew)
    assert result.converged and one not in crew.pids and other in crew.pids
    assert len(crew.pids) == 2


def test_a_child_that_dies_as_it_is_lent_is_replaced(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(crew)
    before = list(crew.pids)
    assign = Child.assign

    def dying(self: Child, *arguments: Any) -> bool:
        if self.pid == before[0]:
            kill(self.pid)
        return assign(self, *arguments)

    monkeypatch.setattr(Child, "assign", dying)
    assert train(crew).converged
    assert before[0] not in crew.pids and before[1] in crew.pids and len(crew.pids) == 2


def test_a_child_that_cannot_be_told_is_replaced(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError("too many references")

    train(crew)
    before = set(crew.pids)
    monkeypatch.setattr(children, "send_job", refused)
    assert train(crew).converged
    assert not before & set(crew.pids) and len(crew.pids) == 2


@pytest.mark.parametrize("role", ["writer:0:price-begin", "trainer:0:step"])
def test_a_child_that_died_at_work_is_not_kept_but_its_successor_is(
    crew: Crew, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faults.VARIABLE, f"{role}:1:kill")
    assert train(crew).converged and len(crew.pids) == 2
    monkeypatch.delenv(faults.VARIABLE)
    before = set(crew.pids)  # started with another environment
    assert train(crew).converged and not before & set(crew.pids)


def test_nobody_is_kept_of_a_job_that_ended_otherwise(crew: Crew, tmp_path: Path) -> None:
    codes, y = acceptors(LENGTH, N)
    bad = codes.copy()
    bad[333, 5] = 99
    (tmp_path / "bad").mkdir()
    np.save(tmp_path / "bad" / "X.npy", bad)
    np.save(tmp_path / "bad" / "y.npy", y)

    def stop(event: Event) -> None:
        if isinstance(event, PassDone):
            passes.append(event.number)

    def fail(event: Event) -> None:
        if isinstance(event, PassDone):
            raise ZeroDivisionError

    passes: list[int] = []
    early: dict[str, Any] = {
        "progress": stop,
        "should_stop": lambda: len(passes) > 1,
        "warn": False,
    }
    assert train(crew, tol=1e-12, **early).reason == "interrupted"
    assert not crew.pids
    with pytest.raises(fcl.InputError, match="333"):
        train(crew, fcl.open_data(tmp_path / "bad"))
    assert not crew.pids
    with pytest.raises(ZeroDivisionError):
        train(crew, progress=fail)
    assert not crew.pids
    assert train(crew, max_passes=1, warn=False).reason == "max-passes" and len(crew.pids) == 2


def test_a_child_with_code_of_the_user_is_not_kept(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module may be another one at the next job."""
    (tmp_path / "mine_kept.py").write_text(
        textwrap.dedent(
            """
            from fcl.features import Columns

            class Mine(Columns):
                pass
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(150, 9))
    data = fcl.open_data(numbers, y=numbers[:, 0] > 0)
    assert train(crew, data, features="columns", tol=1e-3).converged
    assert len(crew.pids) == 2
    assert train(crew, data, features="mine_kept:Mine", tol=1e-3).converged
    assert not crew.pids


def test_a_fresh_child_is_started_where_it_would_be_another(
    crew: Crew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Callable[[], Any]] = [
        lambda: monkeypatch.setenv("FCL_TEST_KEPT", "1"),
        lambda: monkeypatch.chdir(tmp_path),
        lambda: monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)]),
    ]
    train(crew)
    for change in changes:
        before = set(crew.pids)
        change()
        assert train(crew).converged
        assert len(crew.pids) == 2 and not before & set(crew.pids)


def test_each_thread_has_its_own(crew: Crew) -> None:
    """A child dies with the thread that started it."""
    train(crew)
    mine = set(crew.pids)
    results = []

    def work() -> None:
        results.extend(train(crew) for _ in range(2))
        theirs.update(set(crew.pids) - mine)

    theirs: set[int] = set()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert all(result.converged for result in results) and len(theirs) == 2
    assert until(lambda: set(crew.pids) == mine)
    assert not any(psutil.pid_exists(pid) for pid in theirs)
    train(crew)
    assert set(crew.pids) == mine


def test_idle_children_leave_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """By themselves, should nobody send them away; they are lent no more before that."""
    monkeypatch.setattr(Crew, "_set_timer", lambda self: None)
    monkeypatch.setattr(module, "GRACE", 0.2)
    with Crew(idle=0.3) as crew:
        train(crew)
        pids = list(crew.pids)
        assert len(pids) == 2 and until(lambda: all(ended(pid) for pid in pids), 3.0 + 2 * BEAT)
        assert not crew.pids and not any(psutil.pid_exists(pid) for pid in pids)
        assert train(crew).converged and not set(pids) & set(crew.pids)
    monkeypatch.setattr(module, "GRACE", 60.0)
    with Crew(idle=0.1) as crew:
        train(crew)
        pids = list(crew.pids)
        time.sleep(0.2)  # they are still there, but not lent
        assert not any(ended(pid) for pid in pids)
        assert train(crew).converged and not set(pids) & set(crew.pids)


def test_idle_children_are_sent_away_and_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anybody who asks for them; those of a later job wait their own time."""
    monkeypatch.setattr(module, "GRACE", 60.0)
    with Crew(idle=3.0) as crew:
        gone: list[int] = []
        for _ in range(2):  # a timer each time
            train(crew)
            timer = crew._timer
            assert timer is not None and timer.daemon and timer.is_alive()
            pids = [one.child.pid for one in crew._idle]
            assert len(pids) == 2 and not set(pids) & set(gone)
            assert not any(ended(pid) for pid in pids)
            # not even a zombie is left: pid_exists is true of those
            assert until(lambda pids=pids: not any(map(psutil.pid_exists, pids)))
            assert until(lambda timer=timer: not timer.is_alive()) and not crew._timer
            gone += pids
        train(crew)
        time.sleep(1.0)
        pids = crew.pids
        train(crew)  # before the timer, which is that of the job before
        assert sorted(crew.pids) == sorted(pids)
        again = time.monotonic()
        assert until(lambda: not any(map(psutil.pid_exists, pids)))
        assert time.monotonic() - again > 2.5
        train(crew)
        timer = crew._timer
        assert timer is not None and timer.is_alive()
        crew.dismiss()
        assert until(lambda: not timer.is_alive(), 1.0)


def test_an_idle_child_that_dies_is_reaped_by_a_look(crew: Crew) -> None:
    train(crew)
    one, other = crew.pids
    kill(one)
    assert psutil.pid_exists(one)
    assert crew.pids == [other] and not psutil.pid_exists(one)


def test_a_crew_that_nobody_has_is_not_kept_by_its_timer() -> None:
    crew = Crew()
    train(crew)
    left = [one.child for one in crew._idle]
    reference = weakref.ref(crew)
    del crew
    gc.collect()
    assert reference() is None
    dismiss(left)


def test_a_closed_crew_keeps_nobody_and_dismissal_is_no_end() -> None:
    crew = Crew()
    train(crew)
    pids = list(crew.pids)
    crew.dismiss()
    assert not crew.pids and all(ended(pid) for pid in pids)
    train(crew)
    assert len(crew.pids) == 2
    crew.close()
    assert train(crew).converged and not crew.pids
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            make(crew)


def test_what_is_no_crew_is_named() -> None:
    codes, y = acceptors(LENGTH, N)
    with pytest.raises(fcl.InputError, match="crew must be a Crew or None, got int"):
        fcl.train(fcl.open_data(codes, y=y), "kmers:d=3", C=1.0, crew=3)  # type: ignore[arg-type]


# -- single children -------------------------------------------------------------------------------


def test_a_child_does_jobs_of_several_roles(segments: dict[str, Segment]) -> None:
    child = Child.spawn("processes_toys:Ends", 0, 0, 0, segments, idle=60.0)
    try:
        assert child.wait(LIMIT)  # a role that is done ends its child
        child.release()
        assert not child.is_free(time.monotonic() + LIMIT)
        assert not child.assign("processes_toys:Toy", 0, 0, 0, segments)
    finally:
        dismiss([child])


@pytest.mark.parametrize(
    ("toy", "free"), [("Toy", True), ("Deaf", False), ("Keeps", False)], ids=str
)
def test_only_who_lets_go_of_everything_is_free(
    segments: dict[str, Segment], toy: str, free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(HERE)
    child = Child.spawn(f"processes_toys:{toy}", 0, 0, 0, segments, idle=60.0)
    try:
        assert until(lambda: bool(child.channel.receive()))
        child.release()
        patience = LIMIT if toy != "Deaf" else 0.3
        assert child.is_free(time.monotonic() + patience) == free
        assert child.channel.closed
        if free:
            for number in range(3):
                pid = child.pid
                assert child.assign("processes_toys:Toy", number, 2, 3, segments)
                assert (child.number, child.incarnation, child.index) == (number, 2, 3)
                found: list[Any] = []
                assert until(
                    lambda found=found: bool(found.extend(child.channel.receive()) or found)
                )
                assert found[0].ints[:3] == (pid, number, 2)
                beats = segments["control"].array("i8", 8)
                before = int(beats[3])
                assert until(lambda before=before, beats=beats: int(beats[3]) > before)
                child.release()
                assert child.is_free(time.monotonic() + LIMIT)
    finally:
        dismiss([child], 0.0)


def test_more_segments_than_a_message_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    many = {f"s{k}": Segment.create(f"s{k}") for k in range(450)}
    child = Child.spawn("processes_toys:Toy", 0, 0, 0, {}, idle=60.0)
    try:
        assert until(lambda: bool(child.channel.receive()))
        child.release()
        assert child.is_free(time.monotonic() + LIMIT)
        assert child.assign("processes_toys:Toy", 7, 0, 0, many)
        assert until(lambda: bool(child.channel.receive()))
        if sys.platform == "linux":
            assert psutil.Process(child.pid).num_fds() > 450
        child.release()
        assert child.is_free(time.monotonic() + LIMIT)
        if sys.platform == "linux":
            assert psutil.Process(child.pid).num_fds() < 10
    finally:
        dismiss([child], 0.0)
        for segment in many.values():
            segment.close()


# -- the end of the process, and copies of it ------------------------------------------------------

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys
    import numpy as np
    import fcl
    from fcl import FCLClassifier
    from fcl.estimators import base

    crew, how = base._CREW, sys.argv[1]
    X = np.random.default_rng(0).normal(size=(200, 5))
    model = FCLClassifier(driver="processes", n_jobs=1, tol=1e-3).fit(X, X[:, 0] > 0)
    before = crew.pids
    print(*before, flush=True)
    if how == "fork":
        files = len(os.listdir("/proc/self/fd"))
        copy = os.fork()
        if copy == 0:
            assert not crew.pids and len(os.listdir("/proc/self/fd")) == files - 2 * len(before)
            model.fit(X, X[:, 1] > 0)
            assert model.model_.options["driver"] == "processes"
            own = crew.pids
            assert len(own) == 2 and not set(own) & set(before)
            print(*own, flush=True)
            sys.exit(7)  # not os._exit: what is registered for the end is done
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 7
        model.fit(X, X[:, 1] > 0)
        assert crew.pids == before, (crew.pids, before)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    """
)


@pytest.mark.parametrize("how", ["end", "kill", pytest.param("fork", marks=linux)])
def test_no_idle_child_outlives_its_process(how: str) -> None:
    run = subprocess.run(
        # newer versions warn of forks beside threads, of which numpy may have some too
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", SCRIPT, how],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2])},
        check=False,
    )
    pids = [int(word) for word in run.stdout.split()]
    assert len(pids) == (4 if how == "fork" else 2), run.stderr
    assert run.returncode == (-signal.SIGKILL if how == "kill" else 0), run.stderr
    assert not run.stderr
    assert until(lambda: all(ended(pid) for pid in pids), 5.0)
