"""Train in this process: solvers compared, figures of fits."""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tools.bench import common, peers
from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures, measured

#: Relative gaps whose times are reported.
GAPS = (1e-1, 1e-2, 1e-3)


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
    from fcl.run.events import PassDone

    reported: list[tuple[float, float]] = []

    def note(event: Any) -> None:
        if isinstance(event, PassDone):
            reported.append((time.perf_counter() - begun, event.objective))

    y = rows.y.astype(str) if loss == "softmax" else rows.y
    own = method == "fcl"
    data = fcl.open_data(rows.x if own else rows.X, y=y)
    features = rows.features if own else "columns"
    given: dict[str, Any] = {"penalty": "group"} if group else {}
    begun = time.perf_counter()
    with clock:
        result: Any = fcl.train(
            data, features, C=C, tol=tol, loss=loss, memory="8GiB", progress=note, **given
        )
    found |= {"gap": result.certificate.gap, "reported": reported, "reason": result.reason}
    found["bound"] = result.certificate.bound
    columns = rows.x.shape[1] if rows.matrix is None else rows.X.shape[1]
    return full_weights(result.model, columns)


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
    given: dict[str, Any] = {"penalty": "group"} if group else {}
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
        "own peak": result.peak_memory / common.MIB, "reason": result.reason,
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
