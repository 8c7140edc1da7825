"""Reading of files and pipes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from fcl.convert import files


def test_a_signal_just_before_a_read_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread gets the signal, so that it does not interrupt the read of this one."""
    reading, writing = os.pipe()
    begun, stopped = threading.Event(), threading.Event()
    ended: list[str] = []

    class Stopped(Exception):
        pass

    def stop(signum: int, frame: object) -> None:
        raise Stopped

    def send() -> None:
        begun.wait()
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        if not stopped.wait(2.0):
            ended.append("by the end of the pipe")
        os.close(writing)

    monkeypatch.setattr("sys.stdin", os.fdopen(reading))
    before = signal.signal(signal.SIGUSR1, stop)
    thread = threading.Thread(target=send)
    thread.start()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        begun.set()
        with pytest.raises(Stopped):
            files._Counted(None).readinto(bytearray(10))
        assert not ended
    finally:
        stopped.set()
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGUSR1, before)
        sys.stdin.close()
