"""The explicit matrix of k-mers anywhere in the window, from regular expressions on the letters."""

from __future__ import annotations

import itertools
import re
from functools import cache

import numpy as np

from fcl.features import BagFamily

COMPLEMENT = str.maketrans("ACGT", "TGCA")


def reverse(pattern: str) -> str:
    """The pattern as read on the other strand, without wildcards at its ends."""
    return pattern.translate(COMPLEMENT)[::-1].strip(".")


@cache
def patterns(d: int, both: bool, wildcards: bool) -> tuple[tuple[str, ...], ...]:
    """The patterns of each feature, without trailing wildcards, in the order of ids."""
    digits = "ACGT." if wildcards else "ACGT"
    order = {letter: n for n, letter in enumerate("ACGT.")}

    def code(pattern: str) -> list[int]:
        return [order[letter] for letter in pattern.ljust(d, ".")]

    found: list[tuple[str, ...]] = []
    for first, *rest in itertools.product("ACGT", *[digits] * (d - 1)):
        pattern = (first + "".join(rest)).rstrip(".")
        other = reverse(pattern)
        if not both or pattern == other:
            found.append((pattern,))
        elif code(pattern) < code(other):
            found.append((pattern, other))
    return tuple(found)


def occurrences(pattern: str, text: str) -> int:
    """The number of places where the pattern occurs in a text, with overlaps; N matches only ``.``."""
    known = "".join("[ACGTN]" if letter == "." else letter for letter in pattern)
    return len(re.findall(f"(?={known})", text))


def matrix(family: BagFamily, codes: np.ndarray) -> np.ndarray:
    """The explicit features, float64 (n, p)."""
    texts = ["".join("ACGTN"[c] for c in row) for row in codes]
    features = features_of(family)
    rows = []
    for text in texts:
        counts = {p: occurrences(p, text) for p in set(itertools.chain(*features))}
        rows.append([sum(counts[p] for p in some) for some in features])
    phi = np.array(rows, np.float64).reshape(len(texts), len(features))
    return np.minimum(phi, 1.0) if family.binary else phi


def features_of(family: BagFamily) -> tuple[tuple[str, ...], ...]:
    return patterns(family.d, family.both, family.wildcards)
