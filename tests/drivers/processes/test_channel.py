"""Messages: frames of a stream, and the supervisor's end, which never blocks."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.drivers.processes.channel import MAX_QUEUED, Channel, Frames, pack
from fcl.drivers.processes.logic.protocol import (
    TASKS,
    Assign,
    DropAll,
    Freed,
    Lend,
    Published,
    Raised,
    TaskDone,
    WriterTask,
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


def received(frames: Frames, data: bytes) -> list[Any]:
    return [pickle.loads(message) for _, message in frames.feed(data)]


def read(theirs: socket.socket, n: int) -> list[Any]:
    frames, messages = Frames(), []
    while len(messages) < n and (data := theirs.recv(1 << 16)):
        messages += received(frames, data)
    return messages


@pytest.mark.slow
@given(
    st.lists(
        st.builds(Published, INT64, st.booleans(), decrease=st.floats(allow_nan=False))
        | st.builds(Freed, st.lists(INT64).map(tuple), INT64, INT64)
        | st.builds(Raised, st.text(), st.text(), st.text(), st.text(), st.booleans())
        | st.builds(TaskDone, INT64, st.floats(allow_nan=False), st.none() | INT64)
        | st.builds(
            Assign,
            st.builds(WriterTask, st.sampled_from(TASKS), INT64, INT64, INT64, INT64),
            st.just({"n_slots": 3, "short": True}),
        ),
        max_size=4,
    ),
    st.lists(st.integers(1, 300)),
)
def test_messages_survive_any_cut_of_the_stream(messages: list[Any], cuts: list[int]) -> None:
    stream = b"".join(map(pack, messages))
    frames, found = Frames(), []
    for cut in [*cuts, len(stream)]:
        found += received(frames, stream[:cut])
        stream = stream[cut:]
    assert found == messages
    assert list(map(repr, found)) == list(map(repr, messages))  # enumerations and tuples, too


def test_orders_that_others_wait_for_are_urgent() -> None:
    frames = Frames().feed(pack(DropAll(1)) + pack(Lend(2, 0)) + pack(TaskDone(3, 0.0)))
    assert [urgent for urgent, _ in frames] == [True, False, False]


def test_both_ways(pair: Pair) -> None:
    channel, theirs = pair
    assert channel.receive() == []
    channel.send(DropAll(5))
    assert read(theirs, 1) == [DropAll(5)]
    theirs.sendall(pack(DropAll(2)) + pack(DropAll(3)) + b"torn")
    assert channel.receive() == [DropAll(2), DropAll(3)]
    assert not channel.closed and not channel.wants_write


def test_a_child_that_does_not_read_blocks_nobody(pair: Pair) -> None:
    channel, theirs = pair
    start, sent = time.monotonic(), 0
    while len(channel._queue) < MAX_QUEUED:
        channel.send(DropAll(sent))
        sent += 1
    with pytest.raises(RuntimeError, match="at most 1024 messages"):
        channel.send(DropAll(sent))
    assert time.monotonic() - start < 5
    assert channel.wants_write and not channel.closed
    # it wakes up: everything arrives once, in order
    found: list[Any] = []
    frames = Frames()
    while len(found) < sent:
        found += received(frames, theirs.recv(1000))
        channel.flush()
    assert [drop.order for drop in found] == list(range(sent))
    assert not channel.wants_write


def test_what_a_child_sent_before_its_end_is_received(pair: Pair) -> None:
    channel, theirs = pair
    channel.send(DropAll(1))  # unread: Linux then says ECONNRESET instead of an end
    theirs.sendall(pack(DropAll(7)) + b"torn")
    theirs.close()
    channel.send(DropAll(2))  # EPIPE
    assert channel.closed and not channel.wants_write
    assert channel.receive() == [DropAll(7)]
    assert channel.receive() == [] and channel.closed
    channel.send(DropAll(3))
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
    channel.send(DropAll(1))
    assert channel.receive() == []
    assert theirs.recv(1) == b""
