#!/usr/bin/env python3
"""Speed of prediction in rows per second on one core, with a k-mer model of the same windows.

    python tools/bench/predict.py [--rows 1048576] [--d 8] [--C 0.1] [--repeat 5]

``in memory`` scores decoded windows; ``from Zarr`` also reads and decodes them; ``fcl-predict`` is the
whole command, from its start and imports to the file of scores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common, jobs


def main() -> None:
    """Train, score in three ways in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    common.add_data_options(parser, every=40)
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    common.pin(args.core)
    import zarr

    from fcl import open_data
    from fcl.model import Model

    folder = common.windows_folder(args.data)
    all_rows = len(np.load(folder / "y.npy", mmap_mode="r"))
    codes, _ = common.load(folder, max(1, all_rows // args.rows))
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        group = zarr.create_group(place / "rows.zarr")
        array = group.create_array(
            "seq", shape=codes.shape, dtype="u1", chunks=(65536, codes.shape[1])
        )
        array[:] = codes
        options = ["--features", f"kmers:d={args.d}", "--C", str(args.C), "--driver", "inline"]
        jobs.warm()
        jobs.train(common.every_kth(folder, args.every), options, place / "model.fcl")
        model = Model.load(place / "model.fcl")

        def stored() -> None:
            model.margins(open_data(place / "rows.zarr", x="seq", y=None))

        def command() -> None:
            names = [str(place / "model.fcl"), str(place / "rows.zarr"), "--x", "seq"]
            jobs.run_cli("predict", *names, "--out", str(place / "scores.npy"), "--overwrite")

        ways: dict[str, Callable[[], object]] = {
            "in memory": lambda: model.margins(codes),
            "from Zarr": stored,
            "fcl-predict": command,
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            way()
        for _ in range(args.repeat):
            for name, way in ways.items():
                begun = time.perf_counter()
                way()
                times[name].append(time.perf_counter() - begun)
    print(common.machine())
    print(f"{len(codes):,} rows, d = {args.d}, {len(model.ids):,} weights, one core\n")
    rows = [
        [name, common.spread(found), f"{len(codes) / common.median(found) / 1e6:.2f}"]
        for name, found in times.items()
    ]
    print(common.table(["", "s", "million rows / s"], rows))


if __name__ == "__main__":
    main()
