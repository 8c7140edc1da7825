#!/usr/bin/env python3
"""Time projections onto the L1 ball against the dimension, and over kinds of vectors.

    python tools/bench/online/projections.py [--most 7] [--repeat 5] [--no-plot]

Projects vectors of 10^2 to 10^MOST numbers by fcl, by sorting (numpy), and by the search of Figure 2 as
its paper prints it, and draws nanoseconds for each number; then kinds of vectors of 10^6 numbers and of
the largest size. Figures are processor time, the least of ``repeat`` calls on one core, and include the
memory of the result.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from fcl.online import project_l1_ball, project_simplex
from tools.bench import common
from tools.bench.online import loops, picture

Floats = npt.NDArray[np.float64]
#: If one call takes longer, a method is not tried on longer vectors of this kind.
LIMIT = 10.0


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
    theta = loops.threshold_as_printed(size.copy(), len(v), z)
    return np.sign(v) * np.maximum(size - theta, 0.0)


METHODS: dict[str, Callable[[Floats, float], Floats]] = {
    "fcl": project_l1_ball,
    "sorting (numpy)": by_sorting,
    "Figure 2 as printed": as_printed,
}


def kinds(n: int) -> dict[str, tuple[Floats, float]]:
    """Vectors of ``n`` numbers with radii, by kind."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=n)
    mean = 0.1 * n
    return {
        "normal, z = 100": (normal, 100.0),
        "normal, z = n/10": (normal, mean),
        "99 % zeros, z = 100": (np.where(rng.random(n) < 0.01, normal, 0.0), 100.0),
        "ties of 1/4, z = 100": (np.round(4.0 * normal) / 4.0, 100.0),
        "1e8 + uniform, z = 100": (1e8 + rng.random(n), 100.0),
        "sorted upwards, z = n/10": (np.sort(normal), mean),
        "sorted downwards, z = n/10": (np.sort(normal)[::-1].copy(), mean),
        "constant, z = 100": (np.ones(n), 100.0),
        "geometric, z = 100": (np.exp(-30.0 * np.arange(n) / n), 100.0),
        "one nonzero, z = 1": (np.eye(1, n)[0] * 5.0, 1.0),
        "Cauchy, z = 100": (rng.standard_cauchy(n), 100.0),
    }


def nanoseconds(
    project: Callable[[Floats, float], Floats], v: Floats, z: float, repeat: int
) -> float:
    """The least time of a call for each number of the vector."""
    best, calls = np.inf, max(1, 20_000 // len(v))
    for _ in range(repeat):
        begun = time.process_time()
        for _ in range(calls):
            project(v, z)
        best = min(best, (time.process_time() - begun) / calls)
        if best > LIMIT:
            break
    return 1e9 * best / len(v)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--most", type=int, default=7, help="largest power of 10 (default 7)")
    parser.add_argument("--repeat", type=int, default=5, help="calls (default 5)")
    parser.add_argument("--no-plot", action="store_true", help="print the tables alone")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    common.pin(args.core)
    print(common.machine(), flush=True)
    for name, project in METHODS.items():
        found = project(np.arange(10.0), 3.0)
        assert np.allclose(found, by_sorting(np.arange(10.0), 3.0)), name
    project_simplex(np.arange(10.0), 3.0)
    panels: dict[str, dict[str, picture.Curve]] = {}
    for kind in ("normal, z = 100", "99 % zeros, z = 100"):
        panels[kind] = {}
        for name, project in METHODS.items():
            sizes = [
                float(n) for n in np.unique(np.round(np.logspace(2, args.most, 2 * args.most - 3)))
            ]
            taken: list[float] = []
            for n in sizes:
                v, z = kinds(int(n))[kind]
                # times 100, so that the shortest vectors with many zeros are outside the ball, too
                taken.append(nanoseconds(project, 100.0 * v, z, args.repeat))
                if taken[-1] * n > 1e9 * LIMIT:
                    break
            panels[kind][name] = (sizes[: len(taken)], taken)
            line = "  ".join(f"{n:.0e}: {t:.1f}" for n, t in zip(sizes, taken, strict=False))
            print(f"{kind:22s} {name:20s} ns a number: {line}", flush=True)
    for power in sorted({6, args.most}):
        rows = []
        for kind, (v, z) in kinds(10**power).items():
            some = [
                nanoseconds(project, v, z, args.repeat)
                for project in (project_l1_ball, project_simplex)
            ]
            some.append(nanoseconds(by_sorting, v, z, min(args.repeat, 3)))
            rows.append([kind, *(f"{t:.1f}" for t in some)])
        header = [f"10^{power} numbers, ns each", "ball", "simplex", "ball by sorting"]
        print(common.table(header, rows), flush=True)
    if not args.no_plot:
        picture.draw("projections", panels, "numbers in the vector", "nanoseconds for each number")


if __name__ == "__main__":
    main()
