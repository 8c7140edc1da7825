"""Patterns that overlap and agree, merged into motifs.

A site has many patterns: ``TT.AG at -3`` and ``T.CAG at -3`` both find TTTTCAG. To a reader they are one
motif. The strongest pattern begins a motif; a pattern joins the first motif whose first pattern it
overlaps without a contradiction, with the same sign, and with at least half of the letters in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fcl.features.motif import Motif
from fcl.types import Floats

_COMPLEMENT = str.maketrans("ACGT", "TGCA")
LETTERS = "ACGT"


@dataclass(frozen=True)
class WeightedMotif:
    """A pattern with its weight, and its share of the score."""

    index: int  #: among the features of the model
    motif: Motif
    weight: float
    share: float


@dataclass(frozen=True)
class _AlignedPattern:
    """A pattern at an offset from the beginning of the first pattern of its motif."""

    member: WeightedMotif
    offset: int
    pattern: str


@dataclass(frozen=True)
class MergedMotif:
    """Patterns that say the same, aligned."""

    members: Sequence[WeightedMotif]  #: the strongest one first
    #: position in the window of the first letter of ``heights``; None for patterns anywhere
    start: int | None
    #: (length, 4), sum over the patterns of |share of the score|, divided equally among the fixed letters
    heights: Floats

    @property
    def share(self) -> float:
        """Share of the score."""
        return sum(member.share for member in self.members)

    @property
    def raises(self) -> bool:
        """Whether the motif raises the margin."""
        return self.members[0].weight > 0.0

    @property
    def consensus(self) -> str:
        """The highest letter of each position, in lower case where others are nearly as high."""
        out = []
        for heights in self.heights:
            total = heights.sum()
            letter = LETTERS[int(np.argmax(heights))]
            weak = total < 0.1 * self.heights.sum(axis=1).max()
            clear = heights.max() > 0.6 * total
            out.append("." if weak else letter if clear else letter.lower())
        return "".join(out).strip(".") or "."

    @property
    def position(self) -> int | None:
        """Position of the first letter of ``consensus`` relative to the origin of the window."""
        if self.start is None:
            return None
        weak = self.heights.sum(axis=1) < 0.1 * self.heights.sum(axis=1).max()
        return self.start + int(np.argmin(weak)) - self.members[0].motif.origin


def merged_motifs(members: Iterable[WeightedMotif]) -> list[MergedMotif]:
    """Merge patterns into motifs, by decreasing share of the score."""
    ordered = sorted(members, key=lambda m: -abs(m.share))
    groups: list[list[_AlignedPattern]] = []
    for member in ordered:
        for group in groups:
            placed = _aligned(group[0].member, member)
            if placed is not None:
                group.append(placed)
                break
        else:
            groups.append([_AlignedPattern(member, 0, member.motif.pattern)])
    merged = [_merge(group) for group in groups]
    return sorted(merged, key=lambda motif: -motif.share)


def _aligned(first: WeightedMotif, other: WeightedMotif) -> _AlignedPattern | None:
    """A pattern beside the first one of a motif; None if it does not belong to the motif."""
    if (first.weight > 0.0) != (other.weight > 0.0):
        return None
    own, pattern = first.motif, other.motif.pattern
    if (own.start is None) != (other.motif.start is None):
        return None
    if own.start is not None and other.motif.start is not None:
        offset = other.motif.start - own.start
        fits = _agreement(own.pattern, pattern, offset) >= 0.5
        return _AlignedPattern(other, offset, pattern) if fits else None
    ways = [pattern]
    if other.motif.both_strands:
        ways.append(pattern[::-1].translate(_COMPLEMENT))
    places = [
        (_agreement(own.pattern, way, offset), -abs(offset), offset, way)
        for way in ways
        for offset in range(1 - len(way), len(own.pattern))
    ]
    best = max(places)
    return _AlignedPattern(other, best[2], best[3]) if best[0] >= 0.5 else None


def _agreement(first: str, other: str, offset: int) -> float:
    """The share of the letters of the shorter pattern that both have; 0 if one letter differs.

    A single letter anywhere would agree with every motif that has it: at least two letters must agree,
    unless a pattern has only one.
    """
    equal = 0
    for i, letter in enumerate(other):
        at = i + offset
        if letter == "." or not 0 <= at < len(first) or first[at] == ".":
            continue
        if letter != first[at]:
            return 0.0
        equal += 1
    fixed = min(sum(letter != "." for letter in pattern) for pattern in (first, other))
    return equal / fixed if equal >= min(2, fixed) else 0.0


def _merge(group: Sequence[_AlignedPattern]) -> MergedMotif:
    first = min(placed.offset for placed in group)
    length = max(placed.offset + len(placed.pattern) for placed in group) - first
    heights = np.zeros((length, 4))
    for placed in group:
        fixed = [(i, letter) for i, letter in enumerate(placed.pattern) if letter != "."]
        for i, letter in fixed:
            height = abs(placed.member.share) / len(fixed)
            heights[placed.offset - first + i, LETTERS.index(letter)] += height
    start = group[0].member.motif.start
    return MergedMotif(
        [placed.member for placed in group], None if start is None else start + first, heights
    )
