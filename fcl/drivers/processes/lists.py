"""Numbers of each feature of a point, or of each cached column, that processes share.

Some of the numbers are there for each output, in a second axis.
"""

from __future__ import annotations

from fcl.arrays import Arrays, Shape, of_outputs

#: Points that the supervisor keeps, or that are on their way in messages: the anchor, the point that a
#: pass tries, the point that a search found, the point being validated, the trainer's proposal, its copy.
POINTS = 6
#: Numbers of a feature in the list of columns to be made, without and with an axis of outputs.
WANTED = 4, 3


def unshared_bytes(n_outputs: int) -> int:
    """Bytes of a feature in all points, and in the list of columns to be made."""
    return 8 * (POINTS * (1 + n_outputs) + WANTED[0] + WANTED[1] * n_outputs)


def _each(n: int, n_outputs: int) -> Shape:
    return (n, *of_outputs(n_outputs))


def watched_lists(n: int, n_outputs: int) -> Arrays:
    """Watched features, which are cached, frozen or recalled, with their prices."""
    return Arrays(("i8", n, "watch_ids"), ("f8", _each(n, n_outputs), "watched watched_curvatures"))


def slot_lists(n: int, n_outputs: int) -> Arrays:
    """Prices at the anchors of even and odd passes and weights by slot, and the columns that are held."""
    numbers = _each(n, n_outputs)
    prices = ("f8", (2, *numbers), "slot_gradients slot_curvatures")
    return Arrays(prices, ("f8", numbers, "slot_weights"), ("i8", n, "held"))
