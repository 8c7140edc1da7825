"""Signals while a command runs; the library itself installs no handlers."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from fcl.cli.common import Interrupted, messages

#: `timeout` and Ctrl-C on a pipeline may deliver one signal twice, microseconds apart: a signal within
#: this many seconds of the first one counts as the same request
SAME_REQUEST = 0.25

#: Seconds after which a signal is repeated that was swallowed.
REPEAT_AFTER = 0.02

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Stop:
    """Requests made by signals: to stop, or to save a checkpoint now.

    Until `listening` is set, SIGINT, SIGTERM and SIGHUP end the command at once (`Interrupted`).
    Afterwards the first of them only sets `signum`, which the trainer polls between steps; a second
    SIGINT or SIGTERM exits without saving. SIGUSR1 never ends the command; if `checkpoints` is not set,
    it only prints that no checkpoints are kept.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.interrupted = False  #: whether a signal has ended the command at once
        self.listening = False
        self.checkpoints = False
        self._first = 0.0
        self._checkpoint_asked = False

    def requested(self) -> bool:
        """Whether a signal requested a stop; passed to the trainer as ``should_stop``."""
        return self.signum is not None

    def take_checkpoint_request(self) -> bool:
        """Whether a checkpoint was requested since the last call; passed as ``should_checkpoint``."""
        # the checkpoint about to be saved also answers a signal between these two lines
        asked = self._checkpoint_asked
        self._checkpoint_asked = False
        return asked

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if signum == signal.SIGUSR1:
            self._checkpoint_asked = self.checkpoints
            words = "a checkpoint will be saved" if self.checkpoints else "no checkpoints are kept"
            _write(f"\n{messages.command}: SIGUSR1: {words}\n")
            return
        now = time.monotonic()
        if self.signum is None:
            self.signum, self._first = signum, now
            if not self.listening:
                self.interrupted = True
                raise Interrupted(signum)
            # not print: the handler may have interrupted a write to the same stream
            name = signal.Signals(signum).name
            _write(
                f"\n{messages.command}: {name}: stopping after this step and saving the model; send "
                "the signal again to quit immediately\n"
            )
        # not for SIGHUP, which the kernel or the shell sends, not a user who wants to quit at once
        elif now - self._first > SAME_REQUEST and signum != signal.SIGHUP:
            self.quit(signum)

    def swallowed(self, unraisable: sys.UnraisableHookArgs) -> bool:
        """Repeat a signal whose `Interrupted` a library swallowed, as callbacks from C do.

        Returns whether it was one.
        """
        error = unraisable.exc_value
        if not isinstance(error, Interrupted):
            return False
        # soon, since the callback, or the hook that calls this, would swallow it once more
        self.signum, self.interrupted = None, False
        timer = threading.Timer(REPEAT_AFTER, os.kill, (os.getpid(), error.signum))
        timer.daemon = True
        timer.start()
        return True

    @staticmethod
    def quit(signum: int) -> None:
        """End the process now, without unwinding, which could wait for threads in long steps."""
        from fcl.files.atomic import discard_temporaries

        discard_temporaries()
        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
        _write(f"{show_cursor}\n{messages.command}: quitting immediately\n")
        os._exit(128 + signum)


def _write(text: str) -> None:
    with suppress(OSError):  # stderr may be gone; stopping matters more
        os.write(2, text.encode())


class _Process:
    ends_with_command = False


def process_ends_with_command() -> None:
    """Declare that this process exits after the command, and so ignores signals after it.

    Otherwise a signal between the command and the functions of ``atexit`` could change the exit code.
    """
    _Process.ends_with_command = True


def _ignore_signals() -> None:
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)


def _handled() -> list[signal.Signals]:
    """The signals to handle: not SIGHUP if it is ignored, as under ``nohup``."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signum for signum in SIGNALS if not (ignored and signum is signal.SIGHUP)]


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Handle signals in the block; afterwards restore the earlier handlers, or ignore signals.

    See :func:`process_ends_with_command`.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread can set signal handlers
        return
    # when the interpreter shuts down, which takes a while, all output is written: a signal must not
    # change the exit code
    atexit.unregister(_ignore_signals)
    atexit.register(_ignore_signals)
    before = {signum: signal.signal(signum, stop.handle) for signum in _handled()}
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: stop.swallowed(unraisable) or hook(unraisable)
    try:
        yield stop
    except Exception:
        if stop.interrupted and stop.signum is not None:
            # a library that was being loaded replaced Interrupted by another error
            raise Interrupted(stop.signum) from None
        raise
    finally:
        sys.unraisablehook = hook
        if _Process.ends_with_command:
            _ignore_signals()
        else:
            for signum, handler in before.items():
                signal.signal(signum, handler)
