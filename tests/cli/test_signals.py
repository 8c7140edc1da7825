"""SIGINT, SIGTERM and SIGHUP, in a separate process with a trainer that waits for a signal."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fcl.cli.common import Interrupted
from fcl.cli.signals import stop_on_signals
from fcl.model import load_model

pytestmark = pytest.mark.forked_commands

# conftest.py lends its trainer; this one reports passes until it is asked to stop
SCRIPT = """
import sys, time
from types import ModuleType
sys.path.insert(0, {here!r})
from tests.cli import conftest
from fcl.model import load_model
fake = conftest.FakeDriver(load_model({model!r}))
def wait(arguments):
    print("waiting", file=sys.stderr, flush=True)
    while {deaf} or not arguments["should_stop"]():
        time.sleep(0.01)
        if arguments["should_checkpoint"]():
            print("saved", file=sys.stderr, flush=True)
fake.before_end = wait
def early(data, features, progress, **arguments):
    options = {{"driver": arguments["driver"]}}
    progress(conftest.Started(None, options, 600, 1000, 0.1, 1.0, 150))
    wait(arguments)
    raise KeyboardInterrupt
module = ModuleType("fcl.drivers.train")
module.run_training = early if {early} else fake.train
sys.modules["fcl.drivers.train"] = module
from fcl.cli.train import command
command.main({arguments!r})
"""


@contextmanager
def waiting(
    model: Path, data: Path, out: Path, *more: str, deaf: bool = False, early: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """The command at the end of its third pass, or, if `early`, in its first."""
    arguments = [str(data), "--features", "kmers:d=3", "--C", "1", "--out", str(out), *more]
    here = str(Path(__file__).parents[2])
    code = SCRIPT.format(here=here, model=str(model), arguments=arguments, deaf=deaf, early=early)
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            while "waiting" not in (line := process.stderr.readline()):
                assert line, "ended before it waited"
            yield process
        finally:
            process.kill()


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_first_signal_saves(
    model_file: Path, data: Path, tmp_path: Path, signum: int, code: int
) -> None:
    out = tmp_path / "o.fcl"
    with waiting(model_file, data, out) as process:
        process.send_signal(signum)
        process.send_signal(signum)  # at once: the same wish, as `timeout` sends it
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert load_model(out).n_active == 3
    assert "stopping after this step" in stderr and "Traceback" not in stderr
    assert "stopped early (interrupted) with gap 0.008 where 0.001 was requested" in stderr
    assert str(out) in stdout


def test_second_signal_leaves_at_once(model_file: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.fcl"
    with waiting(model_file, data, out, deaf=True) as process:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "quitting immediately" in stderr and not out.exists()


def test_a_dropped_connection_that_hangs_up_twice_saves(
    model_file: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o.fcl"
    with waiting(model_file, data, out, deaf=True) as process:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None  # at work on its last step
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 143


@pytest.mark.fresh_interpreters  # inherit what is ignored
def test_nohup_continues(model_file: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.fcl"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the command inherits it
    try:
        with waiting(model_file, data, out) as process:
            process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            process.terminate()
            _, stderr = process.communicate(timeout=30)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 143 and "SIGHUP" not in stderr and out.exists()


def test_usr1_saves_a_checkpoint_and_continues(
    model_file: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o.fcl"
    with waiting(model_file, data, out) as process:
        assert process.stderr is not None
        seen = []
        for _ in range(2):
            process.send_signal(signal.SIGUSR1)
            while (line := process.stderr.readline()) != "saved\n":
                assert line, "ended"
                seen.append(line)
        process.terminate()
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 143 and out.exists()
    assert sum("SIGUSR1: a checkpoint will be saved" in line for line in seen) == 2
    assert "saved\n" not in stderr


def test_usr1_without_checkpoints_is_harmless(model_file: Path, data: Path, tmp_path: Path) -> None:
    with waiting(model_file, data, tmp_path / "o.fcl", "--no-checkpoint") as process:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
        process.terminate()
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 143
    assert "SIGUSR1: no checkpoints are kept" in stderr and "saved\n" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["inline", "processes"])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_before_the_first_pass(
    model_file: Path, data: Path, tmp_path: Path, driver: str, signum: int, code: int
) -> None:
    out = tmp_path / "o.fcl"
    with waiting(model_file, data, out, "--driver", driver, early=True) as process:
        process.send_signal(signum)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code and stdout == "" and not out.exists()
    assert "interrupted; nothing was written" in stderr and "Traceback" not in stderr
    # only the supervisor of processes is asked; the inline driver is busy
    assert ("stopping after this step" in stderr) == (driver == "processes")


def test_handlers_are_put_back() -> None:
    from fcl.cli.common import Interrupted
    from fcl.cli.signals import stop_on_signals

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted), stop_on_signals() as stop:  # noqa: PT012
        assert signal.getsignal(signal.SIGTERM) == stop.handle
        os.kill(os.getpid(), signal.SIGTERM)  # nothing is worth saving yet
        time.sleep(1)
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("ends", [True, False])
def test_a_signal_behind_the_command_leaves_its_exit_code(ends: bool) -> None:
    code = (
        "import os, signal\n"
        "from fcl.cli.signals import process_ends_with_command, stop_on_signals\n"
        f"if {ends}: process_ends_with_command()\n"
        "with stop_on_signals(): pass\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "raise SystemExit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    # a caller from Python has its own handlers back
    assert done.returncode == (3 if ends else -signal.SIGTERM)


def test_a_signal_that_a_library_swallows(capfd: pytest.CaptureFixture[str]) -> None:
    """A callback from C, in which Python only writes what was raised: the signal comes again."""
    callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Interrupted) as caught, stop_on_signals():  # noqa: PT012
        callback()
        time.sleep(10.0)
    assert caught.value.signum == signal.SIGTERM
    assert capfd.readouterr().err == ""


def test_a_signal_that_a_library_turns_into_its_own_error() -> None:
    """As modules in C++ do while they are loaded."""

    def load() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except Interrupted as error:
            raise ImportError("initialization failed") from error

    with pytest.raises(Interrupted), stop_on_signals():
        load()
    with pytest.raises(ZeroDivisionError), stop_on_signals():  # other errors stay
        raise ZeroDivisionError
