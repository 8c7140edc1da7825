"""What the benchmarks call: training, prediction, certificates, paths, and ``fcl`` commands.

A call is ``call(data, clock, **options)``. It works inside ``with clock:`` and returns its figures, or a
dictionary for each line of the table.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.bench import common, peers
from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures, in_turns, measured

Floats = npt.NDArray[np.float64]
#: Relative gaps whose times are reported.
GAPS = (1e-1, 1e-2, 1e-3)
MIB = common.MIB


# -- training ------------------------------------------------------------------------------------------


def objective(X: Any, y: Any, w: Any, b: Any, C: float, loss: str, group: bool = False) -> float:
    """The penalty + C sum of losses, in float64; of several classes, w is (columns, K)."""
    m = np.asarray(X @ w) + b
    if loss == "softmax":
        from scipy.special import logsumexp

        losses = logsumexp(m, axis=1) - m[np.arange(len(y)), y]
    elif loss == "logistic":
        losses = np.logaddexp(0.0, -y * m)
    elif loss == "squared":
        losses = (y - m) ** 2
    else:
        losses = np.maximum(0.0, 1.0 - y * m) ** 2
    penalty = np.linalg.norm(w, axis=1) if group else np.abs(w)
    return math.fsum(penalty.ravel()) + C * math.fsum(losses)


def full_weights(model: Any, columns: int) -> tuple[Any, Any]:
    """Weights of all columns, and intercepts; of several classes, by the labels 0, 1, ..."""
    if model.weights.ndim == 1:
        w = np.zeros(columns)
        w[model.ids] = model.weights
        return w, model.intercept
    order = np.argsort(np.asarray(model.labels, dtype=np.int64))
    w = np.zeros((columns, len(order)))
    w[model.ids] = model.weights[:, order]
    return w, np.asarray(model.intercept)[order]


def loss_of(y: Any) -> str:
    """Logistic or softmax, by the labels."""
    return "softmax" if len(np.unique(y)) > 2 else "logistic"


def solve(
    rows: Rows, clock: Clock, method: str, C: float, tol: float, loss: str = "", group: bool = False
) -> Figures:
    """Minimise the penalised losses with fcl ("fcl", "fcl-columns") or another solver.

    The objective is recomputed from the weights; ``load`` is what happens outside the clock.
    """
    since, loss = time.perf_counter(), loss or loss_of(rows.y)
    found: Figures = {}
    if method.startswith("fcl"):
        w, b = solve_with_fcl(rows, clock, method, C, tol, loss, group, found)
        load = time.perf_counter() - since - clock.seconds
    else:
        w, b = peers.SOLVERS[method](rows.X, rows.y, C, tol, clock)
        load = time.perf_counter() - since - clock.seconds
    value = objective(rows.X, rows.y, w, b, C, loss, group)
    active = np.count_nonzero(w if w.ndim == 1 else np.abs(w).max(axis=1))
    found |= {"load": load, "objective": value, "active": int(active)}
    if method != "fcl":
        found["making"] = rows.making
    return found


def solve_with_fcl(
    rows: Rows, clock: Clock, method: str, C: float, tol: float, loss: str, group: bool,
    found: Figures,
) -> tuple[Any, Any]:  # fmt: skip
    """Solve with fcl on the family, or on the columns of the matrix; adds its certificate."""
    import fcl
    from fcl.drivers.events import PassDone

    reported: list[tuple[float, float]] = []

    def note(event: Any) -> None:
        if isinstance(event, PassDone):
            reported.append((time.perf_counter() - begun, event.objective))

    y = rows.y.astype(str) if loss == "softmax" else rows.y
    own = method == "fcl"
    data = fcl.open_data(rows.x if own else rows.X, y=y)
    features = rows.features if own else "columns"
    given: dict[str, Any] = {"group": group} if loss == "softmax" else {}
    begun = time.perf_counter()
    with clock:
        result: Any = fcl.train(
            data, features, C=C, tol=tol, loss=loss, memory="8GiB", progress=note, **given
        )
    found |= {"gap": result.certificate.gap, "reported": reported, "reason": result.reason}
    found["bound"] = result.certificate.bound
    columns = rows.x.shape[1] if rows.matrix is None else rows.X.shape[1]
    return full_weights(result.model, columns)


def verified(
    rows: Rows, clock: Clock, C: float, tol: float = 1e-3, loss: str = "logistic",
    driver: str = "inline", share: float = 1.0, max_time: float = 60.0, other: str = "",
) -> Figures:  # fmt: skip
    """Train, recompute the objective, and compare it with the report and with another solver's.

    Faults: "above" (the other's objective, by more than 1e-3), "unfinished", "raised", and, if the report
    is false, "objective", "bound" or "gap". share : rows of a sampled row view
    """
    import fcl

    view: Any = "all" if share == 1.0 else max(64, round(share * len(rows.y)))
    with clock:
        result: Any = fcl.train(
            rows.open(), rows.features, C=C, loss=loss, tol=tol, max_time=max_time, driver=driver,
            row_view=view, warn=False,
        )  # fmt: skip
    w, b = full_weights(result.model, rows.X.shape[1])
    value = objective(rows.X, rows.y, w, b, C, loss)
    claimed = result.certificate
    theirs = math.inf
    name = other or {"logistic": "liblinear", "squared": "lasso"}.get(loss, "liblinear-hinge")
    if name != "none":
        solution = peers.SOLVERS[name](rows.X, rows.y, C, 1e-5, Clock())
        theirs = objective(rows.X, rows.y, *solution, C, loss)
    faults = {
        "unfinished": result.reason != "tolerance" or not claimed.gap <= tol,
        "above": value > theirs * (1.0 + 1e-3),
        "objective": not abs(claimed.objective - value) <= 1e-9 * value,
        "bound": not claimed.bound <= min(value, theirs) * (1.0 + 1e-9),
        "gap": not abs(claimed.gap - max(0.0, 1.0 - claimed.bound / value)) <= 1e-9,
    }
    listed = " ".join(name for name, is_fault in faults.items() if is_fault)
    return {"objective": value, "gap": claimed.gap, "reason": result.reason,
            "of the other's": value / theirs, "faults": listed or "none"}  # fmt: skip


def train(
    rows: Rows, clock: Clock, C: float = 0.1, tol: float = 1e-3, features: str = "",
    memory: str = "8GiB", driver: str = "", threads: int = 0, row_view: Any = "auto",
    max_time: float | None = None, group: bool = False, shares: bool = False,
) -> Figures:  # fmt: skip
    """Train from rows in memory.

    shares : also measure the serial share of the threads, and the speed on more cores by Amdahl's law
    """
    import fcl
    from fcl.drivers.warmup import warmup

    if not rows.is_few:
        warmup({"sequences" if rows.x.dtype == np.uint8 else "numbers"})
    loss = loss_of(rows.y)
    given: dict[str, Any] = {"group": group} if group else {}
    given |= {"driver": driver} if driver else {}
    given |= {"threads": threads} if threads else {}
    y = rows.y.astype(str) if loss == "softmax" else rows.y
    data = fcl.open_data(rows.x, y=y)
    spent = watched_maps() if shares else {}
    with clock:
        result: Any = fcl.train(
            data, features or rows.features, C=C, tol=tol, loss=loss, memory=memory,
            row_view=row_view, max_time=max_time, **given,
        )  # fmt: skip
    found = figures_of(result)
    if shares and threads > 1:
        found |= amdahl(clock.seconds, spent)
    if rows.tests is not None:
        found |= test_scores(result.model, rows)
    return found


def figures_of(result: Any) -> Figures:
    """The certificate, the times to gaps and the parts of a training."""
    model, certificate, history = result.model, result.certificate, result.model.history
    bits = model.weights.tobytes() + repr((certificate.objective, certificate.bound)).encode()
    found = {
        "rows": model.n_rows, "features": certificate.n_priced, "active": len(model.ids),
        "objective": certificate.objective, "gap": certificate.gap, "passes": result.passes,
        "own peak": result.peak_memory / MIB, "reason": result.reason,
        "bits": hashlib.sha256(bits).hexdigest()[:8],
    }  # fmt: skip
    for gap in GAPS:
        times = [event["seconds"] for event in history if event["gap"] <= gap]
        found[f"to {gap:g}"] = times[0] if times else None
    return found | {f"of it {name}": value for name, value in result.seconds.items()}


def test_scores(model: Any, rows: Rows) -> Figures:
    """Test error, and average precision if there are two classes."""
    from sklearn.metrics import average_precision_score

    import fcl

    margins = model.margins(fcl.open_data(rows.tests, y=None))
    truth = rows.of_tests
    if margins.ndim > 1:
        names = np.asarray(model.labels)
        return {"test error": float(np.mean(names[margins.argmax(axis=1)] != truth.astype(str)))}
    positive = truth == max(np.unique(rows.y))
    return {
        "test error": float(np.mean((margins > 0.0) != positive)),
        "AUPRC": float(average_precision_score(positive, margins)),
    }


def watched_maps() -> dict[str, list[float]]:
    """Measure the calls of ``Team.map`` by the caller: seconds of the clock and of all threads."""
    import threading

    from fcl import parallel

    spent: dict[str, list[float]] = {}
    inside: list[str] = []
    original, owner = parallel.Team._map, threading.get_ident()

    def watched(self: Any, function: Any, parts: Any, most: int) -> Any:
        if threading.get_ident() != owner or inside:
            return original(self, function, parts, most)
        name = sys._getframe(2).f_code.co_name
        clock, busy = time.perf_counter(), time.process_time()
        inside.append(name)
        try:
            return original(self, function, parts, most)
        finally:
            inside.pop()
            own = spent.setdefault(name, [0.0, 0.0])
            own[0] += time.perf_counter() - clock
            own[1] += time.process_time() - busy

    parallel.Team._map = watched  # type: ignore[method-assign]
    return spent


def amdahl(seconds: float, spent: Mapping[str, Sequence[float]]) -> Figures:
    """Shares of the time in one thread, in two parts at most, and shared; speeds by Amdahl's law."""
    # sweeps and gathering are cut in two parts at most
    two = sum(spent[name][1] for name in ("_side_by_side", "gather") if name in spent)
    serial = seconds - sum(wall for wall, _ in spent.values())
    shared = sum(busy for _, busy in spent.values()) - two
    one = serial + two + shared
    found = {"serial": serial / one, "in two": two / one}
    return found | {
        f"{n} cores": one / (serial + two / min(2, n) + shared / n) for n in (2, 4, 8, 16, 64)
    }


def visits(rows: Rows, clock: Clock, C: float = 0.1, tol: float = 1e-3, degree: int = 3) -> Any:
    """Train on products of columns, with a line for each pass: the products that it visits."""
    import fcl
    from fcl.features import Products
    from fcl.features.prices import PriceQuery, Scan
    from fcl.features.products import family as products
    from fcl.features.products.pricing import ProductPricer

    passes: list[tuple[float, float, int]] = []

    class Watched(ProductPricer):
        def scan(self, query: PriceQuery, step: float) -> Scan:
            since = time.perf_counter()
            prices = yield from super().scan(query, step)
            if query.find:
                seconds = time.perf_counter() - since
                passes.append((seconds, prices.largest, prices.n_visited))
            return prices

    with common.constants(products, ProductPricer=Watched), clock:
        family = Products(degree=degree, binary=True)
        result: Any = fcl.train(rows.open(), family, C=C, tol=tol, memory="2GiB")
    total = result.certificate.n_priced
    lines: list[Figures] = [{"line": "all", **figures_of(result)}]
    for number, (seconds, largest, visited) in enumerate(passes):
        lines.append({"line": f"pass {number}", "seconds": seconds, "largest": C * largest,
                      "visited": visited, "share": visited / total})  # fmt: skip
    return lines


def tolerances(rows: Rows, clock: Clock, C: float = 1.0, max_time: float = 60.0) -> Any:
    """Held-out accuracy of the estimator, and distance from the weights of a gap of 1e-8."""
    from sklearn.metrics import average_precision_score

    from fcl import FCLClassifier

    def fit(tol: float) -> tuple[Any, Figures]:
        model = FCLClassifier(rows.features, C=C, tol=tol, max_time=max_time)
        return measured(clock, lambda: model.fit(rows.x, rows.y))

    def weights(model: Any) -> dict[tuple[int, int], float]:
        return {
            (k, int(feature)): float(weight)
            for k, one in enumerate(model.models_)
            for feature, weight in zip(one.ids, one.weights, strict=True)
        }

    fits = {tol: fit(tol) for tol in (1e-6, 1e-2, 1e-3, 1e-4, 1e-5, 1e-8)}
    best = weights(fits[1e-8][0])
    lines = []
    for tol, (model, figures) in fits.items():
        own = weights(model)
        off = [own.get(key, 0.0) - best.get(key, 0.0) for key in own.keys() | best]
        margins = model.decision_function(rows.tests)
        columns = margins.T if margins.ndim > 1 else [margins]
        labels = model.classes_ if margins.ndim > 1 else model.classes_[1:]
        areas = [average_precision_score(rows.of_tests == label, own_margins)
                 for label, own_margins in zip(labels, columns, strict=True)]  # fmt: skip
        lines.append(figures | {
            "line": f"{tol:g}", "accuracy": float(model.score(rows.tests, rows.of_tests)),
            "AUPRC": float(np.mean(areas)), "passes": int(np.max(model.n_iter_)),
            "weights off": float(np.linalg.norm(off) / np.linalg.norm(list(best.values()))),
            "of 1e-6": figures["processor"] / fits[1e-6][1]["processor"],
            "reason": "" if model.converged_ else "stopped",
        })  # fmt: skip
    return lines


def few_features(
    rows: Rows, clock: Clock, C: float = 0.03, n: int = 2048, tol: float = 1e-2,
    dtype: str | None = None,
) -> Figures:  # fmt: skip
    """Train on Fourier features, and score as many random ones with a squared penalty.

    The strength of the squared penalty is that with the lowest test error, which favours it.
    """
    from sklearn.linear_model import LogisticRegression

    import fcl
    from fcl.features import Fourier

    # Pixels are not standardised: pixels that are nearly always 0 would get the largest scales.
    features = Fourier(n=n, standardise=False, dtype=dtype)
    with clock:
        result: Any = fcl.train(rows.open(), features, C=C, tol=tol, memory="8GiB")
    found = figures_of(result) | test_scores(result.model, rows)
    generator, k = result.model.family.generator, len(result.model.ids)
    phi, tests = (generator.columns(np.arange(k), generator.prepare(part))
                  for part in (rows.x, rows.tests))  # fmt: skip
    model, errors = LogisticRegression(tol=1e-3, max_iter=200, warm_start=True), []
    for strength in (0.1, 1.0, 10.0):
        model.set_params(C=strength).fit(phi, rows.y)
        errors.append(float(np.mean(model.predict(tests) != rows.of_tests)))
    return found | {"squared penalty": min(errors)}


def hinge_prices(rows: Rows, clock: Clock, n: int = 16, repeat: int = 5) -> Figures:
    """Prices of all hinges by bins, and by the sums of their explicit columns, in turns."""
    import fcl
    from fcl.data.prepared import PreparedRows
    from fcl.features import Hinges, bind_features
    from fcl.features.prices import PriceQuery, RowVector
    from fcl.features.prices import run as price

    data, x = rows.open().rows, np.asfortranarray(rows.x)
    families: Any = {"bins": bind_features(Hinges(n), data)}
    generator = families["bins"].generator
    matrix = np.ascontiguousarray(generator.columns(np.arange(generator.n_features), x))
    explicit = fcl.open_data(matrix.astype(rows.x.dtype), y=None).rows
    families["columns"] = bind_features(fcl.parse_features("columns"), explicit)
    r = np.random.default_rng(0).normal(size=len(x))
    vector, works, stored = RowVector.on_grid(r, float(np.abs(r).sum()), 0.0), {}, {}
    for name, family in families.items():
        block_rows = min(8192, family.most_block_rows())
        prepared = PreparedRows(len(x), block_rows, family.record_shape(block_rows))
        for _ in family.fill(prepared, explicit if name == "columns" else data):
            pass
        pricer = family.pricer(prepared, 10)
        query, blocks = PriceQuery(range(pricer.n_parts)), range(prepared.n_blocks)
        works[name] = partial(price, pricer, query, vector, blocks)
        stored[name] = prepared.n_blocks * int(np.prod(family.record_shape(block_rows))) / MIB
    with clock:
        times = {name: common.median(each) for name, each in in_turns(works, repeat).items()}
    return {**times, "ratio": times["columns"] / times["bins"], "features": generator.n_features,
            "ns": times["bins"] / x.size * 1e9, "MB, bins": stored["bins"],
            "MB, columns": stored["columns"]}  # fmt: skip


# -- parts of a training -------------------------------------------------------------------------------


def certify(rows: Rows, clock: Clock, d: int = 8, C: float = 0.1, repeat: int = 7) -> Any:
    """``fcl certify`` against a pass of the training, on prepared rows.

    The point is an optimum, or the optimum with smaller weights, as of another program's model.
    """
    from fcl.drivers.job import make_job
    from fcl.drivers.train import start_point
    from fcl.drivers.train import train as train_job
    from fcl.solve.certify import Standing
    from fcl.solve.passes import Passes, Vectors

    data, features = rows.open(), f"kmers:d={d}"
    job = make_job(data, features, C=C)
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
            found = passes.settled(point, math.inf, 1.0, point.intercept).point
            passes.vectors.anchor = 1 - passes.vectors.anchor
            passes.write_residuals(found.intercept, blocks)
            passes.prove(found.ids, passes.conditions.limit)

        def prove(proofs: Any = proofs, point: Any = point) -> None:
            standing = Standing(proofs, point)
            standing.best_C()
            standing.ball_gap(standing.norm)
            standing.violators(10)

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
    from fcl.features.prices import PriceQuery, RowVector
    from fcl.features.prices import run as price
    from fcl.features.steps import rounded_to, useful_step
    from fcl.solve.passes import KEEP_PER_GROUP
    from fcl.solve.state import Point

    if not rows.is_few:
        warmup({"sequences"})
    n, features = len(rows.y), f"kmers:d={d}"
    job = make_job(rows.open(), features, C=C, memory="8GiB")
    step = max(1, n // fit_rows)
    some = fcl.open_data(rows.x[::step].copy(), y=rows.y[::step].copy())
    model: Any = fcl.train(some, features, C=C * step, max_passes=6, tol=1e-2, warn=False).model
    weights = model.weights
    if job.family.rounds_weights(n):  # as the trainer does, also if it had fewer rows
        weights = rounded_to(weights, useful_step(weights))
    point: Any = Point.make(model.ids, weights, model.intercept)
    objective, block_rows = job.objective(), job.options.block_rows
    m, residuals, curvatures = np.zeros(n), np.empty(n), np.empty(n)
    units = np.empty(n, np.int64)

    def one_pass() -> None:
        job.family.write_margins(prepared, point.ids, point.weights, m)
        objective.residuals_curvatures(m, point.intercept, residuals, curvatures)
        total = sum(map(abs, objective.sides(residuals)))
        vector = RowVector.on_grid(residuals, total, job.family.integer_bound, units)
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


# -- paths ---------------------------------------------------------------------------------------------


def path(
    rows: Rows, clock: Clock, features: str = "", points: int = 20, C_max: float | None = None,
    C_range: str = "", cv: int = 0, driver: str = "", what: str = "path", tol: float = 1e-3,
) -> Figures:  # fmt: skip
    """A path of C; its last point alone, each point alone, or LIBLINEAR at each point.

    what : "path", "last", "singles" or "liblinear" (which needs ``C_range``: smallest;largest)
    """
    import fcl

    features, data = features or rows.features, rows.open()
    strengths = np.empty(0)
    options: dict[str, Any] = {"patience": None}
    if C_range:
        low, high = map(float, C_range.replace(";", ",").split(","))
        strengths = np.geomspace(low, high, points)
        options |= {"alphas": 1.0 / (len(rows.y) * strengths)}
    else:
        options |= {"points": points, "C_max": C_max}
    if what == "liblinear":
        return path_of_liblinear(rows, clock, strengths, cv, tol)
    seen: list[float] = []

    def note(event: Any) -> None:
        if type(event).__name__ == "Prepared":
            seen.append(event.seconds)

    more: dict[str, Any] = {"driver": driver} if driver else {}
    more |= {"cv": cv} if cv else {}
    if rows.is_few:
        fcl.train_path(data, features, points=3, patience=None)
    if what == "path":
        with clock:
            found = fcl.train_path(data, features, progress=note, **options, **more)
        return {"points": len(found.points), "active": found.points[-1].active,
                "reading": sum(seen), "gap": max(p.certificate.gap for p in found.points)}  # fmt: skip
    found = fcl.train_path(data, features, **options)
    alone = found.points if what == "singles" else found.points[-1:]
    with clock:
        for point in alone:
            fcl.train(data, features, C=point.C)
    return {"points": len(alone), "active": found.points[-1].active}


def path_of_liblinear(rows: Rows, clock: Clock, strengths: Floats, cv: int, tol: float) -> Figures:
    """LIBLINEAR anew at each C, and for each fold; the conversion of the rows does not count."""
    from sklearn.model_selection import StratifiedKFold

    n = len(rows.y)
    parts = [np.arange(n)]
    if cv:
        parts += [some for some, _ in StratifiedKFold(cv).split(rows.x, rows.y)]
    for some in parts:
        for C in strengths * n / len(some):  # the total weight of the losses stays
            y = rows.y[some].astype(np.float64)
            peers.liblinear(rows.x[some], y, float(C), tol, clock)
    return {"points": len(strengths) * len(parts)}


def lsgkm(
    rows: Rows, clock: Clock, features: str = "bag:d=6,strands=both", C: float = 0.3,
    gkmtrain: str = "",
) -> Figures:  # fmt: skip
    """5-fold cross-validation of fcl, or of LS-GKM with its default kernel and its own folds."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    import fcl

    y, folds, active = rows.y, 5, []
    if gkmtrain:
        with tempfile.TemporaryDirectory() as folder, clock:
            out = f"{folder}/m"
            command = [gkmtrain, "-x", str(folds), *map(str, rows.notes["files"]), out]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found = np.loadtxt(f"{out}.cvpred.txt", usecols=(1, 2))
        y, scores = found[:, 1] > 0, found[:, 0]
    else:
        fold, scores = np.random.default_rng(0).permutation(len(y)) % folds, np.empty(len(y))
        for k in range(folds):
            with clock:
                data = fcl.open_data(rows.x[fold != k], y=y[fold != k])
                model: Any = fcl.train(data, features, C=C, tol=1e-2).model
                scores[fold == k] = model.margins(fcl.open_data(rows.x[fold == k], y=None))
            active.append(len(model.ids))
    return {"AUROC": float(roc_auc_score(y, scores)), "active": common.median(active),
            "AUPRC": float(average_precision_score(y, scores))}  # fmt: skip


# -- prediction ----------------------------------------------------------------------------------------


def predict(
    rows: Rows, clock: Clock, way: str = "memory", C: float = 0.1, fit_every: int = 6
) -> Figures:
    """Score windows with a model of every k-th of them: decoded, from Zarr, or by the command.

    way : "memory", "zarr", or "command", with its start and its file of scores
    fit_every : k
    """
    import zarr

    import fcl

    few = fcl.open_data(rows.x[::fit_every].copy(), y=rows.y[::fit_every].copy())
    model: Any = fcl.train(few, rows.features, C=C, tol=1e-3, warn=False).model
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
        place = Path(folder)
        if way != "memory":
            group: Any = zarr.create_group(place / "rows.zarr")
            array = group.create_array(
                "seq", shape=rows.x.shape, dtype="u1", chunks=(65536, rows.x.shape[1])
            )
            array[:] = rows.x
            model.save(place / "model.fcl")
        model.margins(rows.x[:1000])
        with clock:
            if way == "memory":
                model.margins(rows.x)
            elif way == "zarr":
                model.margins(fcl.open_data(place / "rows.zarr", x="seq", y=None))
            else:
                names = [str(place / "model.fcl"), str(place / "rows.zarr"), "--x", "seq"]
                out = ["--out", str(place / "scores.npy"), "--overwrite"]
                run_command(["predict", *names, *out])
    return {"active": len(model.ids), "M rows/s": len(rows.y) / clock.seconds / 1e6}


def score_genome(folder: Path, clock: Clock, vcf: bool = False, checkout: str = "") -> Figures:
    """``fcl predict --sites AG --both-strands`` on a genome, or on its variants.

    checkout : folder of another version of fcl
    """
    options = ["--vcf", "v.vcf"] if vcf else []
    options += ["--sites", "AG", "--both-strands", "--out", "o.bed", "--overwrite", "--quiet"]
    with clock:
        peak, _ = run_command(
            ["predict", "m.fcl", "--genome", "g.fa", *options], cwd=folder, code=checkout
        )
    with (folder / "o.bed").open("rb") as file:
        n_rows = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return {"rows": n_rows, "rows/s": n_rows / clock.processor, "peak": peak / MIB}


# -- commands ------------------------------------------------------------------------------------------


def run_command(
    options: Sequence[str], cwd: Path | None = None, code: str = "", stdin: bytes | None = None
) -> tuple[int, float]:
    """Run ``python -m fcl``; returns its peak in bytes, and the seconds to its first message.

    Raises
    ------
    SystemExit
        With the last messages, if the command fails.
    """
    environment = {**os.environ, "PYTHONPATH": code or str(common.ROOT)}
    line = [sys.executable, "-m", "fcl", *options]
    begun = time.monotonic()
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        child = subprocess.Popen(
            line, cwd=cwd, env=environment, stdin=given, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stderr is not None
        with child.stderr:
            said = child.stderr.readline()
            first = time.monotonic() - begun
            said += child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"fcl {options[0]} failed with the exit code {child.returncode}:\n{said[-2000:]}")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), first


def train_command(
    data: Path, clock: Clock, part: str = "", x: str = "seq", features: str = "", d: int = 8,
    C: float = 0.1, tol: float = 1e-3, memory: str = "6GiB", driver: str = "processes",
    writers: int = 0, row_view: str = "auto", max_time: str = "30m", valid: str = "",
    no_share_cores: bool = False,
) -> Any:  # fmt: skip
    """``fcl train`` on files; all seconds are from the start of the command.

    part, valid : folders within that of the data, for training and for validation; with ``valid`` there
    is a line for each pass
    """
    folder = data / part
    options = ["--x", x, "--y", "y", "--features", features or f"kmers:d={d}", "--C", str(C)]
    options += ["--memory", memory, "--driver", driver, "--row-view", str(row_view)]
    options += ["--tol", str(tol), "--max-time", max_time, "--no-checkpoint"]
    options += ["--writers", str(writers)] if writers else []
    options += ["--valid", str(data / valid)] if valid else []
    options += ["--no-share-cores"] if no_share_cores else []
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log.jsonl"
        since = time.time()
        with clock:
            _, first = run_command(
                ["train", str(folder), *options, "--log-json", str(log), "--out", f"{name}/m.fcl"]
            )
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    found, passes = logged(events, since)
    if not valid:
        return found | {"first line": first}
    scores = {e["number"]: e["validation"] for e in events if e["event"] == "Validated"}
    lines: list[Figures] = []
    for done in passes:
        score = scores.get(done["number"], done["validation"])
        lines.append({"line": f"pass {done['number']}", "seconds": done["time"] - since,
                      "objective": done["objective"], "gap": done["gap"], "active": done["active"],
                      "AUPRC": score["auprc"] if score else None})  # fmt: skip
    return [*lines, found | {"line": "all"}]


def logged(events: Sequence[Figures], since: float) -> tuple[Figures, list[Figures]]:
    """Figures from the log of a training, in seconds after ``since``, and its passes."""
    last: dict[str, Figures] = {event["event"]: event for event in events}
    passes = [event for event in events if event["event"] == "PassDone"]
    stopped, prepared = last.get("Stopped", {}), last["Prepared"]["time"] - since
    before, cpu = prepared, 0.0
    for done in passes:
        busy = done["busy"] or {"trainer": 1.0}
        at = done["time"] - since
        cpu += (at - before) * sum(v for k, v in busy.items() if k != "supervisor")
        before = at
    end = passes[-1]
    near = [p["time"] - since for p in passes if p["objective"] <= end["objective"] * 1.0001]
    found = {
        "rows": last["Started"]["n_rows"], "prepared": prepared, "passes": len(passes),
        "first pass": passes[0]["time"] - since, "objective within 1e-4": near[0],
        "objective": end["objective"], "gap": end["gap"], "active": end["active"],
        "own peak": (stopped.get("peak_memory") or 0) / MIB, "reason": stopped.get("reason", ""),
        "busy cores": cpu / max(before - prepared, 1e-9),
        "rises": sum(b["objective"] > a["objective"] for a, b in pairwise(passes)),
    }  # fmt: skip
    for gap in GAPS:
        times = [p["time"] - since for p in passes if p["gap"] <= gap]
        found[f"to {gap:g}"] = times[0] if times else None
    return found, passes


def within_budget(
    data: Path, clock: Clock, memory: str = "1GiB", x: str = "seq", features: str = "kmers:d=8",
    C: float = 0.03, max_time: str = "4m", tol: float = 1e-3, more: str = "", driver: str = "",
) -> Figures:  # fmt: skip
    """``fcl train`` under a budget, whose memory is read from /proc, without any code of fcl.

    ``problems`` says whether a peak is above the budget, an objective rises, or the end is not clean.
    more : further options, separated by spaces
    """
    from fcl.units import parse_duration, parse_size
    from tools.bench.memory import Watch

    budget, limit = parse_size(memory, "memory"), parse_duration(max_time, "max-time") + 180.0
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log.jsonl"
        options = [
            str(data),
            "--x",
            x,
            "--y",
            "y",
            "--features",
            features,
            "--C",
            str(C),
            *more.split(),
        ]
        options += ["--memory", memory, "--max-time", max_time, "--tol", str(tol), "--quiet"]
        options += ["--checkpoint-every", "60s", "--out", f"{name}/m.fcl", "--log-json", str(log)]
        options += ["--driver", driver] if driver else []
        environment = {**os.environ, "PYTHONPATH": str(common.ROOT)}
        since, begun = time.time(), time.monotonic()
        with clock:
            job = subprocess.Popen(
                [sys.executable, "-m", "fcl", "train", *options], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            watch, late = Watch(job.pid), False
            while job.poll() is None:
                watch.look()
                late = late or time.monotonic() - begun > limit
                if late:
                    os.killpg(job.pid, signal.SIGKILL)
                time.sleep(0.2)
        time.sleep(2.0)  # children exit by themselves
        left = len(watch.pids())
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    found, _ = logged(events, since)
    problems = {
        "above the budget": watch.peak > budget, "the objective rises": found["rises"] > 0,
        "processes left": left > 0, f"exit code {job.returncode}": bool(job.returncode) or late,
        found["reason"]: found["reason"] not in ("tolerance", "max-time", "max-passes"),
    }  # fmt: skip
    listed = ", ".join(name for name, is_one in problems.items() if is_one)
    return found | {"peak": watch.peak / MIB, "of the budget": watch.peak / budget,
                    "problems": listed or "none"}  # fmt: skip


def liblinear_in_memory(data: Path, clock: Clock, C: float = 0.02, tol: float = 0.01) -> Figures:
    """LIBLINEAR on the matrix of a CSR matrix in Zarr, read into memory."""
    import zarr
    from scipy import sparse

    group: Any = zarr.open_group(data, mode="r")
    parts = [group["X"][name][:] for name in ("data", "indices", "indptr")]
    X, y = sparse.csr_matrix(tuple(parts), group["X"].attrs["shape"]), group["y"][:]
    w, b = peers.liblinear(X, y, C, tol, clock)
    return {"objective": objective(X, y, w, b, C, "logistic"), "active": int(np.count_nonzero(w))}


def wide_table(
    data: Path, clock: Clock, method: str = "fcl", C: float = 0.02, tol: float = 1e-3,
    memory: str = "4GiB", max_time: str = "15m", driver: str = "processes",
) -> Figures:  # fmt: skip
    """A table in Zarr by fcl within a budget, or by LIBLINEAR in memory."""
    if method == "liblinear":
        return liblinear_in_memory(data, clock, C)
    return within_budget(data, clock, memory, "X", "columns", C, max_time, tol, driver=driver)


def convert(folder: Path, clock: Clock, memory: str = "512MiB", options: str = "") -> Figures:
    """``fcl convert``: rows a second, MB a second, and the peak."""
    from fcl.units import parse_size

    notes = json.loads((folder / "notes.json").read_text())
    source = folder / notes["path"]
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as name:
        given = [option.format(folder=folder) for option in options.split()]
        with clock:
            line = ["convert", str(source), f"{name}/out.zarr", "--memory", memory, "--quiet"]
            peak, _ = run_command([*line, *given])
    size = source.stat().st_size / 1e6
    return {"rows": notes["rows"], "MB": size, "rows/s": notes["rows"] / clock.seconds,
            "MB/s": size / clock.seconds, "peak": peak / MIB,
            "problems": "above the budget" if peak > parse_size(memory) else "none"}  # fmt: skip


# -- beyond memory -------------------------------------------------------------------------------------


def sampled_kmers(codes: Any, d: int, ids: Any, block_rows: int = 1 << 16) -> Any:
    """Make columns of the k-mers with wildcards of windows (n, L) without unknown letters, CSR float64.

    ids : the columns, sorted. For each position, a table lists the chosen patterns of each word of d
    letters, so that a row takes one look-up for each position, however many patterns a word has.
    """
    from scipy import sparse

    n, length = codes.shape
    positions, each, n_words = length - d + 1, 4 * 5 ** (d - 1), 4**d
    letters = np.arange(n_words)[:, None] // 4 ** np.arange(d - 1, -1, -1) % 4
    patterns = np.empty((n_words, 2 ** (d - 1)), np.int32)
    for mask in range(2 ** (d - 1)):  # which letters after the first are wildcards
        pattern = letters[:, 0]
        for k in range(1, d):
            pattern = 5 * pattern + (4 if mask >> (k - 1) & 1 else letters[:, k])
        patterns[:, mask] = pattern
    lists, lengths = [], np.empty((positions, n_words), np.int64)
    for position in range(positions):
        first, last = np.searchsorted(ids, [position * each, (position + 1) * each])
        column = np.full(each, -1, np.int32)
        column[ids[first:last] - position * each] = np.arange(first, last)
        found = column[patterns]
        words, which = np.nonzero(found >= 0)
        some = found[words, which]
        lists.append(some[np.lexsort((some, words))])
        lengths[position] = np.bincount(words, minlength=n_words)
    every, counts = np.concatenate(lists), lengths.ravel()
    starts = np.cumsum(counts) - counts
    indices, indptr = [], np.zeros(n + 1, np.int64)
    for at in range(0, n, block_rows):
        block = codes[at : at + block_rows]
        words = np.zeros((len(block), positions), np.int64)
        for k in range(d):
            words = 4 * words + block[:, k : k + positions]
        places = (words + n_words * np.arange(positions)).ravel()
        own = counts[places]
        ends = np.cumsum(own)
        indices.append(every[np.repeat(starts[places] - (ends - own), own) + np.arange(ends[-1])])
        indptr[at + 1 : at + len(block) + 1] = indptr[at] + ends[positions - 1 :: positions]
    joined = np.concatenate(indices)
    return sparse.csr_matrix((np.ones(len(joined)), joined, indptr), (n, len(ids)))


def beyond_memory(
    parts: Path, clock: Clock, method: str = "liblinear", letters: int = 2, sampled: int = 0,
    every: int = 20, C: float = 0.03, tol: float = 1e-2,
) -> Figures:  # fmt: skip
    """Another solver on every k-th row of chromosomes I to IV, at k times C; scored on rows of V.

    Its features are all k-mers of so few letters that the matrix fits, or a random sample of those of
    ``letters`` letters, as in the paper. It is scored on every fourth row of V.
    """
    from sklearn.metrics import average_precision_score

    from tools.bench.data import TRAIN, VALID, all_kmers

    ids = None
    if sampled:
        n_features = (141 - letters + 1) * 4 * 5 ** (letters - 1)
        ids = np.sort(np.random.default_rng(0).choice(n_features, sampled, replace=False))

    def matrix(codes: Any, some: Any) -> Any:
        return all_kmers(codes, letters) if some is None else sampled_kmers(codes, letters, some)

    codes = np.load(parts / TRAIN / "seq.npy", mmap_mode="r")[::every]
    y = np.load(parts / TRAIN / "y.npy")[::every].astype(np.float64)
    since = time.perf_counter()
    X = matrix(np.ascontiguousarray(codes), ids)
    making = time.perf_counter() - since
    few = np.sort(np.concatenate([np.flatnonzero(y == side)[:100] for side in (-1.0, 1.0)]))
    peers.SOLVERS[method](X[few], y[few], 1.0, 1e-1, Clock())  # imports and compiles
    w, _ = peers.SOLVERS[method](X, y, every * C, tol, clock)
    used, scores = np.flatnonzero(w), []
    tests = np.load(parts / VALID / "seq.npy", mmap_mode="r")[::4]
    for at in range(0, len(tests), 1 << 16):
        part = np.ascontiguousarray(tests[at : at + (1 << 16)])
        some = None if ids is None else ids[used]
        scores.append(matrix(part, some) @ (w if some is None else w[used]))
    truth = np.load(parts / VALID / "y.npy")[::4] > 0
    area = average_precision_score(truth, np.concatenate(scores))
    return {"features": X.shape[1], "rows": X.shape[0], "nonzeros": X.nnz, "making": making,
            "active": len(used), "AUPRC": float(area)}  # fmt: skip
