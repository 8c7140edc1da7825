"""Messages: fixed records, and a supervisor's end that never waits."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.drivers.processes.channel import (
    MAX_QUEUED,
    MAX_TEXT,
    RECORD_BYTES,
    Channel,
    Failure,
    Message,
    Records,
)

Pair = tuple[Channel, socket.socket]
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.settimeout(5.0)
    yield channel, theirs
    channel.close()
    theirs.close()


def read(theirs: socket.socket, n: int) -> list[Message]:
    records, messages = Records(), []
    while len(messages) < n and (data := theirs.recv(1 << 16)):
        messages += records.feed(data)
    return messages


@given(
    st.lists(
        st.tuples(
            INT64,
            st.lists(INT64, max_size=7),
            st.lists(st.floats(allow_nan=False), max_size=8),
        ),
        max_size=4,
    ),
    st.lists(st.integers(1, 300)),
)
def test_messages_survive_any_cut_of_the_stream(
    contents: list[tuple[int, list[int], list[float]]], cuts: list[int]
) -> None:
    messages = [Message.make(kind, *ints, floats=floats) for kind, ints, floats in contents]
    stream = b"".join(message.pack() for message in messages)
    assert len(stream) == RECORD_BYTES * len(messages)
    records, received = Records(), []
    for cut in [*cuts, len(stream)]:
        received += records.feed(stream[:cut])
        stream = stream[cut:]
    assert received == messages


def test_a_record_has_128_bytes_and_zeros_where_nothing_is_said() -> None:
    message = Message.make(3, 1, 2, floats=[0.5])
    assert message == (3, (1, 2, 0, 0, 0, 0, 0), (0.5, *[0.0] * 7))
    assert len(message.pack()) == RECORD_BYTES == 128
    with pytest.raises(ValueError, match="at most 7 integers and 8 floats, got 8 and 0"):
        Message.make(1, *range(8))


def test_both_ways(pair: Pair) -> None:
    channel, theirs = pair
    assert channel.receive() == []
    channel.send(Message.make(1, 5))
    assert read(theirs, 1) == [Message.make(1, 5)]
    theirs.sendall(Message.make(2).pack() + Message.make(3).pack() + b"torn")
    assert channel.receive() == [Message.make(2), Message.make(3)]
    assert not channel.closed and not channel.wants_write


def test_a_child_that_does_not_read_blocks_nobody(pair: Pair) -> None:
    channel, theirs = pair
    start, sent = time.monotonic(), 0
    while channel.queued < MAX_QUEUED:
        channel.send(Message.make(sent))
        sent += 1
    with pytest.raises(RuntimeError, match="at most 1024 messages"):
        channel.send(Message.make(sent))
    assert time.monotonic() - start < 5
    assert channel.wants_write and not channel.closed
    # it wakes up: everything arrives once, in order
    received: list[Message] = []
    records = Records()
    while len(received) < sent:
        received += records.feed(theirs.recv(1000))
        channel.flush()
    assert [message.kind for message in received] == list(range(sent))
    assert not channel.wants_write


def test_what_a_child_sent_before_its_end_is_received(pair: Pair) -> None:
    channel, theirs = pair
    channel.send(Message.make(1))  # unread: Linux then says ECONNRESET instead of an end
    theirs.sendall(Message.make(7).pack() + b"torn")
    theirs.close()
    channel.send(Message.make(2))  # EPIPE
    assert channel.closed and not channel.wants_write
    assert channel.receive() == [Message.make(7)]
    assert channel.receive() == [] and channel.closed
    channel.send(Message.make(3))
    channel.flush()


def test_end_of_stream(pair: Pair) -> None:
    channel, theirs = pair
    theirs.close()
    assert channel.receive() == [] and channel.closed


def test_a_closed_channel_is_quiet(pair: Pair) -> None:
    channel, theirs = pair
    channel.close()
    channel.close()
    assert channel.fileno() == -1 and channel.closed
    channel.send(Message.make(1))
    assert channel.receive() == []
    assert theirs.recv(1) == b""


@pytest.mark.parametrize("letter", ["x", "ü", "☃", "😀", "\udc80", '"'])
def test_the_text_of_an_exception_is_cut_to_its_room(letter: str) -> None:
    whole = Failure("builtins.ValueError", "short " + letter, "line\n" + letter)
    assert Failure.unpack(whole.pack()) == whole
    long = Failure("builtins.ValueError", letter * 10**5, f"begin{letter * 10**6}end")
    data = long.pack()
    assert len(data) <= MAX_TEXT
    kind, message, traceback = Failure.unpack(data)
    assert kind == "builtins.ValueError" and message and long.message.startswith(message)
    assert long.traceback.endswith(traceback)
