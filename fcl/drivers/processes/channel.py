"""Messages between the supervisor and a child: frames of bytes, and the supervisor's end of the socket.

A message is a frozen dataclass that is pickled; both ends trust each other, since the supervisor starts
its children. A frame is the length of the pickled message, whether it is urgent, and the message.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import struct
from collections import deque
from typing import Any

#: Most messages that may wait for a child; only a bug of fcl can queue more.
MAX_QUEUED = 1024
READ = 1 << 16
_HEADER = struct.Struct("=Q?")


def pack(message: Any) -> bytes:
    """Encode a message as a frame. It is urgent if its class says so."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(len(data), getattr(message, "urgent", False)) + data


class Frames:
    """Cuts a stream of bytes into pickled messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[tuple[bool, bytes]]:
        """Add bytes of the stream; return the messages that are complete, and whether each is urgent."""
        rest, found, start = self._rest, [], _HEADER.size
        rest += data
        while len(rest) >= start:
            size, urgent = _HEADER.unpack_from(rest)
            if len(rest) < start + size:
                break
            found.append((urgent, bytes(rest[start : start + size])))
            del rest[: start + size]
        return found


class Channel:
    """The supervisor's end of a socket pair; calls never block, nor fail if the child is gone.

    Messages that a child does not receive, because it is stopped for instance, wait in a bounded queue.

    closed : whether the child is gone (end of stream, or a message could not be sent), or :meth:`close`
        was called. Receive before closing: the last messages of the child may still be there.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._queue: deque[memoryview] = deque()
        self._frames = Frames()
        self.closed = False

    def fileno(self) -> int:
        """The descriptor, for selectors; -1 after :meth:`close`."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether messages are queued until the socket is writable."""
        return bool(self._queue)

    def send(self, message: Any) -> None:
        """Send a message, or queue it; nothing happens if the child is gone.

        Raises RuntimeError if MAX_QUEUED messages are queued already.
        """
        if self.closed:
            return
        if len(self._queue) >= MAX_QUEUED:
            raise RuntimeError(
                f"bug in fcl: expected at most {MAX_QUEUED} messages to wait for a child, got "
                f"one more ({type(message).__name__}); please report it"
            )
        self._queue.append(memoryview(pack(message)))
        if len(self._queue) == 1:
            self.flush()

    def flush(self) -> None:
        """Send as much of the queue as the socket takes."""
        while self._queue and not self.closed:
            frame = self._queue[0]
            try:
                sent = self._socket.send(frame)
            except BlockingIOError:
                return
            except OSError:  # EPIPE, ECONNRESET: the child is gone
                self._end()
                return
            if sent == len(frame):
                self._queue.popleft()
            else:
                self._queue[0] = frame[sent:]

    def receive(self) -> list[Any]:
        """All messages that have arrived; sets `closed` at the end of the stream."""
        messages: list[Any] = []
        while self._socket.fileno() >= 0:
            try:
                data = self._socket.recv(READ)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._end()
                break
            messages += [pickle.loads(frame) for _, frame in self._frames.feed(data)]
        return messages

    def _end(self) -> None:
        self.closed = True
        self._queue.clear()

    def close(self) -> None:
        """Close the socket; the child sees the end of its stream, and exits."""
        self._end()
        with contextlib.suppress(OSError):
            self._socket.close()
