"""Projections onto the L1 ball, and the learners that use them; units: :mod:`online_common`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tools.bench import online_baselines as baselines
from tools.bench import peers
from tools.bench.data import Rows
from tools.bench.online_common import (
    LOSS,
    Floats,
    best_rate,
    chunk_of,
    dense,
    matrix_of,
    optimum_of,
)
from tools.bench.runner import Clock, Figures, measured

# -- projections ---------------------------------------------------------------------------------------


def by_sorting(v: Floats, z: float) -> Floats:
    """Figure 1 of the paper, as it is usually written in numpy."""
    size = np.abs(v)
    if size.sum() <= z:
        return v
    down = np.sort(size)[::-1]
    excess = np.cumsum(down) - z
    last = np.flatnonzero(down * np.arange(1, len(v) + 1) > excess)[-1]
    return np.sign(v) * np.maximum(size - excess[last] / (last + 1), 0.0)


def as_printed(v: Floats, z: float) -> Floats:
    """Figure 2 of the paper, as printed."""
    size = np.abs(v)
    if size.sum() <= z:
        return v
    theta = baselines.threshold_as_printed(size.copy(), len(v), z)
    return np.sign(v) * np.maximum(size - theta, 0.0)


def vector(kind: str, n: int) -> tuple[Floats, float]:
    """A vector of n numbers of a kind, and the radius, which the name of the kind has."""
    random = np.random.default_rng(0)
    normal = random.normal(size=n)
    makers: dict[str, Callable[[], Any]] = {
        "normal": lambda: normal,
        "99 % zeros": lambda: np.where(random.random(n) < 0.01, normal, 0.0),
        "ties of 1/4": lambda: np.round(4.0 * normal) / 4.0,
        "1e8 + uniform": lambda: 1e8 + random.random(n),
        "sorted upwards": partial(np.sort, normal),
        "sorted downwards": partial(np.copy, np.sort(normal)[::-1]),
        "constant": lambda: np.ones(n),
        "geometric": lambda: np.exp(-30.0 * np.arange(n) / n),
        "one nonzero": lambda: np.eye(1, n)[0] * 5.0,
        "Cauchy": lambda: random.standard_cauchy(n),
    }
    name, _, radius = kind.partition("; z = ")
    return makers[name](), 0.1 * n if radius == "n/10" else float(radius)


def project(
    rows: None, clock: Clock, kind: str = "normal; z = 100", method: str = "ball",
    sizes: str = "6 7", repeat: int = 5, scale: float = 1.0,
) -> Figures:  # fmt: skip
    """Nanoseconds of a projection for each number of vectors of 10^SIZE numbers, the least of calls.

    method : "ball", "simplex", "sorting", or "as printed"
    """
    from fcl.online import project_l1_ball, project_simplex

    methods = {"ball": project_l1_ball, "simplex": project_simplex, "sorting": by_sorting,
               "as printed": as_printed}  # fmt: skip
    call: Any = methods[method]
    assert method == "simplex" or np.allclose(
        call(np.arange(10.0), 3.0), by_sorting(np.arange(10.0), 3.0)
    )
    call(np.arange(10.0), 3.0)
    found: dict[float, float] = {}
    for power in map(float, str(sizes).split()):
        n = round(10.0**power)
        v, z = vector(kind, n)
        v, best, turns = scale * v, math.inf, max(1, 20_000 // n)
        for _ in range(repeat):
            since = time.process_time()
            with clock:
                for _ in range(turns):
                    call(v, z)
            best = min(best, (time.process_time() - since) / turns)
        found[power] = 1e9 * best / n
        if best > 10.0:  # longer vectors of this kind would take too long
            break
    curve = [[10.0**power for power in found], list(found.values())]
    return {**{f"10^{power:g}": ns for power, ns in found.items()}, "curve": curve,
            "panel": kind, "label": method}  # fmt: skip


# -- learners on the L1 ball ---------------------------------------------------------------------------


class Stochastic:
    """Learns rows, one or a batch at a time, by the heap or by exponentiated gradient (EG)."""

    def __init__(
        self, rows: Rows, z: float, method: str, rate: float, loss: str = "logistic", batch: int = 1
    ) -> None:
        from fcl.kernels.losses import LOGISTIC, SQUARED
        from fcl.online import OnlineOptions
        from fcl.online.ball import BallLearner

        self.z, self.method, self.rate, self.batch = z, method, rate, batch
        self.code = (SQUARED if loss == "squared" else LOGISTIC, 0.0, 0.0)
        self.squared, self.p = loss == "squared", rows.x.shape[1]
        step = "implicit" if method == "ball, implicit" else "explicit"
        options = OnlineOptions(alpha=0.0, radius=z, rate=rate, loss=loss, step=step, batch=batch)
        self.ball = BallLearner.kind_for(options)(self.p, options)
        if loss == "logistic":  # all begin with the log-odds of the classes
            share = float((rows.y > 0.0).mean())
            self.ball.start_at(math.log(share / (1.0 - share)))
        self.eg = baselines.make_eg(self.p) if method.startswith("EG") else None
        if self.eg is not None:
            self.eg[-1][baselines.INTERCEPT] = self.ball.intercept

    def learn(self, X: Any, y: Floats) -> tuple[float, float]:
        """Learn rows; returns the sums of losses and of errors, each before its update."""
        n = len(y)
        if self.eg is not None:
            power = 0.0 if self.method == "EG, constant rate" else 0.5
            given = (*matrix_of(X), y, 0, n, self.code, self.rate, 1.0, power, self.z, self.batch)
            losses, errors = baselines.descend_eg(*given, *self.eg)
            return float(losses), float(errors)
        margins = np.zeros(n)
        self.ball.learn(chunk_of(X), y, np.ones(n), margins)
        self.ball.end_pass()
        errors = float(np.count_nonzero(y * margins <= 0.0))
        if self.squared:
            return float(((margins - y) ** 2).sum()), errors
        return float(np.logaddexp(0.0, -y * margins).sum()), errors

    def operations_of_a_weight(self) -> float:
        """Operations of a weight that a step changes, without those of the gradient."""
        if self.eg is not None:
            return 6.0 + baselines.EXPONENTIAL
        return 2.0 + 2.0 * math.log2(2.0 + len(self.ball.point()[0]))

    @property
    def weights(self) -> Floats:
        """The weights, float64 (p,)."""
        if self.eg is not None:
            up, down, _, state = self.eg
            return np.asarray(self.z * (up - down) / state[baselines.TOTAL])
        return dense(self.p, self.ball.point())


def ball_stream(
    rows: Rows, clock: Clock, C: float = 1.0, start: float = 30.0, radius: float = 0.0
) -> list[Figures]:
    """Figure 8: losses and errors of one pass, each before its update, at the best rates.

    The radius is that of the least loss of the ball, as in the paper; the search begins at ``radius``, or
    at the norm of the optimum at C.
    """

    def paid(z: float, method: str, rate: float) -> float:
        return Stochastic(rows, z, method, rate).learn(rows.x, rows.y)[0]

    first = radius or float(np.abs(optimum_of(rows, C, 1e-6)[0]).sum())
    if rows.is_few:
        return [{"loss": paid(first, method, start)} for method in ("ball, implicit", "EG")]
    rates = [start]  # of one radius after another

    def least(z: float) -> float:
        rates.append(best_rate(rates[-1], partial(paid, z, "ball")))
        return paid(z, "ball", rates[-1])

    z, lines = best_rate(first, least), []
    seen = np.unique(rows.x.indices).size
    for method in ("ball", "ball, implicit", "EG", "EG, constant rate"):
        begin = rates[-1] / (10.0 if "constant" in method else 1.0)
        rate = best_rate(begin, partial(paid, z, method))
        learner = Stochastic(rows, z, method, rate)
        (total, errors), own = measured(clock, partial(learner.learn, rows.x, rows.y))
        lines.append({
            "line": method, "z": z, "rate": rate, "loss": total, "errors": errors / len(rows.y),
            "left": np.count_nonzero(learner.weights) / seen,
            "us a row": 1e6 * own["processor"] / len(rows.y),
        })  # fmt: skip
    return lines


def row_times(
    rows: Rows, clock: Clock, z: float = 0.0, rate: float = 30.0, n: int = 4000
) -> Figures:
    """Microseconds of a row by heap, tree, list and whole vector, timed on the second half of 2 n rows.

    z : the radius; 0: the norm of the optimum at C = 1
    """
    from fcl.online import OnlineOptions
    from fcl.online.ball import BallLearner

    z = z or float(np.abs(optimum_of(rows, 1.0, 1e-6)[0]).sum())
    n = min(n, len(rows.y) // 2)
    X, y, p = rows.x[: 2 * n], rows.y[: 2 * n], rows.x.shape[1]
    given = (*matrix_of(X), y)
    learner = BallLearner(p, OnlineOptions(alpha=0.0, radius=z, rate=rate, step="explicit"))
    found: Figures = {}
    for some in (slice(0, n), slice(n, 2 * n)):
        work = partial(learner.learn, chunk_of(X[some]), y[some], np.ones(n), np.zeros(n))
        found["heap"] = 1e6 * measured(clock, work)[1]["processor"] / n
    tree, state = baselines.make_tree(p), np.zeros(baselines.STATES)
    state[baselines.ROOT] = p
    w, listed, members = np.zeros(p), np.zeros(p, np.uint8), np.zeros(p, np.int64)
    v, out = np.zeros(p), np.zeros(p)
    states = np.zeros(baselines.STATES), np.zeros(baselines.STATES)
    runs: list[tuple[str, Any, tuple[Any, ...], int]] = [
        ("tree", baselines.descend_tree, (tree, state), n),
        ("list", baselines.descend_list, (w, listed, members, states[0]), n),
        ("whole vector", baselines.descend_dense, (v, out, states[1]), min(n, 200)),
    ]
    for name, descend, arrays, count in runs:
        if name == "whole vector":  # too slow for the first half: it begins with the list's weights
            v[:], states[1][:] = w, states[0]
        else:
            descend(*given, 0, n, LOSS, rate, z, *arrays)
        work = partial(descend, *given, n, n + count, LOSS, rate, z, *arrays)
        found[name] = 1e6 * measured(clock, work)[1]["processor"] / count
    k = len(X.indices) / X.shape[0]
    ratio, active = found["tree"] / max(found["heap"], 1e-9), len(learner.point()[0])
    return found | {"k": k, "active": active, "tree / heap": ratio,
                    "heap, ns a feature": 1e3 * found["heap"] / k}  # fmt: skip


class Batch:
    """Mean logistic or squared loss of rows of any matrix, at the best intercept of each w.

    X : float64 (n, p), dense or CSR; y : float64 (n,); squared : bool
    """

    def __init__(self, X: Any, y: Floats, squared: bool) -> None:
        self.X, self.y, self.squared = X, y, squared
        self.b = 0.0

    def value(self, w: Floats) -> tuple[float, Floats]:
        """Mean loss at w and its best intercept, and the gradient of it in w."""
        y, m = self.y, self.X @ w
        if self.squared:
            self.b = float(np.mean(y - m))
            r = 2.0 * (m + self.b - y)
            return float(np.mean((m + self.b - y) ** 2)), self.X.T @ r / len(y)
        for _ in range(100):  # Newton's steps for the intercept, which is one number
            p = 1.0 / (1.0 + np.exp(np.minimum(y * (m + self.b), 700.0)))
            step = float(np.clip((y * p).sum() / max((p * (1.0 - p)).sum(), 1e-12), -5.0, 5.0))
            self.b += step
            if abs(step) < 1e-14 * max(1.0, abs(self.b)):
                break
        p = 1.0 / (1.0 + np.exp(np.minimum(y * (m + self.b), 700.0)))
        value = float(np.mean(np.logaddexp(0.0, -y * (m + self.b))))
        return value, -(self.X.T @ (y * p)) / len(y)


class Iterate(NamedTuple):
    """A step of a batch method: mean loss, Frank-Wolfe gap, weights, passes over the rows so far."""

    value: float
    gap: float
    w: Floats
    passes: float


def gap_of(w: Floats, gradient: Floats, z: float) -> float:
    """An upper bound of f(w) - f* over the ball: <g, w> + z max |g| (Frank and Wolfe 1956).

    The gradient must be that at the best intercept.
    """
    return float(gradient @ w + z * np.abs(gradient).max())


def line_search(problem: Batch, z: float, p: int) -> Iterator[Iterate]:
    """Projected gradient; the step doubles, then halves until f lies below its quadratic model.

    "L1-Line" of section 7 of the paper. A pass multiplies the matrix by w, and its transpose by the
    slopes.
    """
    from fcl.online import project_l1_ball

    w, alpha, passes = np.zeros(p), 1.0, 1.0
    value, gradient = problem.value(w)
    while True:
        yield Iterate(value, gap_of(w, gradient, z), w, passes)
        alpha *= 2.0
        while True:
            new = project_l1_ball(w - alpha * gradient, z)
            move = new - w
            found, slopes = problem.value(new)
            passes += 1.0
            model = value + gradient @ move + move @ move / (2.0 * alpha)
            if found <= model + 1e-15 * abs(value) or alpha < 1e-18:
                break
            alpha /= 2.0
        if found > value:  # rounding: the optimum is reached to the last digit
            return
        w, value, gradient = new, found, slopes


def fixed_rates(problem: Batch, z: float, p: int, rate: float) -> Iterator[Iterate]:
    """Projected gradient, "L1-Batch"; step t has the length ``rate`` / sqrt(t)."""
    from fcl.online import project_l1_ball

    w, t = np.zeros(p), 0
    while True:
        value, gradient = problem.value(w)
        t += 1
        yield Iterate(value, gap_of(w, gradient, z), w, float(t))
        w = project_l1_ball(w - rate / math.sqrt(t) * gradient, z)


class Step(NamedTuple):
    """A point of a method, after so many operations and seconds; some methods only tell its loss."""

    operations: float
    seconds: float
    w: Floats | None
    value: float = np.nan


class Problem:
    """The mean loss of rows over the ball of radius z, the norm of w, which is its optimum.

    C : weight of the losses in the penalised problem whose optimum has the norm z
    """

    def __init__(self, rows: Rows, squared: bool, w: Floats, C: float) -> None:
        self.rows, self.squared = rows, squared
        X = rows.x
        is_dense = X.nnz > 0.5 * X.shape[0] * X.shape[1]
        self.mean = Batch(X.toarray() if is_dense else X, rows.y, squared)
        self.z, self.C, self.p = float(np.abs(w).sum()), C, len(w)
        self.optimum = self.mean.value(w)[0]
        self.first = self.mean.value(np.zeros(self.p))[0]
        self.entries = float(X.nnz)


def timed(steps: Iterator[tuple[float, Floats]]) -> Iterator[Step]:
    """Add the processor time of the steps."""
    seconds = 0.0
    while True:
        begun = time.process_time()
        step = next(steps, None)
        seconds += time.process_time() - begun
        if step is None:
            return
        yield Step(step[0], seconds, step[1])


def whole(problem: Problem, iterates: Iterator[Iterate]) -> Iterator[Step]:
    """Steps of methods that read all rows and project all weights."""
    each = 4.0 * problem.entries + 8.0 * problem.p
    return timed((iterate.passes * each, iterate.w) for iterate in iterates)


def exponentiated(problem: Problem, rate: float) -> Iterator[Step]:
    """Exponentiated gradient with the gradient of all rows."""
    p, z = problem.p, problem.z
    each = 4.0 * problem.entries + (6.0 + 2.0 * baselines.EXPONENTIAL) * p

    def steps() -> Iterator[tuple[float, Floats]]:
        both, t = np.full(2 * p, 0.5 / p), 0
        while True:
            yield t * each, z * (both[:p] - both[p:])
            t += 1
            change = rate / np.sqrt(t) * problem.mean.value(z * (both[:p] - both[p:]))[1]
            limit = baselines.MOST_EXPONENT
            both *= np.exp(np.clip(np.concatenate([-change, change]), -limit, limit))
            both /= both.sum()

    return timed(steps())


def stochastic(problem: Problem, method: str, batch: int, rate: float) -> Iterator[Step]:
    """Steps along the mean gradients of batches of rows; a point for each quarter of a pass."""
    X, y = problem.rows.x, problem.rows.y
    loss = "squared" if problem.squared else "logistic"
    learner = Stochastic(problem.rows, problem.z, method, rate, loss, batch)
    random = np.random.default_rng(1)
    operations = seconds = 0.0
    while True:
        yield Step(operations, seconds, learner.weights)
        for some in np.array_split(random.permutation(len(y)), 4):
            part, labels = X[some], y[some]
            begun = time.process_time()
            learner.learn(part, labels)
            seconds += time.process_time() - begun
            moved = min(part.nnz, -(-len(some) // batch) * problem.p)
            operations += 4.0 * part.nnz + learner.operations_of_a_weight() * moved
            yield Step(operations, seconds, learner.weights)


def descent(problem: Problem) -> Iterator[Step]:
    """Coordinate descent on the penalised problem; its points are projected, which is not timed."""
    from fcl.online import project_l1_ball

    y, n, squared = problem.rows.y, len(problem.rows.y), problem.squared
    X = problem.rows.x.tocsc()
    curvatures = np.asarray(X.multiply(X).sum(axis=0)).ravel() * (2.0 if squared else 0.25)
    w, operations, seconds = np.zeros(problem.p), 0.0, 0.0
    problem.mean.value(w)
    m = np.full(n, problem.mean.b)
    r = np.array([baselines.slope_of(squared, *pair) for pair in zip(y, m, strict=True)])
    given = (*matrix_of(X), y, squared, curvatures, 1.0 / (problem.C * n))
    while True:
        yield Step(operations, seconds, project_l1_ball(w, problem.z))
        begun = time.process_time()
        operations += baselines.sweep(*given, w, m, r)
        seconds += time.process_time() - begun


def interior_point(problem: Problem, most: int) -> Iterator[Step]:
    """Clarabel's own objective after each iteration; its points are feasible only at the end."""
    given = problem.rows.x, problem.rows.y, problem.z, problem.squared, most
    return (Step(*point[:2], None, point[2]) for point in peers.interior_point(*given))


class Limits(NamedTuple):
    """When a run ends: passes over the matrix that its operations would make, seconds, distance."""

    passes: float
    seconds: float
    least: float


def curve(problem: Problem, steps: Iterator[Step], limits: Limits) -> list[tuple[float, ...]]:
    """Operations, seconds and distances from the optimum."""
    found: list[tuple[float, ...]] = []
    for step in steps:
        value = step.value if step.w is None else problem.mean.value(step.w)[0]
        found.append((step.operations, step.seconds, abs(value - problem.optimum)))
        over = step.operations >= limits.passes * 4.0 * problem.entries
        if found[-1][2] <= limits.least or over or step.seconds >= limits.seconds:
            break
    return found


def ball_curve(
    rows: Rows, clock: Clock, method: str = "line search", loss: str = "logistic", C: float = 0.0,
    start: float = 1.0, passes: float = 200.0, seconds: float = 30.0, tuned: float = 4.0,
    levels: str = "0.1 0.01 0.001 0.0001",
) -> Figures:  # fmt: skip
    """Figures 4 to 6: 10^9 operations, and seconds, after which a method stays below a level.

    Parameters
    ----------
    method : str
        "line search", "descent", "interior point", or "ball" or "EG" with rows of a step: "ball 100".
    C : float
        0: 5 % of the penalty at which all weights are 0. The levels are then shares of f(0) - f*,
        otherwise of f*.
    start : float
        The rate of the first trial with the gradient of all rows.
    """
    squared, n, p = loss == "squared", len(rows.y), rows.x.shape[1]
    unit_is_optimum = C > 0.0
    if not C:
        _, gradient = Batch(rows.x, rows.y, squared).value(np.zeros(p))
        C = 1.0 / (0.05 * np.abs(gradient).max() * n)
    tol = 1e-6 if unit_is_optimum else 1e-9
    problem = Problem(rows, squared, optimum_of(rows, C, tol, loss)[0], C)
    unit = problem.optimum if unit_is_optimum else problem.first - problem.optimum
    limits = Limits(1.0 if rows.is_few else passes, seconds, 1e-6 * unit)
    kind, _, number = method.partition(" ")
    rate = math.nan
    runs: Any
    if kind in ("ball", "EG"):
        batch = n if number == "all" else math.ceil(n / 4) if number == "25%" else int(number)
        first = start / (1.0 if number == "all" else 10.0 if batch == 1 else 3.0)
        if squared and batch == 1:
            # the squared loss diverges at steps longer than 1 / (largest squared length of a row)
            first = 0.1 / n
        first *= 10.0 / problem.z if kind == "EG" else 1.0
        if number != "all":
            runs = partial(stochastic, problem, kind, batch)
        elif kind == "EG":
            runs = partial(exponentiated, problem)
        else:
            runs = lambda rate: whole(problem, fixed_rates(problem.mean, problem.z, p, rate))  # noqa: E731
        few = limits._replace(passes=40.0 if number == "all" else tuned, seconds=seconds / 4.0)
        if not rows.is_few:
            rate = best_rate(first, lambda rate: curve(problem, runs(rate), few)[-1][2])
        steps = runs(first if rows.is_few else rate)
    elif kind == "interior":
        limits = limits._replace(passes=np.inf, seconds=np.inf)
        steps = interior_point(problem, 100)
    elif kind == "descent":
        steps = descent(problem)
    else:
        steps = whole(problem, line_search(problem.mean, problem.z, p))
    with clock:
        found = curve(problem, steps, limits)
    figures: Figures = {
        "rate": None if math.isnan(rate) else rate,
        "least": min(step[2] for step in found) / unit,
    }
    for level in map(float, str(levels).split()):
        # the first time after which the distance stays below a level, since some methods rise again
        above = [k for k, step in enumerate(found) if step[2] > level * unit]
        last = above[-1] + 1 if above else 0
        reached = f"{found[last][0] / 1e9:.3g}, {found[last][1]:.2g}" if last < len(found) else "-"
        figures[f"level {level:g}"] = reached
    shown = found[1 :: -(-len(found) // 150)]
    figures["curve"] = [[max(step[0], 1e-9) for step in shown],
                        [max(step[2] / unit, 1e-7) for step in shown]]  # fmt: skip
    return figures | {"label": method, "panel": f"{loss}, n = {n:,}"}


def kernel_classes(
    rows: Rows, clock: Clock, method: str = "ball", steps: int = 1, n: int = 20_000,
    supports: int = 2766, z: float = 100.0, passes: int = 100,
) -> Figures:  # fmt: skip
    """Figure 7: projected against exponentiated gradient on ten classes with a kernel.

    mean_i log(1 + sum_{c != y_i} exp(k(x_i, c) - k(x_i, y_i))), k(x, c) = sum_s w_cs sigma_cs K(x_s, x)

    with sigma_cs = +1 if support s is of class c, else -1, K = exp(-|x - x'|^2 / 25), w_c >= 0 and
    sum_s w_cs <= z (equation 12). The supports are drawn with a seed, since the paper does not say how.
    A number beside each weight takes what is left of z, so that EG, whose numbers have a fixed sum,
    sees the same set. steps : steps of a pass
    """
    from fcl.online import project_l1_ball

    n, supports = min(n, len(rows.y)), min(supports, len(rows.y) // 2)
    order = np.random.default_rng(0).permutation(len(rows.y))
    x, y = rows.x[order], rows.y[order].astype(np.int64)
    own = x[:supports]
    sigma = np.where(y[:supports, None] == np.arange(10), 1.0, -1.0).astype(np.float32)

    def kernel_of(part: Any) -> Any:
        out = np.empty((len(part), supports), np.float32)
        for first in range(0, len(part), 4096):
            some = part[first : first + 4096]
            square = (some**2).sum(axis=1)[:, None] + (own**2).sum(axis=1) - 2.0 * some @ own.T
            out[first : first + 4096] = np.exp(-np.maximum(square, 0.0) / 25.0)
        return out

    def value(K: Any, y: Any, w: Floats) -> tuple[float, Floats, float]:
        scores = (K @ (sigma * w.astype(np.float32))).astype(np.float64)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        right = scores[np.arange(len(y)), y]
        wrong = float(np.mean(scores.argmax(axis=1) != y))
        scores[np.arange(len(y)), y] -= 1.0
        gradient = sigma * (K.T @ scores.astype(np.float32)) / len(y)
        return float(-np.log(np.maximum(right, 1e-300)).mean()), gradient.astype(float), wrong

    def run(K: Any, y: Any, rate: float) -> tuple[Floats, list[float]]:
        # the last line of w is what is left of the sum
        w = np.full((supports + 1, 10), 0.0 if method == "ball" else z / (supports + 1))
        losses, t, random = [value(K, y, w[:-1])[0]], 0, np.random.default_rng(1)
        for _ in range(passes):
            parts: Any = [slice(None)]
            if steps > 1:
                parts = np.array_split(random.permutation(len(y)), min(steps, len(y)))
            for some in parts:
                gradient = value(K[some], y[some], w[:-1])[1]
                t += 1
                step = rate / np.sqrt(t)
                if method == "ball":
                    w[:-1] -= step * gradient
                    for c in range(10):
                        w[:-1, c] = project_l1_ball(w[:-1, c], z, nonnegative=True)
                else:
                    w[:-1] *= np.exp(np.clip(-step * gradient, -30.0, 30.0))
                    w *= z / w.sum(axis=0)
            losses.append(value(K, y, w[:-1])[0])
        return w[:-1], losses

    K, y = kernel_of(x[:n]), y[:n]
    tenth = n // 10
    start = 100.0 if method == "ball" else 10.0
    rate = best_rate(start, lambda rate: run(K[:tenth], y[:tenth], rate)[1][-1])
    with clock:
        w, losses = run(K, y, rate)
    zeros = (w == 0.0).mean(axis=0)
    wrong = value(kernel_of(rows.tests), rows.of_tests.astype(np.int64), w)[2]
    return {"rate": rate, "zeros": f"{zeros.min():.0%}-{zeros.max():.0%}", "test error": wrong,
            "losses": " / ".join(f"{losses[k]:.4f}" for k in sorted({1, passes // 2, passes})),
            "curve": [[float(k) for k in range(len(losses))], losses], "label": method,
            "panel": "all rows a step" if steps == 1 else f"{steps} steps a pass"}  # fmt: skip
