"""Roles for tests of children; a child imports this module by name."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fcl.drivers.processes.child import IGNORED, ChildLink
from fcl.drivers.processes.faults import fault
from fcl.errors import InputError
from fcl.memory.meter import rss_anon

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Here:
    pid: int
    number: int = 0
    incarnation: int = 0


@dataclass(frozen=True)
class Echo:
    number: int = 0
    value: float = 0.0


@dataclass(frozen=True)
class Fill:
    value: int


@dataclass(frozen=True)
class Fail:
    is_input: bool


@dataclass(frozen=True)
class About:
    path: str = ""
    sys_path: str = ""


@dataclass(frozen=True)
class Quit: ...


if os.environ.get("FCL_TOY") == "portable" and sys.platform == "linux":
    # no signal when the parent dies, as on macOS: the child must exit by itself
    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)


class Toy:
    """Answers messages until it is told to quit."""

    def __init__(self, link: ChildLink) -> None:
        self.link = link

    def run(self) -> None:
        link = self.link
        link.send(Here(os.getpid(), link.number, link.incarnation))
        while (said := link.receive()) != Quit():
            match said:
                case Echo():
                    fault("echo")
                    link.send(said)
                case Fill(value):
                    self.fill(value)
                case About():
                    self.about(said)
                case Fail(is_input):
                    link.doing = "at a test"
                    raised(is_input)

    def fill(self, value: int) -> None:
        """Write the whole segment ``data``, and report how much anonymous memory grew."""
        segment = self.link.segment("data")
        before = rss_anon(os.getpid())
        segment.array("u1", segment.size)[:] = value
        self.link.send(Fill(rss_anon(os.getpid()) - before))

    def about(self, said: About) -> None:
        """Write what the child sees to the path in the message."""
        Path(said.path).write_text(
            "\n".join(
                [
                    *(signal.getsignal(number).name for number in IGNORED),  # type: ignore
                    str(len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
                    os.environ["OMP_NUM_THREADS"],
                    os.environ["FCL_TOY"],
                    str(sys.path == json.loads(said.sys_path)),
                    str("FCL_CHILD_PATH" in os.environ or "PYTHONPATH" in os.environ),
                ]
            )
        )
        self.link.send(About())


def raised(is_input: bool) -> None:
    error = InputError("row 3 is wrong") if is_input else RuntimeError("long ☃" * 50_000)
    error.add_note("in columns 5-9")
    raise error


class Deaf:
    """Works forever without reading messages, and holds the GIL most of the time."""

    def __init__(self, link: ChildLink) -> None:
        link.send(Here(os.getpid()))

    def run(self) -> None:
        while True:
            sum(range(1000))


class Ends:
    """Ends at once."""

    def __init__(self, link: ChildLink) -> None: ...

    def run(self) -> None:
        time.sleep(0.01)
