#!/usr/bin/env python3
"""fcl beside LS-GKM on two FASTA files of sequences: 5-fold cross-validation, one core.

    python tools/bench/lsgkm.py POSITIVE.fa NEGATIVE.fa [--gkmtrain PATH/TO/gkmtrain]

Prints the area under the ROC curve and the average precision of the held-out rows, the time of all folds,
and the peak memory. Sequences are padded with unknown letters. LS-GKM makes its own folds.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

#: (features, C) of fcl.
SETTINGS = (
    ("bag:d=6,strands=both", 0.1),
    ("bag:d=6,strands=both", 0.3),
    ("bag:d=6,strands=both,value=presence", 0.3),
    ("bag:d=8,strands=both", 0.3),
    ("bag:d=8,strands=both,wildcards=true", 0.1),
    ("bag:d=6,strands=both + bag:d=6,strands=both,value=presence", 0.3),
    ("bag:d=6,strands=both + bag:d=8,strands=both,wildcards=true,value=presence", 0.3),
)
FOLDS = 5
LETTERS = np.full(256, 4, np.uint8)
LETTERS[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2


def main() -> None:
    """Run all settings, and LS-GKM if it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("positive", type=Path)
    parser.add_argument("negative", type=Path)
    parser.add_argument("--gkmtrain", type=Path, help="the program of LS-GKM")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    common.pin(args.core)
    parts = [sequences(path) for path in (args.positive, args.negative)]
    y = np.repeat([1, 0], [len(part) for part in parts])
    codes = padded(parts[0] + parts[1])
    print(common.machine())
    print(
        f"\n{(y == 1).sum():,} and {(y == 0).sum():,} sequences of up to {codes.shape[1]} letters\n"
    )
    rows: list[tuple[str, ...]] = []
    if args.gkmtrain is not None:
        rows.append(("LS-GKM, defaults", *lsgkm(args)))
    rows += [
        (f"fcl, {features}, C = {C:g}", *cross_validated(codes, y, features, C))
        for features, C in SETTINGS
    ]
    header = (
        "",
        "AUROC",
        "average precision",
        f"time of {FOLDS} folds, s",
        "peak, MiB",
        "features",
    )
    print(common.table(header, rows))


def sequences(path: Path) -> list[bytes]:
    """The sequences of a FASTA file."""
    entries = path.read_bytes().split(b">")[1:]
    return [b"".join(entry.split()[1:]) for entry in entries]


def padded(found: list[bytes]) -> np.ndarray:
    """Codes 0-4, uint8 (sequences, longest), unknown beyond the end."""
    out = np.full((len(found), max(map(len, found))), 4, np.uint8)
    for row, text in zip(out, found, strict=True):
        row[: len(text)] = LETTERS[np.frombuffer(text, np.uint8)]
    return out


def cross_validated(codes: np.ndarray, y: np.ndarray, features: str, C: float) -> tuple[str, ...]:
    """Train on all but each fold, and score it; kernels are loaded by a fit before."""
    import fcl

    folds = np.random.default_rng(0).permutation(len(y)) % FOLDS
    scores, active, seconds = np.empty(len(y)), [], 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fold in (0, *range(FOLDS)):
            since, out = time.perf_counter(), folds == fold
            data = fcl.open_data(codes[~out], y=y[~out])
            model = fcl.train(data, features, C=C, tol=1e-2).model
            scores[out] = model.margins(fcl.open_data(codes[out], y=None))
            active.append(len(model.ids))
            seconds += (time.perf_counter() - since) * (len(active) > 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        *accuracy(y, scores),
        f"{seconds:.1f}",
        f"{peak:.0f} (so far)",
        f"{np.median(active):.0f}",
    )


def accuracy(y: np.ndarray, scores: np.ndarray) -> tuple[str, str]:
    """Area under the ROC curve, and average precision."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    return f"{roc_auc_score(y, scores):.4f}", f"{average_precision_score(y, scores):.4f}"


def lsgkm(args: Any) -> tuple[str, ...]:
    """Cross-validate LS-GKM with its default kernel (4 of gapped k-mers of 11, 7 informative letters)."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "m"
        command = [args.gkmtrain, "-x", str(FOLDS), args.positive, args.negative, out]
        since = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - since
        found = np.loadtxt(f"{out}.cvpred.txt", usecols=(1, 2))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return (*accuracy(found[:, 1] > 0, found[:, 0]), f"{seconds:.1f}", f"{peak:.0f}", "")


if __name__ == "__main__":
    main()
