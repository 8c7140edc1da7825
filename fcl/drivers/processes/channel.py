"""Messages between the supervisor and a child: records of 128 bytes over a stream socket.

The supervisor's end never blocks: what a stopped child does not take waits in a queue of bounded
length. Arrays do not travel; a message says where in shared memory they are.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

#: Messages that may wait for a child; more are in flight only by a fault of ours.
MAX_QUEUED = 1024
#: Kind of the message a child sends when its role raised an exception; roles use kinds >= 0.
#: Its ints: length of the text, whether it is an InputError, then up to five of ``Link.task``.
RAISED = -1
#: Bytes a child has in the segment ``texts``, and how many of them it uses.
TEXT_BYTES = 1 << 16
MAX_TEXT = 60_000

N_INTS, N_FLOATS = 7, 8
_RECORD = struct.Struct("=q7q8d")
RECORD_BYTES = _RECORD.size
_READ = 1 << 16


class Message(NamedTuple):
    """A kind, and numbers whose meaning depends on it."""

    kind: int
    ints: tuple[int, ...] = (0,) * N_INTS
    floats: tuple[float, ...] = (0.0,) * N_FLOATS

    @classmethod
    def make(cls, kind: int, *ints: int, floats: Iterable[float] = ()) -> Message:
        """A message with at most 7 integers and 8 floats; the rest is 0."""
        numbers = tuple(floats)
        if len(ints) > N_INTS or len(numbers) > N_FLOATS:
            raise ValueError(
                f"message of kind {kind}: expected at most {N_INTS} integers and {N_FLOATS} "
                f"floats, got {len(ints)} and {len(numbers)}"
            )
        return cls(
            kind,
            (*map(int, ints), *(0,) * (N_INTS - len(ints))),
            (*map(float, numbers), *(0.0,) * (N_FLOATS - len(numbers))),
        )

    def pack(self) -> bytes:
        """The record, RECORD_BYTES long."""
        return _RECORD.pack(self.kind, *self.ints, *self.floats)

    @classmethod
    def unpack(cls, record: bytes) -> Message:
        """The message of a record."""
        kind, *rest = _RECORD.unpack(record)
        return cls(kind, tuple(rest[:N_INTS]), tuple(rest[N_INTS:]))


class Records:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Messages completed by these bytes."""
        data = self._rest + data
        whole = len(data) - len(data) % RECORD_BYTES
        self._rest = data[whole:]
        return [
            Message.unpack(data[at : at + RECORD_BYTES]) for at in range(0, whole, RECORD_BYTES)
        ]


class Channel:
    """The supervisor's end of a socket pair; no call of it blocks or fails if the child is gone.

    closed : the child is gone (end of stream, or a message could not be sent) or :meth:`close` was
        called. What the child sent before can still be received, so do that first.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._queue: deque[bytes] = deque()
        self._records = Records()
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

    def send(self, message: Message) -> None:
        """Send now, or queue. To a child that is gone: nothing.

        Raises RuntimeError if MAX_QUEUED messages wait already.
        """
        if self.closed:
            return
        if len(self._queue) >= MAX_QUEUED:
            raise RuntimeError(
                f"fault of fcl: expected at most {MAX_QUEUED} messages to wait for a child, got "
                f"one more (of kind {message.kind}); please report it"
            )
        self._queue.append(message.pack())
        if len(self._queue) == 1:
            self.flush()

    def flush(self) -> None:
        """Send what can be sent of the queue."""
        while self._queue and not self.closed:
            record = self._queue[0]
            try:
                sent = self._socket.send(record)
            except BlockingIOError:
                return
            except OSError:  # EPIPE, ECONNRESET: it is gone, which receive() will tell too
                self.closed = True
                break
            if sent == len(record):
                self._queue.popleft()
            else:
                self._queue[0] = record[sent:]
        if self.closed:
            self._queue.clear()

    def receive(self) -> list[Message]:
        """All messages that are there; sets `closed` at the end of the stream."""
        messages: list[Message] = []
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
            messages += self._records.feed(data)
        return messages

    def close(self) -> None:
        """Close the socket: the child sees the end of its stream, and leaves."""
        self.closed = True
        self._queue.clear()
        with contextlib.suppress(OSError):
            self._socket.close()


class Failure(NamedTuple):
    """An exception of a child, as it travels: in the segment ``texts``."""

    type: str  #: qualified name, as "fcl.errors.InputError"
    message: str  #: with its notes
    traceback: str

    def pack(self) -> bytes:
        """At most MAX_TEXT bytes; of a long traceback the end is kept, of a message the beginning."""
        message, traceback = self.message[: MAX_TEXT // 8], self.traceback[-MAX_TEXT:]
        while True:
            data = json.dumps([self.type[:1000], message, traceback]).encode("ascii")
            if len(data) <= MAX_TEXT:
                return data
            # a character is at most twelve bytes of JSON
            traceback = traceback[(len(data) - MAX_TEXT) // 12 + 1 :]
            if not traceback:
                message = message[: len(message) // 2]

    @classmethod
    def unpack(cls, data: bytes) -> Failure:
        """The exception of a text."""
        kind, message, traceback = json.loads(data)
        return cls(kind, message, traceback)
