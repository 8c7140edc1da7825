"""Projections onto the L1 ball and the simplex."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tools.bench.data import Floats
from tools.bench.runner import Clock, Figures


def by_sorting(v: Floats, z: float) -> Floats:
    """Figure 1 of the paper, as it is usually written in numpy."""
    size = np.abs(v)
    if size.sum() <= z:
        return v
    down = np.sort(size)[::-1]
    excess = np.cumsum(down) - z
    last = np.flatnonzero(down * np.arange(1, len(v) + 1) > excess)[-1]
    return np.sign(v) * np.maximum(size - excess[last] / (last + 1), 0.0)


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
    sizes: str = "6 7", repeat: int = 5,
) -> Figures:  # fmt: skip
    """Nanoseconds of a projection for each number of vectors of 10^SIZE numbers, the least of calls.

    method : "ball", "simplex" or "sorting"
    """
    from fcl.online import project_l1_ball, project_simplex

    methods = {"ball": project_l1_ball, "simplex": project_simplex, "sorting": by_sorting}
    call: Any = methods[method]
    assert method == "simplex" or np.allclose(
        call(np.arange(10.0), 3.0), by_sorting(np.arange(10.0), 3.0)
    )
    call(np.arange(10.0), 3.0)
    found: dict[float, float] = {}
    for power in map(float, str(sizes).split()):
        n = round(10.0**power)
        v, z = vector(kind, n)
        best, turns = math.inf, max(1, 20_000 // n)
        for _ in range(repeat):
            since = time.process_time()
            with clock:
                for _ in range(turns):
                    call(v, z)
            best = min(best, (time.process_time() - since) / turns)
        found[power] = 1e9 * best / n
        if best > 10.0:  # longer vectors of this kind would take too long
            break
    return {f"10^{power:g}": ns for power, ns in found.items()}
