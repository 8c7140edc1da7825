#!/usr/bin/env python3
"""How much sooner a cross-validated path and scores are done if whole jobs run on a Dask cluster.

    python tools/bench/fan_out.py examples/celegans/train.zarr --features kmers:d=6 --workers 2
    python tools/bench/fan_out.py DATA --features kmers:d=6 --workers 1 2 --points 6 --cv 4 --repeats 3

Each repeat runs the path here and on each number of local workers, in turn, and compares all bits. The
workers have their kernels compiled and loaded by a first path that does not count. `job` is the time of a
path of the null models alone divided by its jobs, less the same here: what sending a job costs.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import fcl
from fcl.drivers.cluster.connect import connected
from fcl.scoring.cluster import ClusterPredictor, write_score_chunks


def bits(path: fcl.PathResult) -> Any:
    """The weights, certificates and scores of a path, and its margins of held-out rows."""
    points = [(m.ids.tobytes(), m.weights.tobytes(), m.certificate) for m in path.models]
    assert path.oof is not None
    return points, path.scores.folds.tobytes(), path.oof.tobytes()


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of a call, and what it returns."""
    since = time.perf_counter()
    found = function()
    return time.perf_counter() - since, found


def main() -> None:
    """Measure, and print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--features", default="kmers:d=6")
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--points", type=int, default=6)
    parser.add_argument("--cv", type=int, default=4)
    parser.add_argument("--C-max", type=float, dest="C_max")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()

    from distributed import Client, LocalCluster

    data = fcl.open_data(given.data)
    options = {"cv": given.cv, "memory": "2GiB", "warn": False, "patience": None}

    def path(client: Any, points: int = given.points) -> fcl.PathResult:
        grid = {"alphas": [1.0]} if points == 0 else {"points": points, "C_max": given.C_max}
        return fcl.train_path(data, given.features, client=client, **grid, **options)

    seconds: dict[tuple[str, int], list[float]] = {}

    def note(what: str, workers: int, spent: float) -> None:
        seconds.setdefault((what, workers), []).append(spent)

    places: dict[int, Any] = {0: None}
    opened = []
    for n in given.workers:
        cluster = LocalCluster(
            n_workers=n,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        )
        places[n] = Client(cluster, set_as_default=False)
        opened += [places[n], cluster]
    for client in places.values():
        path(client, 2)
    print(f"load at the beginning: {os.getloadavg()[0]:.1f}")
    expected: Any = None
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(given.repeats):
            for n, client in places.items():
                note("null", n, timed(partial(path, client, 0))[0])
                spent, found = timed(partial(path, client))
                note("path", n, spent)
                expected = expected or bits(found)
                assert bits(found) == expected
                model, out = found.chosen.model, Path(folder, f"{n}-{repeat}.zarr")
                if client is None:
                    spent, margins = timed(partial(model.margins, data))
                    note("scores", n, spent)
                    continue
                with connected(client) as cluster:
                    predictor = ClusterPredictor(model, data, cluster)
                    write = (predictor, data, out, "margin", False, None)
                    note("scores", n, timed(partial(write_score_chunks, *write))[0])
                import zarr

                assert np.array_equal(zarr.open_array(out, mode="r")[:], margins)
    for thing in opened:
        thing.close()
    median = {key: statistics.median(values) for key, values in seconds.items()}
    jobs = 2 * given.cv + 2  # C_min, folds, all rows, margins of folds
    print(f"load at the end: {os.getloadavg()[0]:.1f}; medians of {given.repeats}; bits agree")
    print(f"{'workers':>8}{'path s':>9}{'ratio':>7}{'scores s':>10}{'job s':>8}")
    for n in places:
        extra = (median["null", n] - median["null", 0]) / jobs
        print(
            f"{n or 'here':>8}{median['path', n]:>9.2f}{median['path', 0] / median['path', n]:>7.2f}"
            f"{median['scores', n]:>10.2f}" + (f"{extra:>8.3f}" if n else "")
        )


if __name__ == "__main__":
    main()
