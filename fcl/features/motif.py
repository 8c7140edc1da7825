"""The letters of a feature that matches a pattern in windows, as other programs read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Motif:
    """A pattern of letters, and where in the window it may occur.

    pattern : A, C, G, T, or ``.`` for any letter; neither the first nor the last is ``.``.
    start : 0-based position in the window of the first letter; None: anywhere.
    origin : position in the window that descriptions call 0.
    both_strands : whether the reverse complement of the pattern counts, too.
    """

    pattern: str
    start: int | None = None
    origin: int = 0
    both_strands: bool = False

    @property
    def position(self) -> int | None:
        """Position of the first letter relative to the origin, as descriptions give it."""
        return None if self.start is None else self.start - self.origin

    @property
    def strand(self) -> str:
        """``+``, or ``.`` if either strand may match."""
        return "." if self.both_strands else "+"
