"""Parts of a training: the streamed pass, certificates, prices."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tools.bench import common
from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures, in_turns, measured


def certify(rows: Rows, clock: Clock, d: int = 8, C: float = 0.1, repeat: int = 7) -> Any:
    """``fcl certify`` against a pass of the training, on prepared rows.

    The point is an optimum, or the optimum with smaller weights, as of another program's model.
    """
    from fcl.drivers.job import make_job
    from fcl.drivers.train import start_point
    from fcl.drivers.train import train as train_job
    from fcl.options import TrainOptions
    from fcl.solve.certify import CertifiedPoint
    from fcl.solve.passes import Passes, Vectors

    data, features = rows.open(), f"kmers:d={d}"
    job = make_job(data, features, TrainOptions.checked(C=C))
    optimum = start_point(job, train_job(data, features, C=C).model)
    prepared = job.prepare(job.train, lambda share: None)
    lines = []
    for name, scale in (("optimum", 1.0), ("weights x 0.3", 0.3)):
        point = replace(optimum, weights=scale * optimum.weights)
        passes = Passes(job.objective(), job.family, prepared, Vectors(job.train.n))
        proofs = Passes(job.objective(), job.family, prepared, Vectors(job.train.n), 10)
        blocks = range(prepared.n_blocks)

        def train_pass(passes: Any = passes, point: Any = point, blocks: Any = blocks) -> None:
            passes.write_margins(point, blocks)
            found = passes.fit_at(point, math.inf, 1.0, point.intercept).point
            passes.vectors.anchor = 1 - passes.vectors.anchor
            passes.write_residuals(found.intercept, blocks)
            passes.prove(found.ids, passes.conditions.limit)

        def prove(proofs: Any = proofs, point: Any = point) -> None:
            certified = CertifiedPoint(proofs, point)
            certified.best_C()
            certified.ball_gap(certified.norm)
            certified.violators(10)

        with clock:
            times = in_turns({"pass": train_pass, "certify": prove}, repeat)
        one, other = (common.median(times[key]) for key in ("pass", "certify"))
        lines.append({"line": name, "active": len(point.ids), "pass": one, "certify": other,
                      "certify / pass": other / one})  # fmt: skip
    prepared.close()
    return lines


def stream(
    rows: Rows, clock: Clock, d: int = 8, C: float = 0.03, repeat: int = 5, fit_rows: int = 1 << 17,
    scratch: bool = False,
) -> Figures:  # fmt: skip
    """The streamed pass on prepared rows: processor nanoseconds for each row and position.

    A pass computes margins, residuals, a table of residuals for every position, and the scan of all
    patterns, at the point of a training on some rows. scratch : rows in a file instead of memory
    """
    import fcl
    from fcl.data.prepared import PreparedRows
    from fcl.drivers.job import make_job
    from fcl.drivers.warmup import warmup
    from fcl.features.prices import PriceQuery, grid_step
    from fcl.features.run import row_vectors
    from fcl.features.run import run as price
    from fcl.features.steps import rounded_to, useful_step
    from fcl.options import TrainOptions
    from fcl.solve.passes import KEEP_PER_GROUP
    from fcl.solve.state import Point

    if not rows.is_few:
        warmup({"sequences"})
    n, features = len(rows.y), f"kmers:d={d}"
    job = make_job(rows.open(), features, TrainOptions.checked(C=C, memory="8GiB"))
    step = max(1, n // fit_rows)
    some = fcl.open_data(rows.x[::step].copy(), y=rows.y[::step].copy())
    model: Any = fcl.train(some, features, C=C * step, max_passes=6, tol=1e-2).model
    weights = model.weights
    if job.family.rounds_weights(n):  # as the trainer does, also if it had fewer rows
        weights = rounded_to(weights, useful_step(weights))
    point: Any = Point.make(model.ids, weights, model.intercept)
    objective, block_rows = job.objective(), job.options.block_rows
    m, residuals, curvatures = np.zeros(n), np.empty(n), np.empty(n)
    units = np.empty(n, np.int64)

    def one_pass() -> None:
        job.family.write_margins(prepared, point.ids, point.weights, m)
        objective.residuals_curvatures(m, residuals, curvatures, point.intercept)
        total = sum(map(abs, objective.sides(residuals)))
        vector = row_vectors(residuals, grid_step(total, job.family.integer_bound), units)
        query = PriceQuery(range(pricer.n_parts), point.ids, 1.0 / C)
        price(pricer, query, vector, range(prepared.n_blocks))

    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
        shape = job.family.record_shape(block_rows)
        prepared = PreparedRows(n, block_rows, shape, folder if scratch else None)
        read = job.family.read_rows(job.train.data.rows, block_rows)
        for number, (_, _, raw) in enumerate(read):
            sides = job.family.prepare(raw, prepared.writable(number), block_rows)
            prepared.commit(number, sides)
        pricer = job.family.pricer(prepared, KEEP_PER_GROUP)
        one_pass()
        times = []
        for _ in range(repeat):
            times.append(measured(clock, one_pass)[1]["processor"])
        prepared.close()
    cells = n * (rows.x.shape[1] - d + 1) / 1e9
    return {"rows": n, "active": len(point.ids), "pass": common.median(times) / cells,
            "random update": random_update(d, repeat)}  # fmt: skip


def random_update(d: int, repeat: int) -> float:
    """Nanoseconds of ``table[code] += r`` with uniformly random codes of d letters."""
    from fcl.kernels.compilation import kernel

    @kernel
    def update(codes: Any, r: Any, table: Any) -> None:
        for i in range(codes.shape[0]):
            table[codes[i]] += r[i]

    random = np.random.default_rng(0)
    codes = random.integers(0, 4**d, 1 << 21).astype(np.uint32)
    r, cells = random.normal(size=len(codes)), np.zeros(4**d)
    times = in_turns({"": lambda: update(codes, r, cells)}, repeat)[""]
    return common.median(times) / len(codes) * 1e9


def hinge_prices(rows: Rows, clock: Clock, n: int = 16, repeat: int = 5) -> Figures:
    """Prices of all hinges by bins, and by the sums of their explicit columns, in turns."""
    import fcl
    from fcl.data.prepared import PreparedRows
    from fcl.features import Hinges, bind_features
    from fcl.features.prices import PriceQuery, RowVector
    from fcl.features.run import run as price

    data, x = rows.open().rows, np.asfortranarray(rows.x)
    families: Any = {"bins": bind_features(Hinges(n), data)}
    generator = families["bins"].generator
    matrix = np.ascontiguousarray(generator.columns(np.arange(generator.n_features), x))
    explicit = fcl.open_data(matrix.astype(rows.x.dtype), y=None).rows
    families["columns"] = bind_features(fcl.parse_features("columns"), explicit)
    r = np.random.default_rng(0).normal(size=len(x))
    vector, works, stored = RowVector(r), {}, {}
    for name, family in families.items():
        block_rows = min(8192, family.most_block_rows())
        prepared = PreparedRows(len(x), block_rows, family.record_shape(block_rows))
        for _ in family.fill(prepared, explicit if name == "columns" else data):
            pass
        pricer = family.pricer(prepared, 10)
        query, blocks = PriceQuery(range(pricer.n_parts)), range(prepared.n_blocks)
        works[name] = partial(price, pricer, query, vector, blocks)
        stored[name] = (
            prepared.n_blocks * int(np.prod(family.record_shape(block_rows))) / common.MIB
        )
    with clock:
        times = {name: common.median(each) for name, each in in_turns(works, repeat).items()}
    return {**times, "ratio": times["columns"] / times["bins"], "features": generator.n_features,
            "ns": times["bins"] / x.size * 1e9, "MB, bins": stored["bins"],
            "MB, columns": stored["columns"]}  # fmt: skip
