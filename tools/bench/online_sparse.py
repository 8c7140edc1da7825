"""Truncated gradient and dual cached loops; units: :mod:`online_common`."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.bench import online_baselines as baselines
from tools.bench import training
from tools.bench.data import Rows
from tools.bench.online_ball import Batch
from tools.bench.online_common import Floats, best_rate, chunk_of, dense, matrix_of, optimum_of
from tools.bench.runner import Clock, Figures, measured

# -- truncated gradient --------------------------------------------------------------------------------


def truncated(
    X: Any, y: Floats, passes: int, **options: Any
) -> Iterator[tuple[int, Floats, float]]:
    """Passes, weights and intercept of fcl's truncated gradient after each pass; ends if it diverges."""
    from fcl.online import OnlineOptions, make_learner

    p, n, rows = X.shape[1], len(y), chunk_of(X)
    learner = make_learner("truncated-gradient", p, OnlineOptions(**options))
    for number in range(1, passes + 1):
        if learner.learn(rows, y, np.ones(n), np.zeros(n)) < n:
            return
        learner.end_pass()
        point = learner.point()
        yield number, dense(p, point), float(point[2])


def area_of(X: Any, y: Floats, w: Floats, b: float) -> float:
    """Area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, np.clip(X @ w + b, -1e100, 1e100)))


def score(X: Any, y: Floats, w: Floats, b: float) -> tuple[float, float, float]:
    """Accuracy, or minus the squared error; area under the ROC curve; number of features."""
    margins = np.clip(X @ w + b, -1e100, 1e100)
    features, labels = float(np.count_nonzero(w)), len(np.unique(y))
    if labels > 2:
        return -float(np.mean((margins - y) ** 2)), math.nan, features
    area = area_of(X, y, w, b) if labels > 1 else math.nan
    return float(np.mean((margins > 0.0) == (y > 0.0))), area, features


def features_left(
    rows: Rows, clock: Clock, loss: str = "logistic", few: bool = False, folds: int = 10,
    unit: float = 1.0,
) -> list[Figures]:  # fmt: skip
    """Figure 1 of Langford, Li and Zhang (NIPS 2008): features left without a loss of accuracy.

    Truncated gradient with K = 1 and theta = inf, explicit steps of one rate within a pass. Rate, decay
    of the rate after a pass, gravity and number of passes are chosen by cross-validation: the fewest
    features whose accuracy is at most one point below the best one without gravity (numbers: squared
    loss at most 1 % above), or whose area under the ROC curve is not below it. few : an eighth of the
    parameters; unit : rows of length 1 allow larger steps, by this factor, and smaller gravities
    """
    numbers = (1, 3, 10)
    rates, decays = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001), (1.0, 0.5)
    gravities = (0.0, *np.logspace(-4.0, -0.5, 11).tolist())
    if few:
        rates, decays = (0.1, 0.01, 0.001), (0.5,)  # type: ignore[assignment]
        gravities = (0.0, *np.logspace(-4.0, -0.5, 6).tolist())
    grid = [tuple(unit * rate for rate in rates), decays, tuple(g / unit for g in gravities)]
    n, found = len(rows.y), dict[Any, list[Any]]()
    fold = np.random.default_rng(1).permutation(n) % folds

    def learnt(some: Any, rate: float, decay: float, gravity: float) -> Any:
        given = {"alpha": gravity, "loss": loss, "rate": rate, "power": 0.0, "decay": decay}
        given |= {"step": "explicit", "period": 1}
        return truncated(rows.x[some], rows.y[some], max(numbers), **given)

    with clock:
        for k, *own in itertools.product(range(folds), *grid):
            held = fold == k
            for passes, w, b in learnt(~held, *own):
                if passes in numbers:
                    scores = found.setdefault((*own, passes), [])
                    scores.append(score(rows.x[held], rows.y[held], w, b))
    mean = {key: np.mean(own, axis=0) for key, own in found.items() if len(own) == folds}
    free = max((key for key in mean if key[2] == 0.0), key=lambda key: mean[key][0])
    best = mean[free]
    lost = 0.01 * (-best[0] if np.isnan(best[1]) else 1.0)
    picked = {"without gravity": free}
    near = [key for key, own in mean.items() if own[0] >= best[0] - lost]
    picked["1 % lost"] = min(near, key=lambda key: (mean[key][2], -mean[key][0]))
    if equal := [key for key, own in mean.items() if own[1] >= best[1]]:
        picked["equal AUC"] = min(equal, key=lambda key: (mean[key][2], -mean[key][1]))
    lines: list[Figures] = []
    for name, (*own, passes) in picked.items():
        w, b = next(point[1:] for point in learnt(slice(None), *own) if point[0] == passes)
        quality, area, features = score(rows.tests, rows.of_tests, w, b)
        lines.append({"line": name, "active": features, "accuracy": quality, "area": area,
                      "no noise": int(np.count_nonzero(w[: rows.notes["informative"]])),
                      "left": features / (lines[0]["active"] if lines else features),
                      "chosen": ", ".join(f"{value:.3g}" for value in (*own, passes))})  # fmt: skip
    return lines


def sparse_models(rows: Rows, clock: Clock, passes: int = 10) -> list[Figures]:
    """Figure 2 of the same paper: ways to sparse models, by area under the ROC curve and features.

    Truncated gradient with theta = inf and theta = g, rounding every K = 10 rows, sub-gradients of
    gravity 1e-4 that are rounded at the end, and the batch Lasso. The rate is the best of the
    unpenalised model on a fifth of the training rows.
    """
    import fcl

    X, y, n = rows.x, rows.y, len(rows.y)
    cut = n * 4 // 5

    def last(X: Any, y: Floats, rate: float, **options: Any) -> tuple[Floats, float]:
        given = {"alpha": 0.0, "step": "explicit", "period": 10, "rate": rate, **options}
        return list(truncated(X, y, passes, **given))[-1][1:]

    def cost(rate: float) -> float:
        w, b = last(X[:cut], y[:cut], rate)
        return float(np.logaddexp(0.0, -y[cut:] * (X[cut:] @ w + b)).mean())

    rate = best_rate(0.1, cost)
    data, found = rows.open(), dict[str, list[Any]]()

    def note(method: str, w: Floats, b: float) -> None:
        active = np.flatnonzero(w)
        noise = int((active >= rows.notes["informative"]).sum())
        own = found.setdefault(method, [])
        own.append((len(active), area_of(rows.tests, rows.of_tests, w, b), noise))

    with clock:
        for g in np.logspace(-6, -1, 16):
            note("theta = inf", *last(X, y, rate, alpha=g))
            note("theta = g", *last(X, y, rate, alpha=g, theta=g))
            model: Any = fcl.train(data, "columns", C=1.0 / (g * n), tol=1e-6).model
            note("batch Lasso (fcl)", *training.full_weights(model, X.shape[1]))
        for size in np.logspace(-4, 0.5, 16):
            note("rounding", *last(X, y, rate, truncation="round", theta=size))
            options = {"truncation": "subgradient", "theta": size, "alpha": 1e-4}
            note("sub-gradient, rounded at the end", *last(X, y, rate, **options))
    lines = []
    for method, values in found.items():
        most = max(values, key=lambda value: value[1])
        near = min(value for value in values if value[1] >= most[1] - 0.01)
        shown = sorted({value[:2] for value in values if value[0]})
        lines.append({"line": method, "area": most[1], "active": most[0], "within 0.01 of it": near[0],
                      "of them noise": near[2], "label": method, "panel": rows.notes["title"],
                      "curve": [[k for k, _ in shown], [area for _, area in shown]]})  # fmt: skip
    return lines


# -- dual cached loops ---------------------------------------------------------------------------------


def cached_loops(
    rows: Rows, clock: Clock, method: str = "fcl", part: int = 4, C: float = 0.1, steps: int = 64,
    ratio: int = 4, start: float = 0.01,
) -> Figures:  # fmt: skip
    """(P - P*) / P* against processor seconds: fcl, or loops with a cache of 1 / ``part`` of the rows.

    "fcl" and "DCL-SGD" minimise |w|_1 + C sum of logistic losses, "hinge" and "squared hinge" their own
    problems, with 1/2 |w|^2 and no intercept. "fcl, least memory" has the least budget that it accepts.
    The reader brings one row for ``ratio`` steps of the trainer. P* is fcl's optimum to a gap of 1e-6;
    of DCL it is the largest dual objective of this run and of one with all rows cached.
    """
    import fcl
    from fcl.errors import BudgetError
    from fcl.run.events import PassDone

    n, p = rows.x.shape
    if rows.is_few:
        steps = 1
    matrix = matrix_of(rows.x)
    found: Figures = {}
    points: list[tuple[float, float]] = []

    def watched(objective: Callable[[], float], train: Callable[[int], None], most: int) -> Any:
        """Seconds and objectives at n / 4 steps and each doubling; objectives are not timed."""
        taken, goal, seconds, own = 0, -(-n // 4), 0.0, []
        while taken < most * n:
            seconds += measured(clock, lambda now=goal - taken: train(now))[1]["processor"]  # type: ignore[misc]
            taken, goal = goal, min(2 * goal, most * n)
            own.append((seconds, objective()))
        return own

    if method.startswith("fcl"):
        memory: Any = "4GiB"
        if "least" in method:
            try:
                fcl.train(rows.open(), "columns", C=1.0, memory=1)
            except BudgetError as error:
                memory = error.smallest
        passes: list[Any] = []

        def note(event: Any) -> None:
            if isinstance(event, PassDone):
                points.append((time.process_time() - begun, event.objective))
                passes.append(event)

        fcl.train(rows.open(), "columns", C=0.1, tol=1e-2, memory=memory)  # compiles everything
        begun = time.process_time()
        with clock:
            fcl.train(
                rows.open(), "columns", C=C, tol=1e-6, memory=memory, max_time=600, progress=note
            )
        found = {"passes": len(passes), "most cached": max(e.cached for e in passes),
                 "evicted": sum(e.evicted for e in passes)}  # fmt: skip
        optimum = min(value for _, value in points)
    elif method == "DCL-SGD":
        optimum = optimum_of(rows, C, 1e-6)[1].certificate.objective
        problem = Batch(rows.x, rows.y, False)

        def descend(rate: float, most: int) -> Any:
            w, seen, cache = np.zeros(p), np.zeros(p), baselines.make_cache(n, n // part)

            def objective() -> float:
                own = baselines.settled(w, seen, cache)
                return float(np.abs(own).sum()) + C * n * problem.value(own)[0]

            given = (*matrix, rows.y, C, rate, ratio)
            return watched(objective, lambda k: baselines.train_l1(*given, k, w, seen, cache), most)

        found["rate"] = best_rate(start, lambda rate: descend(rate, min(steps, 8))[-1][1])
        points = descend(found["rate"], steps)
    else:
        squared = method == "squared hinge"
        norms = np.asarray(rows.x.multiply(rows.x).sum(axis=1)).ravel()

        def ascend(capacity: int, most: int) -> tuple[Any, float]:
            a, w, cache = np.zeros(n), np.zeros(p), baselines.make_cache(n, capacity)
            ends = rows.x, rows.y, C, squared, a, w
            given = (*matrix, rows.y, norms, C, squared, 1.0, ratio)
            own = watched(lambda: float(baselines.primal_and_dual(*ends)[0]),
                          lambda k: baselines.train_dual(*given, k, a, w, cache), most)  # fmt: skip
            return own, float(baselines.primal_and_dual(*ends)[1])

        _, best = ascend(n, 2 * steps)
        points, bound = ascend(n // part, steps)
        optimum = max(best, bound)
    away = [max((value - optimum) / optimum, 1e-7) for _, value in points]
    for level in (1e-1, 1e-3, 1e-6):
        near = [s for (s, _), a in zip(points, away, strict=True) if a <= level]
        found[f"away {level:g}"] = near[0] if near else "-"
    last = f"{away[-1]:.2g} at {points[-1][0]:.2g} s"
    return found | {"optimum": optimum, "end": last, "curve": [[s for s, _ in points], away],
                    "label": method if method.startswith("fcl") else f"{method}, cache 1/{part}",
                    "panel": f"{n:,} rows, C = {C:g}"}  # fmt: skip
