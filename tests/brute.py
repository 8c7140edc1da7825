"""Patterns evaluated directly on the letters: slow, in float64, without any code of fcl.

Windows are codes (n, L): 0-3 = A C G T, 4 = unknown. A pattern is a string such as ``"TTT.AG.."`` whose
first letter is not a wildcard; an unknown letter in the data matches only ``.``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

LETTERS = "ACGT"
WILDCARD = "."


def column(codes: np.ndarray, pattern: str, position: int) -> np.ndarray:
    """The rows that match the pattern, bool (n,)."""
    hit = np.ones(len(codes), bool)
    for t, letter in enumerate(pattern):
        if letter != WILDCARD:
            hit &= codes[:, position + t] == LETTERS.index(letter)
    return hit


def patterns(d: int) -> Iterator[str]:
    """All patterns of d letters, the last one changing fastest: A, C, G, T, wildcard."""
    for letters in itertools.product(LETTERS, *[LETTERS + WILDCARD] * (d - 1)):
        yield "".join(letters)


def family(d: int, length: int) -> list[tuple[int, str]]:
    """(position, pattern) of every feature of windows of ``length`` letters, in the order of ids."""
    return [(k, p) for k in range(length - d + 1) for p in patterns(d)]


def matrix(codes: np.ndarray, d: int) -> np.ndarray:
    """The explicit feature matrix, bool (n, p), columns in the order of :func:`family`."""
    out = np.empty((len(codes), (codes.shape[1] - d + 1) * 4 * 5 ** (d - 1)), bool)
    for j, (position, pattern) in enumerate(family(d, codes.shape[1])):
        out[:, j] = column(codes, pattern, position)
    return out


def sums_by_pattern(codes: np.ndarray, values: np.ndarray, d: int) -> dict[tuple[int, str], float]:
    """For every feature that matches any row, the sum of the values of its rows.

    Each row yields its own patterns, with known letters kept or replaced by wildcards. Only patterns that
    occur are visited, so d = 12 is feasible; all other features have the sum 0.
    """
    sums: dict[tuple[int, str], float] = defaultdict(float)
    for window, value in zip(codes.tolist(), values.tolist(), strict=True):
        for k in range(len(window) - d + 1):
            if window[k] == 4:
                continue
            behind = [
                (WILDCARD,) if code == 4 else (LETTERS[code], WILDCARD)
                for code in window[k + 1 : k + d]
            ]
            for rest in itertools.product(*behind):
                sums[k, LETTERS[window[k]] + "".join(rest)] += value
    return dict(sums)
