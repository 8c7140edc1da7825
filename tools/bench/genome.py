#!/usr/bin/env python3
"""Make any number of windows from a generated genome.

    python tools/bench/genome.py OUT [--rows 50000000] [--seed 1]

Writes OUT/seq.npy, uint8 (rows, 141), and OUT/y.npy, int8 (rows,). Letters are a Markov chain of order 3
with the statistics of the windows of C. elegans. Half a per cent of the rows are positive. 25 words of 2
to 5 letters have a position and a probability each, with which they are written into positive rows. Half
of them are also written into as many negative rows, at another position, so that they mislead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

LENGTH, ORDER, WORDS = 141, 3, 25
POSITIVE = 0.005
CHUNK = 500_000


def letter_chances(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Cumulative chances of the letters after each three, float32 (64, 3), from windows."""
    counts = np.ones((64, 4))
    state = np.zeros(len(codes), np.int64)
    for k in range(codes.shape[1]):
        if k >= ORDER:
            np.add.at(counts, (state, codes[:, k]), 1.0)
        state = (4 * state + codes[:, k]) % 64
    return np.asarray(
        (counts / counts.sum(axis=1, keepdims=True)).cumsum(axis=1)[:, :3], np.float32
    )


def chain(
    random: np.random.Generator, n: int, table: npt.NDArray[np.float32]
) -> npt.NDArray[np.uint8]:
    """Windows of the Markov chain, uint8 (n, LENGTH)."""
    out = np.empty((LENGTH, n), np.uint8)
    state = random.integers(0, 64, n)
    for letters in out:
        letters[:] = (random.random(n, np.float32)[:, None] > table[state]).sum(axis=1)
        state = (4 * state + letters) % 64
    return np.ascontiguousarray(out.T)


def main() -> None:
    """Make the windows in chunks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    real, _ = common.load(common.windows_folder(None), 400)
    table = letter_chances(real)
    random = np.random.default_rng(args.seed)
    words = []
    for number in range(WORDS):
        size = int(random.integers(2, 6))
        at, elsewhere = random.integers(0, LENGTH - size + 1, 2)
        word = random.integers(0, 4, size).astype(np.uint8)
        words.append((int(at), int(elsewhere), word, random.uniform(0.02, 0.2), number % 2 == 0))
    seq = np.lib.format.open_memmap(args.out / "seq.npy", "w+", np.uint8, (args.rows, LENGTH))
    y = np.where(random.random(args.rows) < POSITIVE, 1, -1).astype(np.int8)
    for first in range(0, args.rows, CHUNK):
        part = chain(random, min(CHUNK, args.rows - first), table)
        positive = np.flatnonzero(y[first : first + len(part)] > 0)
        negative = np.flatnonzero(y[first : first + len(part)] < 0)
        for at, elsewhere, word, chance, misleads in words:
            own = positive[random.random(len(positive)) < chance]
            part[own, at : at + len(word)] = word
            if misleads:
                others = negative[random.random(len(negative)) < chance * POSITIVE]
                part[others, elsewhere : elsewhere + len(word)] = word
        seq[first : first + len(part)] = part
    seq.flush()
    np.save(args.out / "y.npy", y)


if __name__ == "__main__":
    main()
