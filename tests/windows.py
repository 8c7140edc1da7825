"""Random windows with unknown letters in every arrangement, and their prepared form."""

from __future__ import annotations

import os

import numba
import numpy as np
from hypothesis import settings

from fcl.data.prepared import PreparedRows
from fcl.features import KmerFamily

#: Whether kernels run as plain Python, or with bounds checks: the same tests at smaller sizes.
INTERPRETED = bool(numba.config.DISABLE_JIT)
CHECKED = bool(numba.config.BOUNDSCHECK)
#: Whether more cases are asked for, in the environment.
THOROUGH = bool(os.environ.get("FCL_TEST_THOROUGH"))
BLOCK_ROWS = 64 if INTERPRETED else 256
#: Three blocks and a shorter fourth, whose size is not a multiple of 64.
MAX_ROWS = 3 * BLOCK_ROWS + 37
MAX_D = 3 if INTERPRETED else 6

UNKNOWN = ("none", "few", "many", "all", "rows", "first", "last", "one block")


def examples(n: int) -> settings:
    """The same random cases in every run: n if THOROUGH, else fewer, above all if kernels are slow."""
    share = 12 if INTERPRETED else 1 if THOROUGH else 3
    return settings(max_examples=max(3, n // share))


def make_windows(seed: int, n: int, length: int, unknown: str) -> np.ndarray:
    """Codes uint8 (n, length), with letters repeated so often that patterns have many rows."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(4, (n, length), p=[0.4, 0.3, 0.2, 0.1]).astype(np.uint8)
    if unknown in {"few", "many"}:
        codes[rng.random(codes.shape) < {"few": 0.03, "many": 0.3}[unknown]] = 4
    elif unknown == "all":
        codes[:] = 4
    elif unknown == "rows":
        codes[rng.random(n) < 0.5] = 4
    elif unknown in {"first", "last"}:
        codes[rng.random(n) < 0.5, 0 if unknown == "first" else -1] = 4
    elif unknown == "one block":
        part = codes[BLOCK_ROWS : 2 * BLOCK_ROWS]
        part[rng.random(part.shape) < 0.2] = 4
    return codes


def make_residuals(seed: int, n: int, kind: str) -> np.ndarray:
    """float64 (n,): balanced, of one sign, of very different sizes, mostly zero, or all alike."""
    rng = np.random.default_rng([seed, 1])
    r = rng.normal(size=n)
    if kind == "one sign":
        return np.abs(r)
    if kind == "scales":
        return r * 10.0 ** rng.uniform(-12, 6, n)
    if kind == "sparse":
        return np.where(rng.random(n) < 0.05, r, 0.0)
    if kind == "ties":
        return np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return r


RESIDUALS = ("balanced", "one sign", "scales", "sparse", "ties")


def tolerance(values: np.ndarray) -> float:
    """How much float64 sums of these values in different orders may differ."""
    return 1e-12 * float(np.abs(values).sum()) + 1e-300


def prepare(
    family: KmerFamily,
    codes: np.ndarray,
    block_rows: int = BLOCK_ROWS,
    scratch: str | os.PathLike[str] | None = None,
) -> PreparedRows:
    """Prepare all rows, in memory or in a scratch file."""
    prepared = PreparedRows(len(codes), block_rows, family.record_shape(block_rows), scratch)
    for number, rows in prepared.blocks():
        sides = family.prepare(codes[rows], prepared.writable(number), block_rows)
        prepared.commit(number, sides)
    return prepared
