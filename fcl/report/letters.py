"""Contributions of patterns, divided among the letters of a window.

A pattern's contribution is divided equally among its fixed letters; if it occurs several times, first
equally among its occurrences. The sum over the letters is the sum of the patterns' contributions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fcl.features.motif import Motif

_LETTERS = np.frombuffer(b"ACGTN", np.uint8)
_COMPLEMENT = str.maketrans("ACGT", "TGCA")


def window_text(codes: npt.NDArray[np.uint8]) -> str:
    """The letters of a window of codes 0-4, with N for unknown letters."""
    return _LETTERS[codes].tobytes().decode("ascii")


def occurrences(motif: Motif, text: str) -> list[tuple[int, str]]:
    """Where a pattern occurs in a window: the position and the pattern, or its reverse complement."""
    patterns = [motif.pattern]
    if motif.both_strands:
        patterns.append(motif.pattern[::-1].translate(_COMPLEMENT))
    if motif.start is not None:
        return [(motif.start, motif.pattern)]
    return [
        (match.start(), pattern)
        for pattern in dict.fromkeys(patterns)
        for match in re.finditer(f"(?={pattern})", text)
    ]


def letter_contributions(
    text: str, contributions: Iterable[tuple[Motif, float]]
) -> npt.NDArray[np.float64]:
    """What patterns that occur in a window add to its margin, by letter: float64 (len(text),)."""
    out = np.zeros(len(text))
    for motif, value in contributions:
        places = occurrences(motif, text)
        for start, pattern in places:
            fixed = [start + i for i, letter in enumerate(pattern) if letter != "."]
            out[fixed] += value / (len(fixed) * len(places))
    return out
