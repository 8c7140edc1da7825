"""What supervisor and children say to one another: kinds of messages, and their numbers in order.

Arrays do not travel: they are where :mod:`fcl.drivers.processes.layout` says.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["OUTCOMES", "TASKS", "From", "To"]

#: Kinds of tasks, numbered for messages.
TASKS = (
    *("prepare", "measure", "margins", "search", "accept", "residuals", "price", "certify"),
    *("draw", "sample", "columns", "validate", "score"),
)
#: Outcomes of a search, numbered for messages.
OUTCOMES = ("", "accepted", "rejected", "blend")


class To(IntEnum):
    """To a child. Orders of the trainer have their number as the first integer.

    SETUP        all that only the rows could tell is planned: read the configuration again
    TASK         kind, start, stop, serial, extent, count, argument; numbers
    ANCHOR       order, version taken, margins, active, parity; target, violation, sums of r and q,
                 decrease, intercept, beta, columns to wait for
    RESTORE      as ANCHOR, and: slots, extents; which are in the lists of those held and restored
    COMMIT       order, extent, count, parity
    LEND         order, extent
    MAKE_ROOM    order, extents wanted, columns that are to leave
    DROP_ALL     order
    REJECTED     order, version
    TAKEN        version: the slot of the proposal is free
    """

    SETUP = 0
    TASK = 1
    ANCHOR = 2
    RESTORE = 3
    COMMIT = 4
    LEND = 5
    MAKE_ROOM = 6
    DROP_ALL = 7
    REJECTED = 8
    TAKEN = 9


class From(IntEnum):
    """From a child.

    READY
    DONE         serial, stored, outcome, count; numbers of the result
    PUBLISHED    version, active, worth, last word; violation, intercept, decrease
    IDLE         order
    ANCHOR_TAKEN order
    FREED        order, spare, count, which of the two lists of freed extents
    COMPILING    the cache lacks kernels
    """

    READY = 0
    DONE = 1
    PUBLISHED = 2
    IDLE = 3
    ANCHOR_TAKEN = 4
    FREED = 5
    COMPILING = 6
