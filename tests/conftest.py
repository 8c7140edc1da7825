"""Check that no test leaves processes, shared memory or changed environment variables behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# Before numpy is imported: for problems of this size, more threads only get into each other's way,
# above all if several tests run at a time.
for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
os.environ.update({"VECLIB_MAXIMUM_THREADS": "1", "BLOSC_NTHREADS": "1"})

import hypothesis  # noqa: E402
import psutil  # noqa: E402
import pytest  # noqa: E402

from fcl.drivers.processes import children  # noqa: E402
from fcl.solve import clipped, single  # noqa: E402
from tests import nursery  # noqa: E402

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "fcl"
PATIENCE = 2.0  # seconds in which children must exit after a request
# kept by the modules of these names until the interpreter ends, by design
KEPT_PROCESSES = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "loky.backend.resource_tracker",  # of joblib
)
FIRST = (
    "tests/test_architecture.py",
    "tests/solve/test_trainer.py",
    "tests/drivers/test_offset.py",
)
# pytest changes the first at every phase; OpenMP and scikit-learn set the others when imported
IGNORED_VARIABLES = ("PYTEST_CURRENT_TEST", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")

# the same random cases in every run, however long a busy machine takes for one
hypothesis.settings.register_profile(
    "fcl",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # a busy machine is no failure
)
hypothesis.settings.load_profile("fcl")

# commands inherit what is ignored, and a runner behind nohup ignores this one: they would, too
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that a broken build fails: imports, kernels, a solver, a whole run.

    Of the cases of a test marked ``thin(k)`` only every k-th one is not slow.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    cases: Counter[str] = Counter()
    for item in items:
        thin = item.get_closest_marker("thin")
        if thin is not None:
            name = item.nodeid.partition("[")[0]
            if cases[name] % thin.args[0]:
                item.add_marker("slow")
            cases[name] += 1
        names = getattr(item, "fixturenames", [])
        if "client" in names:  # before what looks at the processes of a test
            slow = item.get_closest_marker("slow")
            names.insert(0, "cluster" if slow else "cluster_of_threads")
        if item.get_closest_marker("thorough") and not os.environ.get("FCL_TEST_THOROUGH"):
            item.add_marker(pytest.mark.skip(reason="only if FCL_TEST_THOROUGH is set"))


def pytest_sessionfinish() -> None:
    nursery.NURSERY.close()


@pytest.fixture(autouse=True)
def forked_children(
    request: pytest.FixtureRequest,
    leaves_nothing_behind: None,  # what looks at the environment ends after what changed it
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fork writers and trainers from a nursery, unless the test asks for fresh interpreters."""
    marked = request.node.get_closest_marker
    if hasattr(os, "pidfd_open") and not marked("fresh_interpreters"):
        monkeypatch.setattr(children, "start", nursery.start)
        if marked("forked_commands"):
            monkeypatch.setattr(subprocess, "Popen", nursery.Forked)


@pytest.fixture
def coordinate_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve problems by sweeps that are small enough to be solved by their whole Hessian."""
    monkeypatch.setattr(single, "CHEAP_HESSIAN", 0.0)
    monkeypatch.setattr(single, "CHEAP_WORK", 0.0)
    monkeypatch.setattr(clipped, "MOST_ENTRIES", 0)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves children, segments or changed environment variables behind."""
    environment, children = _environment(), _children()
    segments = _segments()
    yield
    left: list[str] = []
    if changed := {name for name, _ in environment.items() ^ _environment().items()}:
        left.append(f"environment variables changed: {', '.join(sorted(changed))}")
    if alive := _wait_until_gone(children):
        left.append(f"processes left: {'; '.join(alive)}")
    if files := _leaked_segments(segments):
        left.append(f"files left in {SHARED_MEMORY}: {', '.join(files)}")
    if left:
        pytest.fail("\n".join(left), pytrace=False)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in IGNORED_VARIABLES}


def _children() -> set[int]:
    """The processes that descend from this one; with pytest-xdist each worker sees only its own."""
    own = os.getpid()
    if Path(f"/proc/{own}/task/{own}/children").exists():
        # psutil looks at all processes of the system, which takes 3 ms twice a test
        with contextlib.suppress(OSError):
            return set(_descendants(own))
    return {child.pid for child in psutil.Process().children(recursive=True)}


def _descendants(pid: int) -> Iterator[int]:
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            for child in map(int, file.read().split()):
                yield child
                yield from _descendants(child)


def _wait_until_gone(before: set[int]) -> list[str]:
    """Describe the new children, including zombies, that still exist after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        alive = []
        for pid in _children() - before - {nursery.NURSERY.pid}:
            try:
                child = psutil.Process(pid)
                command = " ".join(child.cmdline())
                if not any(kept in command for kept in KEPT_PROCESSES):
                    alive.append(f"pid {pid} ({child.status()}) {command or child.name()}")
            except psutil.ZombieProcess:  # a kind of NoSuchProcess, for psutil
                alive.append(f"pid {pid} (ended, not joined)")
            except psutil.NoSuchProcess:
                continue
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.02)


def _segments() -> set[str]:
    return {path.name for path in SHARED_MEMORY.glob(f"{PREFIX}*")}


def _leaked_segments(before: set[str]) -> list[str]:
    """New segments, except those that a process outside our own process tree holds.

    Those belong to a test of another pytest-xdist worker, or to a run of fcl beside the tests.
    """
    new = _segments() - before
    if new:
        time.sleep(0.1)  # made by another worker and not yet opened, or just being removed
        new &= _segments()
    if not new:
        return []
    own = {os.getpid(), *_children()}
    foreign: set[str] = set()
    for process in psutil.process_iter():
        if process.pid not in own:
            foreign |= _held_by(process.pid)
    return sorted(new - foreign)


def _held_by(pid: int) -> set[str]:
    """The names of the files in SHARED_MEMORY that a process has mapped or open."""
    held = set()
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
        held |= {
            line.rpartition("/")[2] for line in maps.splitlines() if SHARED_MEMORY.name in line
        }
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = Path(os.readlink(descriptor))
            if target.parent == SHARED_MEMORY:
                held.add(target.name)
    except OSError:  # the process has ended, or belongs to another user
        pass
    return held
