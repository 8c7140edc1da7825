"""Entry point of a child: the file that the supervisor runs in a fresh interpreter.

The terminal, systemd, ``timeout`` and SLURM signal all processes of a job, but only the supervisor
should react: children ignore those signals, and exit at once when the supervisor is gone.
"""
# ruff: noqa: E402  (nothing is imported before the signals are ignored)

import os
import signal
import sys

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

if __name__ == "__main__":
    # before anything else: the supervisor has blocked these signals for us until now
    for _signal in IGNORED:
        signal.signal(_signal, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    if "FCL_CHILD_PATH" in os.environ:
        import json

        # not PYTHONPATH: a process that the child starts may be another Python
        sys.path[:] = json.loads(os.environ.pop("FCL_CHILD_PATH"))
        _modules = json.loads(os.environ.pop("FCL_CHILD_MODULES", "{}"))
        if _modules:
            from fcl.working_folder import protect

            protect(**_modules)
    if "FCL_CHILD_TEMPORARY" in os.environ:
        import tempfile

        # else Python tests the folder with a file, which a child killed at that moment would leave behind
        tempfile.tempdir = os.environ.pop("FCL_CHILD_TEMPORARY")
    import logging

    # the supervisor has said where compiled kernels are kept
    logging.getLogger("fcl.kernels.compilation").disabled = True
    # import it by name, so that there is only one class Link, not another in __main__; does not return
    from importlib import import_module

    import_module("fcl.drivers.processes.child").main(sys.argv[1:])

import contextlib
import ctypes
import faulthandler
import json
import pickle
import queue
import socket
import threading
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from fcl.drivers.processes import faults
from fcl.drivers.processes.channel import READ, Frames, pack
from fcl.drivers.processes.logic.protocol import Raised
from fcl.drivers.processes.shared import Segment
from fcl.errors import InputError, StoreError

#: Seconds between two heartbeats.
BEAT = 0.5
#: Most characters of an exception's text and traceback that are reported.
MAX_TEXT, MAX_TRACEBACK = 8_000, 60_000
#: Role -> "module:Class" that runs it by ``Class(link).run()``. Any other "module:Class" is a role too.
ROLES = {
    "writer": "fcl.drivers.processes.writer:Writer",
    "trainer": "fcl.drivers.processes.trainer:TrainerProcess",
}
_PR_SET_PDEATHSIG = 1


class ChildLink:
    """A child's connection to its supervisor.

    index : position of the child's heartbeat in the segment ``control``.
    doing : what the child is doing, set by its role; reported if it raises.
    """

    def __init__(
        self, role: str, number: int, incarnation: int, index: int, fds: dict[str, int]
    ) -> None:
        self.role = role
        self.number = number
        self.incarnation = incarnation
        self.index = index
        self.doing = ""
        self._waiting = 0  # urgent messages that the role has not received yet
        self._segments = {
            name: Segment.of_fd(name, fd) for name, fd in fds.items() if name != "socket"
        }
        self._socket = socket.socket(fileno=fds["socket"])
        self._socket.set_inheritable(False)
        self._received: queue.SimpleQueue[tuple[bool, bytes]] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._counting = threading.Lock()
        threading.Thread(target=self._watch, name="fcl-watch", daemon=True).start()

    def receive(self) -> Any:
        """Wait for the next message, and return it."""
        urgent, message = self._received.get()
        with self._counting:
            self._waiting -= urgent
        return pickle.loads(message)

    def hurry(self) -> bool:
        """Whether an urgent message has arrived, for which long work should be cut short."""
        return self._waiting > 0

    def pending(self) -> bool:
        """Whether a message has arrived."""
        return not self._received.empty()

    def send(self, message: Any) -> None:
        """Send a message, from any thread; blocks while the supervisor does not read."""
        try:
            with self._sending:
                self._socket.sendall(pack(message))
        except OSError:  # the supervisor is gone
            os._exit(0)

    def segment(self, name: str) -> Segment:
        """The segment that the supervisor passed under this name."""
        return self._segments[name]

    def report(self, error: BaseException) -> None:
        """Report an exception: the start of its text, and the end of its traceback."""
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        self.send(
            Raised(
                f"{self.role} {self.number} (pid {os.getpid()})",  # as `Child.name`
                f"{type(error).__module__}.{type(error).__qualname__}",
                text[:MAX_TEXT],
                "".join(traceback.format_exception(error))[-MAX_TRACEBACK:],
                isinstance(error, InputError | StoreError),
                self.doing,
            )
        )

    def beat(self, parent: int) -> None:
        """Start the heartbeat: a thread that increments our counter (int64) in ``control``.

        parent : process id of the supervisor. The thread ends this process once its parent is another
            process, since the socket shows no end while a process that the supervisor forked has it open.
        """
        threading.Thread(target=self._beat, args=(parent,), name="fcl-beat", daemon=True).start()

    def _watch(self) -> None:
        frames = Frames()
        while True:
            try:
                data = self._socket.recv(READ)
            except OSError:
                data = b""
            if not data:
                # at once, whatever the other threads do: nobody needs their results
                os._exit(0)
            for urgent, message in frames.feed(data):
                with self._counting:
                    self._waiting += urgent
                self._received.put((urgent, message))

    def _beat(self, parent: int) -> None:
        control, count = self._segments.get("control"), None
        while os.getppid() == parent:
            if count is None and control is not None and control.size >= 8 * (self.index + 1):
                count = control.array("i8", 1, 8 * self.index)
            if count is not None:
                count[0] += 1
            time.sleep(BEAT)
        os._exit(0)


def main(arguments: Sequence[str]) -> NoReturn:
    """Run a role, and end the process.

    arguments : role, number, incarnation, index, process id of the supervisor, and the inherited
        descriptors as JSON: "socket", and the segments by name.

    This skips the clean-up of the interpreter, in which a thread or a handler could block forever; the
    operating system releases everything that a child holds.
    """
    _die_with_parent()
    if sys.stderr is not None:
        faulthandler.enable()
    role, number, incarnation, index, parent, descriptors = arguments
    link = ChildLink(role, int(number), int(incarnation), int(index), json.loads(descriptors))
    link.beat(int(parent))
    code = 1
    try:
        faults.arm(link.role, link.number, link.incarnation)
        module, _, name = ROLES.get(role, role).partition(":")
        getattr(import_module(module), name)(link).run()
        code = 0
    except BaseException as error:
        link.report(error)
    finally:
        os._exit(code)


def _die_with_parent() -> None:
    """On Linux, let the kernel kill us, even if stopped, when the thread that started us ends."""
    with contextlib.suppress(OSError, AttributeError):  # macOS has no prctl
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
