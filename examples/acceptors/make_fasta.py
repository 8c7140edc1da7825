#!/usr/bin/env python3
"""Write the FASTA files of this folder from the windows of examples/celegans.

    python examples/acceptors/make_fasta.py

From each group, it draws as many windows as SIZES says, and cuts them to the 51 bases from 40 before
the A of the site's AG to 10 behind it. The header of each record names its chromosome.
"""

from __future__ import annotations

import gzip
import pathlib
from typing import Any

import numpy as np
import zarr

HERE = pathlib.Path(__file__).parent
FIRST, LAST = 30, 81  # of the 141 letters of a window; the A of its AG is letter 70
#: Drawn windows: acceptors, and other AGs.
SIZES = {"train": (2_500, 5_000), "valid": (1_200, 2_400)}
#: Chromosomes of each group, with the row at which they end.
CHROMOSOMES = {"train": {"III": 190_726, "IV": 394_023}, "valid": {"V": 200_109}}


def records(windows: Any, rows: Any, chromosomes: dict[str, int]) -> str:
    """FASTA text of some rows of a group."""
    letters = np.frombuffer(b"ACGTN", "S1")[windows[rows, FIRST:LAST]]
    names = list(chromosomes)
    places = np.searchsorted(list(chromosomes.values()), rows, side="right")
    return "".join(
        f">row{row} chromosome={names[place]}\n{text.tobytes().decode()}\n"
        for row, place, text in zip(rows, places, letters, strict=True)
    )


def main() -> None:
    rng = np.random.default_rng(0)
    for part, (n_acceptors, n_others) in SIZES.items():
        group: Any = zarr.open_group(HERE.parent / "celegans" / f"{part}.zarr", mode="r")
        windows, y = group["X"][:], group["y"][:]
        name = {"train": "", "valid": "test_"}[part]
        for kind, label, size in (("acceptors", 1, n_acceptors), ("others", -1, n_others)):
            rows = np.sort(rng.choice(np.flatnonzero(y == label), size, replace=False))
            text = records(windows, rows, CHROMOSOMES[part])
            packed = gzip.compress(text.encode(), 9, mtime=0)
            (HERE / f"{name}{kind}.fa.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
