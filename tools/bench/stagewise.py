#!/usr/bin/env python3
"""Stagewise models on MNIST and 20 newsgroups: errors, seconds, memory, and other libraries beside them.

    python tools/bench/stagewise.py table [--features 0 4000 8000] [--steps 50] [--rounds 3 20 60]
    python tools/bench/stagewise.py curve [--features 20480] [--blocks 512 1024] [--plot curve.svg]
    python tools/bench/stagewise.py peers [--features 4096] [--methods ridge sgd vw liblinear-1]
    python tools/bench/stagewise.py text [--split date random] [--methods ...] [--plot text.svg]
    python tools/bench/stagewise.py generators [--features 1024 2048 4096]
    python tools/bench/stagewise.py profile [--features 8192] [--visits 3]
    python tools/bench/stagewise.py memory [--rows 1000000] [--features 50000] [--update ls] [--certify]

``table``, ``curve`` and ``text`` repeat table 1, figure 1 and table 2a of Agarwal, Kakade,
Karampatziakis, Song and Valiant, "Least squares revisited" (ICML 2014). Errors are of the test rows, on
which no training depends. Seconds are of the processor, over all threads, or of the clock, as the headers
say. mnist.npz and 20news_* are expected in shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common, stagewise_peers, stagewise_work
from tools.bench.stagewise_data import (
    GAMMA,
    Point,
    Split,
    components,
    draw,
    mnist,
    news,
    stagewise,
)


def main() -> None:
    args = parse()
    print(common.machine(), flush=True)
    commands: dict[str, Callable[[argparse.Namespace], None]] = {
        "table": table,
        "curve": curve,
        "peers": peers,
        "text": text,
        "generators": generators,
        "profile": stagewise_work.profile,
        "memory": stagewise_work.memory,
    }
    commands[args.what](args)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("table", help="table 1: linear, logistic, calibrated")
    one.add_argument("--features", type=int, nargs="+", default=[0, 4000, 8000], help="0: pixels")
    one.add_argument("--steps", type=int, nargs="+", default=[50], help="of the logistic model")
    one.add_argument(
        "--rounds", type=int, nargs="+", default=[3, 20, 60], help="of the calibrated model"
    )
    one.add_argument("--gamma", type=float, default=0.006, help="of the cosines (default 0.006)")
    two = commands.add_parser("curve", help="figure 1: error against time")
    two.add_argument("--features", type=int, default=20480)
    two.add_argument("--blocks", type=int, nargs="+", default=[512, 1024])
    three = commands.add_parser("peers", help="MNIST, other libraries on as many features")
    three.add_argument("--features", type=int, default=4096)
    four = commands.add_parser("text", help="table 2a: 20 newsgroups, beside other libraries")
    four.add_argument("--split", nargs="+", choices=["date", "random"], default=["date", "random"])
    four.add_argument("--alpha", type=float, default=30.0)
    four.add_argument("--blocks", type=int, nargs="+", default=[500, 2000])
    for command in (three, four):
        known = list(stagewise_peers.METHODS)
        command.add_argument("--methods", nargs="*", choices=known, default=known)
        command.add_argument("--adelie", metavar="PYTHON", help="an interpreter that has adelie")
        command.add_argument("--limit", type=float, default=600, help="seconds of adelie (600)")
    for command in (two, three, four):
        command.add_argument(
            "--plot",
            type=Path,
            help="error against seconds: NAME.svg draws NAME-light.svg and -dark",
        )
    seven = commands.add_parser("generators", help="cosines, random logits and polynomials")
    seven.add_argument("--features", type=int, nargs="+", default=[1024, 2048, 4096])
    five = commands.add_parser("profile", help="where the time goes")
    five.add_argument("--features", type=int, default=8192)
    five.add_argument("--visits", type=int, default=3)
    six = commands.add_parser("memory", help="peak memory beside the plan, on generated rows")
    six.add_argument("--rows", type=int, default=1_000_000)
    six.add_argument("--features", type=int, default=50_000)
    six.add_argument("--inputs", type=int, default=20)
    six.add_argument("--classes", type=int, default=10)
    six.add_argument("--update", choices=["ls", "gls", "cls"], default="ls")
    six.add_argument("--visits", type=int, default=1)
    six.add_argument("--memory", default="2GiB")
    six.add_argument("--certify", action="store_true")
    six.add_argument("--max-time", help="begin no block after this time, such as 2m")
    for command in (one, two, three, four, five, seven):
        command.add_argument("--rows", type=int, help="use this many training rows")
    for command in (one, two, three, four, five, six, seven):
        command.add_argument("--cores", type=int, help="threads of fcl (default: all cores)")
    return parser.parse_args()


# -- MNIST -----------------------------------------------------------------------------------------


def table(args: argparse.Namespace) -> None:
    """Print the test error of models of all pixels, or of as many cosines, in one block."""
    data, lines = mnist(args.rows), []
    for n in args.features:
        width = n or data.x.shape[1]
        runs: list[tuple[str, dict[str, Any]]] = [("linear", {"update": "ls", "visits": 1})]
        for steps in args.steps:
            options = {"update": "gls", "inner": steps, "visits": 1}
            runs.append((f"logistic, {steps} steps", options))
        most = max(args.rounds)
        runs.append(("calibrated", {"update": "cls", "rounds": most}))
        for name, options in runs:
            points = stagewise(data, n, block=width, cores=args.cores, gamma=args.gamma, **options)
            for rounds in args.rounds if name == "calibrated" else [len(points)]:
                found, text = points[rounds - 1], f", {rounds} rounds" * (name == "calibrated")
                lines.append([f"{n:,} cosines" if n else "pixels", name + text, f"{found.error:.2%}",
                              f"{found.processor:.1f}", f"{found.clock:.1f}"])  # fmt: skip
                print(*lines[-1], sep="  ", file=sys.stderr, flush=True)
    header = ["features", "model", "test error", "processor, s", "clock, s"]
    print(common.table(header, lines))


def curve(args: argparse.Namespace) -> None:
    """Print, and draw, the test error after each block."""
    data = mnist(args.rows)
    models: dict[str, dict[str, Any]] = {
        "linear": {"update": "ls", "visits": 1},
        "calibrated, 1 round": {"update": "cls", "rounds": 1},
        "calibrated, 3 rounds": {"update": "cls", "rounds": 3},
        "logistic": {"update": "gls", "visits": 1},
        "linear, 3 visits": {"update": "ls", "visits": 3},
    }
    curves, lines = {}, []
    for block in args.blocks:
        for name, options in models.items():
            points = stagewise(data, args.features, block=block, cores=args.cores, **options)
            curves[f"{name}, blocks of {block:,}"] = points
            for share in (0.25, 0.5, 1.0):
                at = points[max(0, round(share * len(points)) - 1)]
                lines.append([f"{block:,}", name, f"{share:.0%}", f"{at.error:.2%}",
                              f"{at.loss:.4f}", f"{at.clock:.1f}"])  # fmt: skip
            print(*lines[-1], sep="  ", file=sys.stderr, flush=True)
    print(
        common.table(
            ["block", "model", "blocks done", "test error", "test loss", "clock, s"], lines
        )
    )
    if args.plot:
        draw(curves, args.plot, "seconds", "test error on MNIST")


def peers(args: argparse.Namespace) -> None:
    """Print, and draw, error against processor seconds of other libraries on as many features."""
    data, curves = mnist(args.rows), {}
    models: dict[str, dict[str, Any]] = {
        "fcl, linear": {"update": "ls", "visits": 3},
        "fcl, calibrated": {"update": "cls", "rounds": 3},
        "fcl, logistic": {"update": "gls", "visits": 1, "inner": 5},
    }
    for name, options in models.items():
        curves[name] = _said(name, stagewise(data, args.features, cores=args.cores, **options))
    wide = stagewise(data, 6 * args.features, cores=args.cores, update="ls", visits=3)
    curves["fcl, linear, six times the features"] = wide
    for method in args.methods:
        points = stagewise_peers.on_cosines(method, data, args.features, GAMMA)
        curves[method] = _said(method, points)
    if args.adelie:
        x, test_x = stagewise_peers.sampled(data, args.features, GAMMA)
        rows = Split(x, data.y, test_x, data.test_y)
        curves["adelie"] = stagewise_peers.adelie(args.adelie, rows, 20, 0.02, args.limit)
    _show(curves, args.plot, "test error on MNIST")


def generators(args: argparse.Namespace) -> None:
    """Print the test error of as many features of several kinds, of the components of pixels."""
    from fcl.features import Fourier

    made = import_module("examples.generators.random_features")
    data, lines = components(mnist(args.rows)), []
    kinds: dict[str, Callable[[int], Any]] = {
        "cosines": lambda n: Fourier(n=n, gamma=0.006, standardise=False),
        **{f"logits, scale {s}": partial(made.RandomLogits, scale=float(s)) for s in (0.5, 1, 2)},
        "polynomials": made.RandomPolynomials,
    }
    for n in args.features:
        for name, kind in kinds.items():
            found = stagewise(data, 0, args.cores, features=kind(n), update="ls", visits=3)[-1]
            lines.append([f"{n:,}", name, f"{found.error:.2%}", f"{found.processor:.1f}"])
            print(*lines[-1], sep="  ", file=sys.stderr, flush=True)
    print(common.table(["features", "kind", "test error", "processor, s"], lines))


# -- 20 newsgroups -----------------------------------------------------------------------------------


def text(args: argparse.Namespace) -> None:
    """Print, and draw, error against processor seconds on logarithms of the counts of words."""
    for split in args.split:
        data, curves = news(split), {}
        print(f"\n{split}: {data.x.shape[0]:,} rows, {data.x.shape[1]:,} words\n")
        for block in args.blocks:
            for order in ("random", "gradient"):
                curves[f"fcl, blocks of {block:,}, {order}"] = stagewise(
                    data, 0, block=block, alpha=args.alpha, visits=2, cores=args.cores, order=order
                )
        for method in args.methods:
            curves[method] = stagewise_peers.on_rows(method, data)
        if args.adelie:
            curves["adelie"] = stagewise_peers.adelie(args.adelie, data, 20, 0.02, args.limit)
        plot = args.plot and args.plot.with_stem(f"{args.plot.stem}-{split}")
        _show(curves, plot, "test error on 20 newsgroups")


def _lines(name: str, points: list[Point]) -> list[list[str]]:
    return [
        [name, point.what, f"{point.error:.2%}", f"{point.processor:.1f}", f"{point.clock:.1f}"]
        for point in (points if len(points) < 5 else points[-1:])
    ]


def _said(name: str, points: list[Point]) -> list[Point]:
    """The points of a solver, after they were printed: other solvers may take long."""
    for line in _lines(name, points):
        print(*line, sep="  ", file=sys.stderr, flush=True)
    return points


def _show(curves: dict[str, list[Point]], plot: Path | None, label: str) -> None:
    lines = [line for name, points in curves.items() for line in _lines(name, points)]
    print(common.table(["solver", "after", "test error", "processor, s", "clock, s"], lines))
    if plot:
        draw(curves, plot, "processor seconds", label)


if __name__ == "__main__":
    main()
