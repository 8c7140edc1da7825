#!/usr/bin/env python3
"""Make train.zarr and valid.zarr, the example data, from celegans_acceptors.npz.

    python examples/celegans/make_example.py celegans_acceptors.npz [OUT]

Every AG dinucleotide on both strands inside a region of a chromosome is a candidate acceptor
site; its row is the window of 141 bases with the A of the AG at index 70, read along its own
strand. The label is +1 for a true acceptor and -1 for any other AG. Rows are in genome order and
all are kept, so the share of positives is the natural one. README.md beside this file
describes the archive and its origin. Needs numpy and zarr (3.1.3 or newer); takes half a minute.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import ZstdCodec

Codes = npt.NDArray[np.uint8]

HALF = 70  # bases on each side of the A
# Regions of two million bases, [start, stop) counted from 0. Their share of acceptors is close to
# that of the whole chromosomes (1.14, 1.02 and 1.06 %); the gene-rich centres have a larger share.
STRETCHES = {
    "train": [("III", 10_000_000, 12_000_000), ("IV", 4_000_000, 6_000_000)],
    "valid": [("V", 4_000_000, 6_000_000)],
}
# Neighbouring windows share most of their bases. Zstandard at a high level makes use of this if
# rows are stored whole: 7.5 bytes per row. Position-major or bit-shuffled chunks, which break up
# the shared runs, take the full 2 bits per base (35 bytes per row).
CHUNK_ROWS = 65_536
COMPRESSOR = ZstdCodec(level=19, checksum=True)


def unpack_genome(packed: Codes, length: int) -> Codes:
    """Unpack a chromosome, A=0 C=1 G=2 T=3, from four bases per byte, the lowest bits first."""
    bases = packed[:, None] >> np.array([0, 2, 4, 6], np.uint8) & np.uint8(3)
    return bases.ravel()[:length]


def find_candidates(bases: Codes, start: int, stop: int) -> npt.NDArray[np.int64]:
    """Sorted keys 2 * position + (1 on the forward strand), position = the A of each AG."""
    forward = np.flatnonzero((bases[:-1] == 0) & (bases[1:] == 2))
    reverse = np.flatnonzero((bases[:-1] == 1) & (bases[1:] == 3)) + 1  # CT, read backwards
    keys = np.sort(np.concatenate([forward * 2 + 1, reverse * 2]))
    position = keys >> 1
    fits = (position >= HALF) & (position + HALF < len(bases))
    return keys[fits & (position >= start) & (position < stop)]


def cut_windows(bases: Codes, keys: npt.NDArray[np.int64]) -> Codes:
    """Cut windows, uint8 (n, 141), along the strand of each key; complement reverse strands."""
    forward = (keys & 1).astype(bool)[:, None]
    step = np.where(forward, 1, -1)
    cut = bases[(keys >> 1)[:, None] + step * np.arange(-HALF, HALF + 1)]
    complement: Codes = np.uint8(3) - cut
    return np.where(forward, cut, complement)


def make_rows(archive: Any, stretches: list[tuple[str, int, int]]) -> tuple[Codes, Any]:
    """Windows uint8 (n, 141) and labels int8 (n,) of the stretches, one after the other."""
    windows, labels = [], []
    for name, start, stop in stretches:
        bases = unpack_genome(archive[f"{name}_genome"], int(archive[f"{name}_length"]))
        keys = find_candidates(bases, start, stop)
        keys = keys[~np.isin(keys, archive[f"{name}_unclear"])]
        windows.append(cut_windows(bases, keys))
        labels.append(np.where(np.isin(keys, archive[f"{name}_acceptors"]), 1, -1))
    return np.concatenate(windows), np.concatenate(labels).astype(np.int8)


def write_group(path: pathlib.Path, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Write a Zarr v3 group, chunked along the rows; raises FileExistsError if the path exists."""
    if path.exists():
        raise FileExistsError(f"{path} exists; remove it or name another output folder")
    group = zarr.create_group(path, zarr_format=3, attributes=attributes)
    for name, values in arrays.items():
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            chunks=(CHUNK_ROWS, *values.shape[1:]),
            compressors=COMPRESSOR,
        )
        array[...] = values


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive", type=pathlib.Path, help="celegans_acceptors.npz")
    parser.add_argument(
        "out",
        type=pathlib.Path,
        nargs="?",
        default=pathlib.Path(__file__).parent,
        help="folder to write train.zarr and valid.zarr to (default: that of this script)",
    )
    args = parser.parse_args()
    try:
        archive = np.load(args.archive)
        args.out.mkdir(parents=True, exist_ok=True)
        for part, stretches in STRETCHES.items():
            windows, labels = make_rows(archive, stretches)
            attributes = {
                "title": "C. elegans splice acceptor sites: windows around every AG",
                "genome": "WS220",
                "stretches": [
                    f"{name}:{start + 1}-{stop} (1-based)" for name, start, stop in stretches
                ],
                "codes": "A=0 C=1 G=2 T=3; the A of the candidate AG is at index 70",
            }
            write_group(args.out / f"{part}.zarr", {"X": windows, "y": labels}, attributes)
            positives = int((labels > 0).sum())
            share = 100 * positives / len(labels)
            print(f"{part}.zarr: {len(labels)} rows, {positives} acceptors ({share:.2f} %)")
    except OSError as error:
        sys.exit(f"make_example: {error}")


if __name__ == "__main__":
    main()
