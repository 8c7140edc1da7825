"""The supervisor's end of the stream socket to a child, which never blocks.

Messages that a stopped child does not take wait in a queue of bounded length.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Any

from fcl.drivers.processes.codec import Frames, pack

#: Messages that may wait for a child; more are in flight only by a fault of ours.
MAX_QUEUED = 1024
_READ = 1 << 16


class Channel:
    """The supervisor's end of a socket pair; no call of it blocks or fails if the child is gone.

    closed : the child is gone (end of stream, or a message could not be sent) or :meth:`close` was
        called. What the child sent before can still be received, so do that first.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._queue: deque[bytes] = deque()
        self._frames = Frames()
        self.closed = False

    def fileno(self) -> int:
        """The descriptor, for selectors; -1 after :meth:`close`."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether messages wait until the socket is writable."""
        return bool(self._queue)

    @property
    def queued(self) -> int:
        """Number of messages that wait."""
        return len(self._queue)

    def send(self, message: Any) -> None:
        """Send now, or queue. To a child that is gone: nothing.

        Raises RuntimeError if MAX_QUEUED messages wait already.
        """
        if self.closed:
            return
        if len(self._queue) >= MAX_QUEUED:
            raise RuntimeError(
                f"fault of fcl: expected at most {MAX_QUEUED} messages to wait for a child, got "
                f"one more ({type(message).__name__}); please report it"
            )
        self._queue.append(pack(message))
        if len(self._queue) == 1:
            self.flush()

    def flush(self) -> None:
        """Send what can be sent of the queue."""
        while self._queue and not self.closed:
            frame = self._queue[0]
            try:
                sent = self._socket.send(frame)
            except BlockingIOError:
                return
            except OSError:  # EPIPE, ECONNRESET: it is gone, which receive() will tell too
                self.closed = True
                break
            if sent == len(frame):
                self._queue.popleft()
            else:
                self._queue[0] = frame[sent:]
        if self.closed:
            self._queue.clear()

    def receive(self) -> list[Any]:
        """All messages that are there; sets `closed` at the end of the stream."""
        messages: list[Any] = []
        while self._socket.fileno() >= 0:
            try:
                data = self._socket.recv(_READ)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                self._queue.clear()
                break
            messages += self._frames.feed(data)
        return messages

    def close(self) -> None:
        """Close the socket: the child sees the end of its stream, and leaves."""
        self.closed = True
        self._queue.clear()
        with contextlib.suppress(OSError):
            self._socket.close()
