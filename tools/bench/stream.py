#!/usr/bin/env python3
"""The streamed pass on prepared rows: nanoseconds per row and position, on one core.

A pass computes the margins of a model, the residuals, a table of residuals for every position, and the
scan of all features of the family. Each part is timed at its kernels, so the time outside the kernels is
visible. The same run also measures the memory bandwidth, and updates of a table at random codes.

    python tools/bench/stream.py
    python tools/bench/stream.py --rows 8000000 --every 1 --d 8
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.features.prices import PriceQuery, RowVector, run
from fcl.features.steps import rounded_to, useful_step
from fcl.kernels import kernel
from tools.bench import common

if TYPE_CHECKING:
    from fcl.data.prepared import PreparedRows
    from fcl.drivers.job import Job
    from fcl.features.prices import Pricer
    from fcl.solve.state import Floats, Point

MOST_ROWS = 1 << 20
#: The kernels of each part of a pass.
PARTS = {
    "margins": (
        "add_margins",
        "add_two_margins",
        "add_patterns",
        "mend_margins",
        "fold_table",
        "spread_table",
        "choose_tables",
    ),
    "residuals": ("residuals_curvatures",),
    "table": ("add_to_table", "take_marginals", "take_unknown"),
    "scan": ("scan_patterns", "pattern_sums"),
}


# -- what the machine can do -----------------------------------------------------------------------


@kernel
def update_table(codes: Any, r: Any, table: Any) -> None:
    """Add r_i to the cell of code i."""
    for i in range(codes.shape[0]):
        table[codes[i]] += r[i]


def seconds(work: Callable[[], object], repeat: int) -> float:
    """Median time of a function in seconds, after one call that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return common.median(times)


def bandwidth(repeat: int) -> float:
    """Gigabytes per second that one core reads sequentially from memory."""
    words = np.ones(1 << 25)  # 256 MB
    return words.nbytes / seconds(words.max, repeat) / 1e9


def random_update(d: int, repeat: int) -> float:
    """Nanoseconds of ``table[code] += r`` with uniformly random codes of d letters."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 4**d, 1 << 21).astype(np.uint32)
    r, cells = random.normal(size=len(codes)), np.zeros(4**d)
    return seconds(lambda: update_table(codes, r, cells), repeat) / len(codes) * 1e9


# -- a pass ----------------------------------------------------------------------------------------


@dataclass
class Clock:
    """Seconds spent in each kernel."""

    spent: dict[str, float] = field(default_factory=dict)

    def of(self, part: str) -> float:
        return sum(self.spent.get(name, 0.0) for name in PARTS[part])


@contextmanager
def timed_kernels() -> Iterator[Clock]:
    """Time the calls of the kernels of a pass, which must already be compiled."""
    from fcl.kernels import kmers, losses, margins, patterns

    clock = Clock()
    before: list[tuple[Any, str, Any]] = []
    for name in (n for names in PARTS.values() for n in names):
        module = next(m for m in (kmers, losses, margins, patterns) if hasattr(m, name))
        before.append((module, name, getattr(module, name)))
        setattr(module, name, _timed(name, getattr(module, name), clock))
    try:
        yield clock
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def _timed(name: str, function: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        start = time.perf_counter()
        result = function(*arguments)
        clock.spent[name] = clock.spent.get(name, 0.0) + time.perf_counter() - start
        return result

    return call


@dataclass
class Pass:
    """The inputs and buffers of a pass."""

    job: Job
    prepared: PreparedRows
    pricer: Pricer
    point: Point
    threshold: float

    def __post_init__(self) -> None:
        self.objective = self.job.objective()
        self.margins: Floats = np.zeros(self.job.train.n)
        self.residuals: Floats = np.empty(self.job.train.n)
        self.curvatures: Floats = np.empty(self.job.train.n)
        self.units = np.empty(self.job.train.n, np.int64)

    def run(self) -> None:
        """Compute margins, residuals, tables and scans of all positions."""
        self.job.family.write_margins(
            self.prepared, self.point.ids, self.point.weights, self.margins
        )
        self.objective.residuals_curvatures(
            self.margins, self.point.intercept, self.residuals, self.curvatures
        )
        total = sum(map(abs, self.objective.sides(self.residuals)))
        bound = self.job.family.integer_bound
        rows = RowVector.on_grid(self.residuals, total, bound, self.units)
        query = PriceQuery(range(self.pricer.n_parts), self.point.ids, self.threshold)
        run(self.pricer, query, rows, range(self.prepared.n_blocks))


def measure(streamed: Pass, repeat: int) -> dict[str, float]:
    """Median seconds of each part, outside the kernels, and in total."""
    streamed.run()
    figures: dict[str, list[float]] = {name: [] for name in (*PARTS, "outside", "total")}
    for _ in range(repeat):
        with timed_kernels() as clock:
            start = time.perf_counter()
            streamed.run()
            total = time.perf_counter() - start
        parts = {part: clock.of(part) for part in PARTS}
        for part, spent in parts.items():
            figures[part].append(spent)
        figures["outside"].append(total - sum(parts.values()))
        figures["total"].append(total)
    return {name: common.median(values) for name, values in figures.items()}


def fitted(
    codes: npt.NDArray[np.uint8], y: npt.NDArray[np.int8], d: int, C: float, rows: int
) -> Point:
    """Train on some of the rows, to a point near the optimum, as in most passes."""
    from fcl import open_data
    from fcl.drivers.train import train
    from fcl.solve.state import Point

    step = max(1, len(y) // rows)
    part = open_data(codes[::step].copy(), y=y[::step].copy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops early on purpose
        model = train(part, f"kmers:d={d}", C=C * step, max_passes=6, tol=1e-2).model
    return Point.make(model.ids, model.weights, model.intercept)


def reading(codes: npt.NDArray[np.uint8], y: npt.NDArray[np.int8], repeat: int) -> dict[str, float]:
    """Rows per second from Zarr: decoding alone, and decoding and preparing."""
    import zarr

    from fcl import open_data
    from fcl.data.sequences import SequenceReader
    from fcl.drivers.job import make_job

    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
        store = Path(folder) / "rows.zarr"
        group = zarr.create_group(str(store), zarr_format=3)
        group.create_array("X", data=codes, chunks=(1 << 16, codes.shape[1]))
        group.create_array("y", data=y, chunks=(1 << 16,))
        data = open_data(store)
        job = make_job(data, "kmers:d=8", C=1.0)

        def decode() -> None:
            for _ in SequenceReader(data.rows).iter_codes(1 << 16):
                pass

        def prepare() -> None:
            job.prepare(job.train, lambda share: None).close()

        size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        return {
            "decode": len(y) / seconds(decode, repeat),
            "prepare": len(y) / seconds(prepare, repeat),
            "bytes": size / len(y),
        }


# -- the command -----------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser, every=8)
    told = f"number of rows, repeated if the data have fewer (default: at most {MOST_ROWS})"
    parser.add_argument("--rows", type=int, help=told)
    parser.add_argument("--d", default="6,8,10", help="comma-separated (default 6,8,10)")
    parser.add_argument("--C", type=float, default=0.03, help="weight of the losses (default 0.03)")
    parser.add_argument("--fit-rows", type=int, default=1 << 17, help="rows to fit the model on")
    parser.add_argument("--repeat", type=int, default=5, help="passes to time (default 5)")
    args = parser.parse_args()
    common.pin(args.core)

    from fcl.drivers.warmup import warmup

    codes, y = common.load(common.windows_folder(args.data), args.every)
    n = args.rows or min(MOST_ROWS, len(y))
    codes, y = codes[:n], y[:n]
    warmup()
    gigabytes = bandwidth(args.repeat)
    read = reading(codes, y, args.repeat)
    if n > len(y):
        codes, y = np.resize(codes, (n, codes.shape[1])), np.resize(y, n)
    rows = [row for d in args.d.split(",") for row in passes(codes, y, int(d), args)]
    print(common.machine())
    print(
        f"\n{len(y):,} rows of {codes.shape[1]} letters, one core, medians of {args.repeat} passes; "
        "parts in ns per row and position. Memory is read at "
        f"{gigabytes:.1f} GB/s.\n"
    )
    header = ["d", "rows in", "weights", *PARTS, "pass", "outside kernels", "pass, s"]
    header += ["scan, s: this / empty model", "random update of a table, ns"]
    print(common.table(header, rows))
    print(
        f"\nFrom Zarr (v3, {read['bytes']:.0f} bytes per row on disk, in the page cache): "
        f"{read['decode'] / 1e6:.2f} M rows/s decoded, "
        f"{read['prepare'] / 1e6:.2f} M rows/s decoded, checked and prepared."
    )


def passes(
    codes: npt.NDArray[np.uint8], y: npt.NDArray[np.int8], d: int, args: argparse.Namespace
) -> Iterator[list[object]]:
    """The table rows of one d: prepared rows in memory, and in a scratch file."""
    from fcl import open_data
    from fcl.drivers.job import make_job
    from fcl.solve.passes import KEEP_PER_GROUP

    job = make_job(open_data(codes, y=y), f"kmers:d={d}", C=args.C, memory="8GiB")
    point = fitted(codes, y, d, args.C, args.fit_rows)
    if job.family.rounds_weights(len(y)):  # as the trainer does, also if it had fewer rows
        weights = rounded_to(point.weights, useful_step(point.weights))
        point = replace(point, weights=weights)
    update = random_update(d, args.repeat)
    cells = len(y) * (codes.shape[1] - d + 1)
    for where in ("memory", "scratch file"):
        with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
            prepared = _prepare(job, folder if where == "scratch file" else None)
            pricer = job.family.pricer(prepared, KEEP_PER_GROUP)
            spent = measure(Pass(job, prepared, pricer, point, 1.0 / args.C), args.repeat)
            first = Pass(job, prepared, pricer, _nothing(point), 0.0)
            empty = measure(first, min(3, args.repeat))["scan"]
            prepared.close()
        row: list[object] = [
            d,
            where,
            len(point.ids),
            *(f"{spent[name] / cells * 1e9:.2f}" for name in PARTS),
            f"{spent['total'] / cells * 1e9:.2f}",
            f"{spent['outside'] / spent['total']:.0%}",
            f"{spent['total']:.2f}",
            f"{spent['scan']:.2f} / {empty:.2f}",
            f"{update:.2f}",
        ]
        print("measured:", *row, file=sys.stderr)
        yield row


def _prepare(job: Job, folder: str | None) -> PreparedRows:
    """Prepare rows in memory, or in a scratch file in a folder, whatever the plan says."""
    from fcl.data.prepared import PreparedRows

    block_rows = job.options.block_rows
    prepared = PreparedRows(job.train.n, block_rows, job.family.record_shape(block_rows), folder)
    for number, (_, _, raw) in enumerate(job.family.read_rows(job.train.data.rows, block_rows)):
        sides = job.family.prepare(raw, prepared.writable(number), block_rows)
        prepared.commit(number, sides)
    return prepared


def _nothing(point: Point) -> Point:
    """The empty model."""
    from fcl.solve.state import Point

    return Point.make(point.ids[:0], point.weights[:0], point.intercept)


if __name__ == "__main__":
    main()
