"""Real rows for small tests: windows of C. elegans from the examples, splice junctions of UCI."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fcl.objective import find_loss

ROOT = Path(__file__).parents[1]
ACCEPTORS = ROOT / "examples" / "celegans" / "train.zarr"
SPLICE = ROOT.parent / "shared" / "data" / "uci_splice.csv"
SITE = 70  #: index of the site's A in the windows of C. elegans


@cache
def _stretch() -> tuple[np.ndarray, np.ndarray]:
    import zarr

    group = zarr.open_group(ACCEPTORS, mode="r")
    return np.asarray(group["X"][:20_000]), np.asarray(group["y"][:20_000])


def acceptors(length: int, n: int, first: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, length) around the site and labels -1 / +1; about two in five are acceptors.

    first : index of the window's first letter in the stored ones.
    """
    windows, labels = _stretch()
    positive = np.flatnonzero(labels == 1)[: 2 * n // 5]
    negative = np.flatnonzero(labels == -1)[: n - len(positive)]
    rows = np.sort(np.concatenate([positive, negative]))
    start = SITE - length // 2 if first is None else first
    return np.ascontiguousarray(windows[rows, start : start + length]), labels[rows].astype(float)


def pyrimidines(n: int) -> np.ndarray:
    """For each row of ``acceptors(.., n)``, the number of T among the 40 letters before the site."""
    return (acceptors(40, n, SITE - 50)[0] == 3).sum(axis=1).astype(float)


#: For each loss, a C at which some of the columns of a few hundred windows have a weight.
STRENGTHS = {
    "logistic": 1.0,
    "squared": 0.05,
    "squared_hinge": 0.3,
    "huber:delta=2": 0.1,
    "poisson": 0.3,
    "pinball:tau=0.7,width=2": 0.5,
}


def targets(loss: str, n: int) -> np.ndarray:
    """Targets for the rows of ``acceptors(.., n)`` that suit a loss: labels, or counts."""
    return acceptors(40, n)[1] if find_loss(loss).classifies else pyrimidines(n)


@cache
def splice(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, length) around the junction, with some unknown letters; label +1 for a junction EI."""
    if not SPLICE.exists():
        pytest.skip(f"{SPLICE.name} is not here: it comes with the shared data, not with a clone")
    letters = {"A": 0, "C": 1, "G": 2, "T": 3}
    with SPLICE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    start = 30 - length // 2
    codes = [
        [letters.get(c, 4) for c in row["sequence"].strip()[start : start + length]] for row in rows
    ]
    labels = [1.0 if row["label"].strip() == "EI" else -1.0 for row in rows]
    return np.array(codes, np.uint8), np.array(labels)
