#!/usr/bin/env python3
"""Random Fourier features: speed of pricing, and classification of digits with few features.

    python tools/bench/fourier.py speed
    python tools/bench/fourier.py speed --inputs 50 784 --kernel laplace
    python tools/bench/fourier.py speed --dtype float int8
    python tools/bench/fourier.py mnist --features 2048 --dtype int8

``speed`` counts one value for every row and feature: the cosine of an angle, multiplied by a residual and
summed, on one core. ``mnist`` trains even against odd digits with several values of C, and prints the
number of features in the model and the test error. For comparison it prints the test error of logistic
regression with a squared penalty on equally many random features, with the strength that is best on the
test rows, which favours that method.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

#: Rows of the priced block.
BLOCK = 65536
#: The values of --dtype, and the option ``dtype`` of the family.
NUMBERS = {"float": None, "int8": "int8"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", type=int, help="number of the core (default: the last)")
    commands = parser.add_subparsers(dest="what", required=True)
    fast = commands.add_parser("speed", help="values priced per second")
    fast.add_argument("--inputs", type=int, nargs="+", default=[10, 50, 784])
    fast.add_argument("--kernel", choices=["gaussian", "laplace"], default="gaussian")
    fast.add_argument("--dtype", choices=list(NUMBERS), nargs="+", default=["float"])
    fast.add_argument("--features", type=int, default=512, help="features in a call (default 512)")
    fast.add_argument("--repeat", type=int, default=7, help="runs (default 7)")
    digits = commands.add_parser("mnist", help="even against odd digits")
    digits.add_argument("--data", type=Path, default=common.SHARED / "mnist.npz")
    digits.add_argument("--rows", type=int, default=60000, help="training rows (default 60,000)")
    digits.add_argument("--features", type=int, default=4096, help="of the family (default 4,096)")
    digits.add_argument("--dtype", choices=list(NUMBERS), default="float")
    digits.add_argument("--C", type=float, nargs="+", default=[0.01, 0.03, 0.1])
    digits.add_argument("--tol", type=float, default=1e-2, help="relative gap (default 1e-2)")
    digits.add_argument("--memory", default="8GiB", help="budget (default 8GiB)")
    digits.add_argument("--max-time", type=float, help="seconds for each strength")
    args = parser.parse_args()
    common.pin(args.core)
    print(common.machine(), flush=True)
    with threadpool_limits(1):
        speed(args) if args.what == "speed" else mnist(args)


def speed(args: argparse.Namespace) -> None:
    """Print the values per second of each step of pricing."""
    from fcl.features import Fourier
    from fcl.kernels import fourier as kernels

    random = np.random.default_rng(0)
    print(
        f"\n{args.kernel} kernel, {BLOCK:,} rows, {args.features:,} features in a call; million "
        f"values per second of processor time (priced: also of wall-clock time); {args.repeat} "
        "runs: median (lowest-highest)\n"
    )
    lines = []
    for m, dtype in product(args.inputs, args.dtype):
        made = Fourier(n=args.features, kernel=args.kernel, dtype=NUMBERS[dtype])
        x = random.standard_normal((BLOCK, m))
        made.fit(x[:2000])
        block, r = made.prepare(x), random.standard_normal(BLOCK)
        tile = np.ascontiguousarray(random.standard_normal((256, 128)).astype(block.dtype))
        wave = np.ascontiguousarray(random.standard_normal((m, 128)).astype(block.dtype))
        sums, phases = np.zeros(128), np.zeros(128, block.dtype)
        n_tiles = BLOCK // 256 * max(1, args.features // 128)

        def price(made: Fourier = made, block: Any = block, r: Any = r) -> None:
            made.gradients(0, args.features, block, r)

        def angles(
            block: Any = block, wave: Any = wave, tile: Any = tile, n: int = n_tiles,
            product: Any = kernels.angles,
        ) -> None:  # fmt: skip
            for t in range(n):
                at = 256 * (t % (BLOCK // 256))
                product(np.asfortranarray(block[at : at + 256]), wave, tile)

        def blas(angles: Any = angles) -> None:
            angles(product=np.matmul)

        def cosines(
            tile: Any = tile, phases: Any = phases, r: Any = r, sums: Any = sums, n: int = n_tiles,
            value: Any = made._value, sums_of: Any = kernels.cosine_sums,
        ) -> None:  # fmt: skip
            for _ in range(n):
                sums_of(tile, phases, *value, r[:256], sums)

        row = [str(m), dtype]
        for step, values in (
            (price, args.features * BLOCK),
            (angles, n_tiles * 256 * 128),
            (blas, n_tiles * 256 * 128),
            (cosines, n_tiles * 256 * 128),
        ):
            step()
            rates, walls = [], []
            for _ in range(args.repeat):
                since, wall = time.process_time(), time.perf_counter()
                step()
                rates.append(values / (time.process_time() - since) / 1e6)
                walls.append(values / (time.perf_counter() - wall) / 1e6)
            row.append(common.spread(rates))
            if step is price:
                row.append(common.spread(walls))
        since = time.process_time()
        made._last = None
        for _ in made._range(0, args.features):
            pass
        row.append(f"{(time.process_time() - since) / (args.features * m) * 1e9:.0f} ns")
        lines.append(tuple(row))
    head = (
        "inputs",
        "dtype",
        "priced",
        "priced, wall clock",
        "angles alone",
        "angles by BLAS",
        "cosines and sums alone",
        "time for a frequency",
    )
    print(common.table(head, lines))


def mnist(args: argparse.Namespace) -> None:
    """Print the test error and the number of features for each C."""
    import fcl
    from fcl.features import Fourier

    with np.load(args.data) as digits:
        x, y = digits["train_x"].astype(np.float32) / 255.0, digits["train_y"]
        test_x, test_y = digits["test_x"].astype(np.float32) / 255.0, digits["test_y"]
    order = np.random.default_rng(0).permutation(len(x))[: args.rows]
    x, y = x[order], np.where(y[order] % 2 == 0, 1, -1)
    test_y = np.where(test_y % 2 == 0, 1, -1)
    # Pixels are not standardised: pixels that are nearly always 0 would get the largest scales.
    features = Fourier(n=args.features, standardise=False, dtype=NUMBERS[args.dtype])
    data = fcl.open_data(x, y=y)
    print(
        f"\n{len(x):,} rows, {args.features:,} Gaussian features ({args.dtype}), gap {args.tol:g}; "
        f"{len(test_x):,} test rows\n"
    )
    lines = []
    for C in args.C:
        since = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = fcl.train(
                data, features, C=C, tol=args.tol, memory=args.memory, max_time=args.max_time
            )
        model, seconds = result.model, time.perf_counter() - since
        fitted: Any = model.family
        margins = model.family.scorer(model.ids, model.weights).margins(test_x) + model.intercept
        error = np.mean(np.where(margins > 0.0, 1, -1) != test_y)
        ridge = squared_penalty(fitted.generator, len(model.ids), x, y, test_x, test_y)
        gap = result.certificate.gap
        lines.append(
            (f"{C:g}", f"{len(model.ids):,}", f"{error:.2%}", f"{ridge:.2%}", f"{gap:.1e}",
             f"{result.passes}", f"{seconds:.0f}")
        )  # fmt: skip
        print(*lines[-1], sep="  ", file=sys.stderr, flush=True)
    head = ("C", "active", "test error", "squared penalty, as many at random", "gap", "passes", "s")
    print(common.table(head, lines))


def squared_penalty(
    made: Any, k: int, x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray
) -> float:
    """Lowest test error of logistic regression with a squared penalty on the first k features."""
    from sklearn.linear_model import LogisticRegression

    phi, test = (made.columns(np.arange(k), made.prepare(rows)) for rows in (x, test_x))
    best = 1.0
    model = LogisticRegression(tol=1e-3, max_iter=200, warm_start=True)
    for C in (0.1, 1.0, 10.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.set_params(C=C).fit(phi, y)
        best = min(best, float(np.mean(model.predict(test) != test_y)))
    return best


if __name__ == "__main__":
    main()
