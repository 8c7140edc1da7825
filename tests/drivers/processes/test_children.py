"""Children: start, monitoring and killing; nothing is left behind, whoever dies first."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes_toys import About, Echo, Fail, Fill, Here, Quit

from fcl.drivers.processes import children as module
from fcl.drivers.processes import faults
from fcl.drivers.processes.child import BEAT, IGNORED
from fcl.drivers.processes.children import Child, dismiss
from fcl.drivers.processes.faults import fault
from fcl.drivers.processes.logic.protocol import Raised
from fcl.drivers.processes.shared import Segment
from fcl.errors import FclError

pytestmark = pytest.mark.fresh_interpreters

HERE = Path(__file__).parents[2]
LIMIT = 20.0  # seconds for anything here to happen, on a busy machine
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def segments() -> Iterator[dict[str, Segment]]:
    made = {name: Segment.create(name) for name in ("control", "data")}
    made["control"].allocate(64)
    yield made
    for segment in made.values():
        segment.close()


Spawn = Callable[..., Child]


@pytest.fixture
def spawn(segments: dict[str, Segment]) -> Iterator[Spawn]:
    """Start toys, and check that all are gone at the end."""
    started: list[Child] = []

    def start(toy: str = "Toy", number: int = 0, incarnation: int = 0, **more: str) -> Child:
        child = Child(
            f"processes_toys:{toy}", number, incarnation, number, segments, {"FCL_TOY": "1", **more}
        )
        started.append(child)
        return child

    yield start
    dismiss(started)


def receive(child: Child, n: int = 1) -> list[Any]:
    """The next messages of a child, at least n; fewer if it ends or nothing comes."""
    messages: list[Any] = []
    deadline = time.monotonic() + LIMIT
    closed = False  # seen before the last read: a child may end with its last messages unread
    while len(messages) < n and not closed and time.monotonic() < deadline:
        child.channel.flush()
        closed = child.channel.closed
        select.select([child.channel], [], [], 0.1)
        messages += child.channel.receive()
    return messages


def until(condition: Callable[[], bool], limit: float = LIMIT) -> bool:
    deadline = time.monotonic() + limit
    while not (there := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return there


def status(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return "gone"


def open_files() -> int:
    gc.collect()
    return int(psutil.Process().num_fds())


def stop(child: Child) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    assert until(lambda: status(child.pid) == psutil.STATUS_STOPPED)


def test_messages_and_a_normal_end(spawn: Spawn) -> None:
    child = spawn(number=2, incarnation=5)
    assert receive(child) == [Here(child.pid, 2, 5)]
    assert child.alive() and child.cause() == "is running"
    sent = [Echo(i, i / 3) for i in range(50)]
    for message in sent:
        child.channel.send(message)
    assert receive(child, 50) == sent
    child.channel.send(Quit())
    assert child.wait(LIMIT)
    assert child.status == 0 and child.cause() == "ended with exit code 0"
    assert child.channel.receive() == [] and child.channel.closed
    child.kill()  # of one that ended: nothing
    assert child.cause() == "ended with exit code 0"


def test_a_child_sees_signals_path_and_environment(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "with:colon")
    child = spawn(FCL_TOY="said")
    receive(child)
    child.channel.send(About(str(tmp_path / "about"), json.dumps(sys.path)))
    assert receive(child) == [About()]
    *handlers, blocked, threads, toy, path, leaked = (tmp_path / "about").read_text().split("\n")
    assert handlers == ["SIG_IGN"] * len(IGNORED)
    assert (blocked, threads, toy, path, leaked) == ("0", "1", "said", "True", "False")


def test_signals_do_not_end_a_child_even_while_it_starts(spawn: Spawn) -> None:
    child = spawn()
    deadline = time.monotonic() + LIMIT
    messages: list[Any] = []
    while not messages and child.alive() and time.monotonic() < deadline:
        for number in IGNORED:
            os.kill(child.pid, number)
        messages = child.channel.receive()
    assert messages == [Here(child.pid)]
    assert not set(IGNORED) & signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_segments_are_shared_and_count_as_shared(
    spawn: Spawn, segments: dict[str, Segment]
) -> None:
    child = spawn()
    receive(child)
    size = 64 << 20
    segments["data"].allocate(size)
    child.channel.send(Fill(7))
    [filled] = receive(child)
    assert (segments["data"].array("u1", size) == 7).all()
    if sys.platform == "linux":
        assert filled.value < size / 8


@pytest.mark.parametrize(("is_input", "delay"), [(True, 0.0), (False, 0.0), (True, 0.5)])
def test_an_exception_arrives_with_its_traceback(
    spawn: Spawn, is_input: bool, delay: float
) -> None:
    child = spawn(number=3)
    receive(child)
    child.channel.send(Fail(is_input))
    time.sleep(delay)  # the child may be gone already
    child.channel.send(Echo())  # never read
    [failure] = receive(child)
    assert isinstance(failure, Raised)
    assert (failure.name, failure.doing) == (child.name, "at a test")
    assert failure.is_input == is_input
    assert child.wait(LIMIT) and child.cause() == "ended with exit code 1"
    if is_input:
        assert failure.type == "fcl.errors.InputError"
        assert failure.text == "row 3 is wrong\nin columns 5-9"
        assert 'processes_toys.py", line' in failure.traceback
    else:
        assert failure.type == "builtins.RuntimeError" and failure.text.startswith("long ☃")
    assert failure.traceback.endswith("in columns 5-9\n")


def test_a_role_may_be_missing_or_done(spawn: Spawn) -> None:
    [failure] = receive(spawn("Nobody"))
    assert failure.type == "builtins.AttributeError" and "Nobody" in failure.text
    [failure] = receive(spawn(FCL_FAULT="nonsense"))
    assert "'nonsense'" in failure.text
    child = spawn("Ends")
    assert child.wait(LIMIT) and child.status == 0


@pytest.mark.parametrize(
    ("signum", "counted", "cause", "cure"),
    [
        (
            signal.SIGKILL,
            5,
            "(SIGKILL), as the kernel counted",
            "lower --memory or the number of writers",
        ),
        (signal.SIGKILL, 4, "(SIGKILL), from outside: the kernel counted no", ""),
        (
            signal.SIGKILL,
            None,
            "(SIGKILL), possibly by the kernel",
            "lower --memory or the number of writers",
        ),
        (signal.SIGSEGV, 5, "was killed by signal 11 (SIGSEGV)", ""),
        (None, None, "was killed by signal 9 (SIGKILL) by fcl", ""),
    ],
)
def test_a_killed_child_is_noticed_at_once_and_in_words(
    spawn: Spawn,
    monkeypatch: pytest.MonkeyPatch,
    signum: signal.Signals | None,
    counted: int | None,
    cause: str,
    cure: str,
) -> None:
    """By what the kernel has counted since the start; our own kill is not taken for want of memory."""
    counts = iter([None if counted is None else 4])
    monkeypatch.setattr(module, "oom_kills", lambda: next(counts, counted))
    child = spawn()
    receive(child)
    if signum is None:
        child.kill()
        assert not child.alive()
    else:
        os.kill(child.pid, signum)
        if child.sentinel is not None:
            assert select.select([child.sentinel], [], [], LIMIT)[0]
        assert select.select([child.channel], [], [], LIMIT)[0]
        assert child.channel.receive() == [] and child.channel.closed
    assert child.wait(LIMIT)
    assert cause in child.cause() and cure in child.cure() and bool(cure) == bool(child.cure())
    assert child.name == f"processes_toys:Toy 0 (pid {child.pid})"
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)  # reaped


def test_a_stopped_child_blocks_nobody(spawn: Spawn) -> None:
    """What it was sent arrives when it continues; if it does not, it is killed."""
    child, other = spawn(), spawn(number=1)
    receive(child)
    receive(other)
    stop(child)
    stop(other)
    sent = 0
    start = time.monotonic()
    while not other.channel.wants_write:
        other.channel.send(Echo())
    while len(child.channel._queue) < 100:
        child.channel.send(Echo(sent))
        sent += 1
    dismiss([other], patience=0.1)
    assert time.monotonic() - start < LIMIT and other.cause().endswith("(SIGKILL) by fcl")
    os.kill(child.pid, signal.SIGCONT)
    assert [echo.number for echo in receive(child, sent)] == list(range(sent))
    assert not child.channel.wants_write


@pytest.mark.parametrize("toy", ["Toy", "Deaf"])
def test_a_child_leaves_when_its_channel_closes(spawn: Spawn, toy: str) -> None:
    child = spawn(toy)
    receive(child)
    child.channel.close()
    assert child.wait(LIMIT) and child.status == 0


def test_dismissal_of_children_that_have_hardly_started(spawn: Spawn) -> None:
    started = [spawn(number=number) for number in range(3)]
    dismiss(started, LIMIT)
    assert [child.status for child in started] == [0, 0, 0]
    assert all(child.sentinel is None and child.channel.closed for child in started)


@pytest.mark.slow
def test_hearts_beat_unless_stopped(spawn: Spawn, segments: dict[str, Segment]) -> None:
    child, other = spawn(number=1), spawn(number=6)
    control = segments["control"]
    assert child.silent(control, 100.0) == 0.0 and not child.heard
    counts = control.array("i8", 8)
    assert until(lambda: counts[1] >= 2 and counts[6] >= 1)
    assert counts[[0, 2, 3, 4, 5, 7]].sum() == 0
    stop(child)
    child.silent(control, 101.0)
    assert child.heard
    time.sleep(1.5 * BEAT)
    assert child.silent(control, 131.5) == 30.5
    before = int(counts[6])
    assert until(lambda: counts[6] > before)
    child.forgive()
    assert child.silent(control, 200.0) == 0.0 and child.silent(control, 203.0) == 3.0
    child.kill()
    another = spawn(number=1)  # in its place
    assert another.silent(control, 300.0) == 0.0 and not another.heard
    assert other.alive()


def test_hearts_beat_once_there_is_room(spawn: Spawn, segments: dict[str, Segment]) -> None:
    segments["control"].close()
    late = segments["control"] = Segment.create("control")
    child = spawn(number=1)
    receive(child)
    late.allocate(4096)
    assert until(lambda: int(late.array("i8", 2)[1]) > 0)


def test_without_pidfd(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)  # macOS
    child = spawn()
    receive(child)
    assert child.sentinel is None and child.alive()
    os.kill(child.pid, signal.SIGKILL)
    assert until(lambda: not child.alive())


@pytest.mark.slow
def test_no_process_can_be_started(
    segments: dict[str, Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_files()
    monkeypatch.setattr(sys, "executable", str(HERE / "nowhere"))
    with pytest.raises(FclError, match=r"writer 4: expected to start a process, got: No such file"):
        Child("writer", 4, 0, 0, segments)
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(FclError, match=r"sys\.executable, got nothing"):
        Child("writer", 4, 0, 0, segments)
    assert open_files() <= before
    assert not set(IGNORED) & signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
def test_an_interrupted_start_leaves_no_child(
    segments: dict[str, Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, others = open_files(), psutil.Process().children()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_pidfd", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Child("processes_toys:Toy", 0, 0, 0, segments)
    assert open_files() <= before
    assert psutil.Process().children() == others


@pytest.mark.slow
def test_descriptors_are_given_back(segments: dict[str, Segment]) -> None:
    before = open_files()
    for _ in range(3):
        child = Child("processes_toys:Ends", 0, 0, 0, segments)
        child.close()
        child.close()
    assert open_files() <= before


# -- faults on demand --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "number", "incarnation", "cause"),
    [
        ("kill", 1, 0, "was killed by signal 9 (SIGKILL)"),
        ("exit", 1, 0, f"ended with exit code {faults.EXIT_CODE}"),
        ("raise", 1, 0, "ended with exit code 1"),
        ("kill", 1, 1, ""),
        ("kill", 0, 0, ""),
    ],
)
def test_a_fault_fires_at_its_count_and_in_the_first_incarnation(
    spawn: Spawn, action: str, number: int, incarnation: int, cause: str
) -> None:
    variable = f"other:0:echo:1:kill,processes_toys:Toy:1:echo:3:{action}"
    child = spawn("Toy", number, incarnation, FCL_FAULT=variable)
    receive(child)
    for _ in range(4):
        child.channel.send(Echo())
    echoes = [said for said in receive(child, 4) if isinstance(said, Echo)]
    assert len(echoes) == (2 if cause else 4)
    assert not cause or (child.wait(LIMIT) and child.cause().startswith(cause))


def test_a_fault_in_every_incarnation(spawn: Spawn) -> None:
    child = spawn("Toy", 1, 4, FCL_FAULT="processes_toys:Toy:1:echo:1:stop!")
    receive(child)
    child.channel.send(Echo())
    assert until(lambda: status(child.pid) == psutil.STATUS_STOPPED)
    child.kill()


def test_faults_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    fault("anywhere")
    monkeypatch.setenv(faults.VARIABLE, "supervisor:0:save:2:raise")
    faults.arm("supervisor", 0, 0)
    fault("load")
    fault("save")
    with pytest.raises(faults.InjectedFault, match="'save'"):
        fault("save")
    fault("save")
    for wrong in ("save", "a:b:save:1:kill", "a:0:save:0:kill", "a:0:save:1:burn"):
        monkeypatch.setenv(faults.VARIABLE, wrong)
        with pytest.raises(ValueError, match="expected role:number:point:count:action"):
            faults.arm("a", 0, 0)
    monkeypatch.delenv(faults.VARIABLE)
    faults.arm("supervisor", 0, 0)
    fault("save")


# -- the supervisor dies -----------------------------------------------------------------------

SUPERVISOR = textwrap.dedent(
    """
    import os, select, signal, sys, time
    from fcl.drivers.processes.children import Child
    from fcl.drivers.processes.shared import Segment

    pipe, mode = int(sys.argv[1]), sys.argv[2]
    segments = {name: Segment.create(name) for name in ("control", "config")}
    segments["control"].allocate(64)
    segments["leak"] = Segment.of_fd("leak", pipe)
    roles = ["processes_toys:Toy", "processes_toys:Deaf"]
    environment = {"FCL_TOY": "portable" if mode in ("portable", "forked") else "linux"}
    children = [Child(r, i, 0, i, segments, environment) for i, r in enumerate(roles)]
    if mode != "starting":
        for child in children:
            while not child.channel.receive():
                select.select([child.channel], [], [], 1)
    if mode == "stopped":
        for child in children:
            os.kill(child.pid, signal.SIGSTOP)
    fork = os.fork() if mode == "forked" else -1
    if fork == 0:
        os.close(pipe)  # of ours it has all but that: no end of stream while it lives
    else:
        print(fork, flush=True)
    time.sleep(30)
    """
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["starting", "running", pytest.param("stopped", marks=linux), "portable", "forked"]
)
def test_no_child_outlives_a_killed_supervisor(mode: str) -> None:
    reading, writing = os.pipe()
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(writing), mode],
        pass_fds=[writing],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
    )
    os.close(writing)
    fork = -1
    try:
        assert supervisor.stdout is not None
        fork = int(supervisor.stdout.readline())
        supervisor.kill()
        # the pipe is closed, so no process holds it any more
        assert select.select([reading], [], [], LIMIT)[0] and os.read(reading, 1) == b""
    finally:
        os.close(reading)
        supervisor.kill()
        if fork > 0:
            os.kill(fork, signal.SIGKILL)
        supervisor.communicate()
