"""The line to a child that is kept: jobs go down with their descriptors, a byte comes up after each.

A job has a channel of its own (:mod:`fcl.drivers.processes.channel`); the line is silent meanwhile.
"""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass

from fcl.drivers.processes.shared import above_stdio

__all__ = ["FREE", "Job", "receive_job", "send_job"]

#: What a child says when it has dropped all of a job.
FREE = b"."
#: Descriptors in one message; the kernel takes 253.
MOST_FDS = 200
_HEADER = struct.Struct("=qq")


@dataclass(frozen=True)
class Job:
    """What a child is to do, and the descriptors for it: "socket", and the segments by name."""

    role: str
    number: int
    incarnation: int
    index: int
    fds: dict[str, int]


def send_job(line: socket.socket, job: Job) -> None:
    """Send a job; the descriptors remain ours too. Raises OSError if the child is gone."""
    text = json.dumps([job.role, job.number, job.incarnation, job.index, list(job.fds)]).encode()
    line.sendall(_HEADER.pack(len(text), len(job.fds)) + text)
    fds = list(job.fds.values())
    for at in range(0, len(fds), MOST_FDS):
        socket.send_fds(line, [FREE], fds[at : at + MOST_FDS])


def receive_job(line: socket.socket) -> Job:
    """The next job. Raises OSError at the end of the line, or without room for its descriptors."""
    length, n_fds = _HEADER.unpack(_exactly(line, _HEADER.size))
    role, number, incarnation, index, names = json.loads(_exactly(line, length))
    received: list[int] = []
    while len(received) < n_fds:
        data, fds, flags, _ = socket.recv_fds(line, len(FREE), MOST_FDS)
        if not data or flags & socket.MSG_CTRUNC:
            raise OSError(f"expected {n_fds} descriptors, got {len(received) + len(fds)}")
        received += map(above_stdio, fds)
    return Job(role, number, incarnation, index, dict(zip(names, received, strict=True)))


def _exactly(line: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = line.recv(n - len(data))
        if not more:
            raise OSError("the line has ended")
        data += more
    return data
