"""Arrays in shared memory with numbers for each feature of a point, or for each cached column.

Some of the numbers are there for each output, in a second axis.
"""

from __future__ import annotations

from fcl.arrays import Arrays, Shape, of_outputs

#: Places of points: the anchors of even and odd passes, the point that a pass tries, the point that a
#: search found, the point being validated, and the trainer's proposal (its mailbox).
POINTS = ("anchor0", "anchor1", "proposed", "found", "validated", "mailbox")


def each(n: int, n_outputs: int) -> Shape:
    """Shape of numbers for each of n features."""
    return (n, *of_outputs(n_outputs))


def point_lists(n: int, n_outputs: int) -> Arrays:
    """Points, and the features whose columns are to be made."""
    numbers = each(n, n_outputs)
    return Arrays(
        ("i8", n, " ".join(f"{name}_ids" for name in POINTS)),
        ("f8", numbers, " ".join(f"{name}_weights" for name in POINTS)),
        ("i8", n, "job_ids job_slots job_order"),
        ("f8", n, "job_violations"),
        ("f8", numbers, "job_gradients job_curvatures job_weights"),
    )


def watched_lists(n: int, n_outputs: int) -> Arrays:
    """Watched features, which are cached, frozen or recalled, with their prices."""
    return Arrays(("i8", n, "watch_ids"), ("f8", each(n, n_outputs), "watched watched_curvatures"))


def slot_lists(n: int, n_outputs: int) -> Arrays:
    """Prices at the anchors of even and odd passes and weights by slot, and the columns that are held."""
    numbers = each(n, n_outputs)
    prices = ("f8", (2, *numbers), "slot_gradients slot_curvatures")
    return Arrays(prices, ("f8", numbers, "slot_weights"), ("i8", n, "held"))
