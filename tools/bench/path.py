"""A path of C against its last point alone, and against single runs at all its points.

On every k-th window of C. elegans::

    python tools/bench/path.py --data FOLDER --every 1 --points 20 --C-max 0.3 [--singles]

or on a9a, pairs of its columns (``products:degree=2``)::

    python tools/bench/path.py --a9a FILE.gz --points 20

or on its columns alone, at given values of C, with five folds, beside liblinear::

    python tools/bench/path.py --a9a FILE.gz --features columns --C-range 0.001,100 --cv 5 --liblinear

liblinear (``-s 6 -B 1 -R``) starts anew at each C and for each fold. It gets ``--liblinear-tol``, and the
conversion of the rows to its format does not count. It needs the extra ``peers``.

``--processes`` also times the path with the driver ``processes``, which starts its children for each
point; nothing is pinned to a core then. ``--cv`` also shows how long the folds take to read their rows.

Times are wall seconds in this process, with all kernels loaded before the clock starts. The table shows
each point; the certificates are those of the path.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import fcl
from fcl.drivers.events import Prepared
from tools.bench import common
from tools.bench.products import read_libsvm


def main() -> None:
    """Train the path and the single runs, and print their times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    common.add_data_options(parser, every=1)
    parser.add_argument("--a9a", type=Path, metavar="FILE", help="libsvm file to use instead")
    parser.add_argument("--points", type=int, default=20, help="points of the path (default 20)")
    parser.add_argument("--features", help="the family (default: that of the examples above)")
    parser.add_argument("--C-max", type=float, dest="C_max", help="largest C of the path")
    parser.add_argument("--C-range", dest="C_range", help="smallest,largest C of the path instead")
    parser.add_argument("--cv", type=int, help="also time cross-validation with this many folds")
    parser.add_argument("--processes", action="store_true", help="also use that driver, unpinned")
    parser.add_argument("--singles", action="store_true", help="also train at each point alone")
    parser.add_argument("--liblinear", action="store_true", help="also time liblinear")
    parser.add_argument("--liblinear-tol", type=float, default=1e-3, help="(default 0.001)")
    given = parser.parse_args()
    if given.liblinear and (given.a9a is None or given.C_range is None):
        parser.error("--liblinear needs --a9a and --C-range")
    if not given.processes:
        common.pin(given.core)
    print(common.machine())
    if given.a9a is not None:
        X, y = read_libsvm(given.a9a)
        data, features = fcl.open_data(X, y=y), given.features or "products:degree=2"
    else:
        data = common.open_rows(common.windows_folder(given.data), given.every)
        features = given.features or "kmers:d=8,origin=70"
    compare(data, features, given)
    if given.liblinear:
        of_liblinear(X, y, given)


def compare(data: fcl.DataSet, features: str, given: argparse.Namespace) -> None:
    """Time the path, its last point alone, and as requested single runs and folds."""
    options: dict[str, Any] = {"patience": None}
    if given.C_range is None:
        options |= {"points": given.points, "C_max": given.C_max}
    else:
        options |= {"alphas": 1.0 / (data.n_rows * strengths(given))}
    fcl.train_path(data, features, points=3, patience=None)  # loads the kernels
    path, seconds = timed(lambda: fcl.train_path(data, features, **options))
    for point in path.points:
        gap = f"{point.certificate.gap:.1e}"
        print(f"{point.C:10.4g} {point.active:7,} {gap:>8} {point.passes:3} {point.seconds:7.2f} s")
    _, last = timed(lambda: fcl.train(data, features, C=path.points[-1].C))
    print(f"path {seconds:.2f} s, last point alone {last:.2f} s, ratio {seconds / last:.2f}")
    if given.processes:
        of_processes(data, features, options)
    if given.singles:
        alone = [timed(partial(fcl.train, data, features, C=p.C)) for p in path.points]
        total = sum(spent for _, spent in alone)
        print(f"single runs {total:.2f} s in this process, {total / seconds:.2f} times the path")
    if given.cv:
        reading: list[float] = []
        seen = partial(note_reading, reading)
        run = partial(fcl.train_path, data, features, cv=given.cv, progress=seen, **options)
        _, spent = timed(run)
        print(f"{given.cv} folds {spent:.2f} s, {spent / seconds:.2f} times the path")
        print(f"reading the rows {len(reading)} times {sum(reading):.2f} s")


def of_processes(data: fcl.DataSet, features: str, options: dict[str, Any]) -> None:
    """Time the path with the driver ``processes``."""
    reading: list[float] = []
    seen = partial(note_reading, reading)
    run = partial(fcl.train_path, data, features, driver="processes", progress=seen, **options)
    path, seconds = timed(run)
    for point in path.points:
        print(
            f"{point.C:10.4g} {point.active:7,} {point.passes:3} {point.seconds:7.2f} s by processes"
        )
    print(f"path by processes {seconds:.2f} s, of which reading {sum(reading):.2f} s")


def strengths(given: argparse.Namespace) -> Any:
    """The values of C in ``--C-range``."""
    low, high = map(float, given.C_range.split(","))
    return np.geomspace(low, high, given.points)


def of_liblinear(X: Any, y: Any, given: argparse.Namespace) -> None:
    """Time liblinear at each C, on all rows and on the rows outside each fold."""
    from liblinear.liblinearutil import problem, train
    from scipy import sparse
    from sklearn.model_selection import StratifiedKFold

    X = sparse.csr_matrix(X, dtype=np.float64)
    parts = [np.arange(len(y))]
    if given.cv:
        parts += [rows for rows, _ in StratifiedKFold(given.cv).split(X, y)]
    spent = []
    for rows in parts:
        made = problem(y[rows].astype(np.float64), X[rows])
        one = [
            timed(partial(train, made, f"-s 6 -c {C} -e {given.liblinear_tol} -B 1 -R -q"))[1]
            for C in strengths(given) * len(y) / len(rows)  # the total weight of the losses stays
        ]
        spent.append(sum(one))
    print(f"liblinear {spent[0]:.2f} s for all rows, {sum(spent):.2f} s with folds")


def note_reading(seconds: list[float], event: Any) -> None:
    """Keep the time that reading the rows took."""
    if isinstance(event, Prepared):
        seconds.append(event.seconds)


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call, and its seconds."""
    start = time.perf_counter()
    return run(), time.perf_counter() - start


if __name__ == "__main__":
    main()
