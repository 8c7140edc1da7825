#!/usr/bin/env python3
"""Compare ``fcl train`` with one pass of ``fcl online``: generated k-mers, long sequences, a stream.

    python tools/bench/online/which.py [--cases kmers] [--d 6,8] [--every 4] [--C 0.1] [--repeat 3]
    python tools/bench/online/which.py --cases long,stream

Windows of C. elegans from examples/celegans: every k-th of train.zarr is learnt, and valid.zarr gives the
area under the precision-recall curve. Seconds are processor time on one core, the medians of runs that
take turns. Online learning includes neither its certificate nor the choice of its rate. The objective of
the online model is compared with the bound of the certified one.

``long``: bags of k-mers of d = 6 in 2,000 random sequences of 20,000 letters, of which the positive
ones have 50 copies of each of 5 patterns on average, the others 40; the rate is the best of a grid with
steps of 4.

``stream``: 20 newsgroups as svmlight lines in a pipe. ``fcl online -`` learns them as they come; ``fcl
train`` needs them in a file, which ``fcl convert`` makes. Seconds are those of all processes, with their
start, and the choice of the rate counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from tools.bench import common

EXAMPLE = common.ROOT / "examples" / "celegans"
#: Gap of the certified model, and rows on which everything is compiled.
GAP, FEW = 1e-3, 2000
#: Rate of online learning: the best of a grid with steps of 2 for d = 4 and every 8th window.
RATE = 0.0625
#: Rates of long sequences.
LONG_RATES = (0.0005, 0.002, 0.008, 0.03, 0.125)
HEADER = ("d", "features", "learner", "seconds", "rows/s", "above the bound", "weights", "AUPRC")


def windows(folder: Path, every: int) -> tuple[Any, Any]:
    """Every k-th window, uint8 (n, 141), and its label."""
    import zarr

    group = zarr.open_group(folder, mode="r")
    return np.asarray(group["X"])[::every], np.asarray(group["y"])[::every]


def rows_for(d: int, args: argparse.Namespace) -> list[list[object]]:
    """The lines of the table for k-mers of d letters."""
    from fcl.drivers.online.train import train_online
    from fcl.objective.metrics import average_precision

    codes, y = windows(args.data / "train.zarr", args.every)
    tests, of_tests = windows(args.data / "valid.zarr", 1)
    features = f"kmers:d={d}"
    data, few = fcl.open_data(codes, y=y), fcl.open_data(codes[:FEW], y=y[:FEW])
    learners: dict[str, Callable[[Any], Any]] = {
        f"fcl train to {GAP:g}": lambda rows: fcl.train(rows, features, C=args.C, tol=GAP),
        "fcl online, ftrl": lambda rows: train_online(
            rows, features, C=args.C, rate=args.rate, certify=False
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    models: dict[str, Any] = {}
    for turn in range(args.repeat + 1):
        for name, learn in learners.items():
            begun = time.process_time()
            models[name] = learn(data if turn else few).model
            if turn:  # the first compiles
                seconds[name].append(time.process_time() - begun)
                print(f"d = {d}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr)
    exact = next(iter(models.values()))
    lines: list[list[object]] = []
    for name, model in models.items():
        standing = fcl.certify(model, data, bound=exact, top=0)
        area = average_precision(of_tests > 0, model.margins(tests), np.ones(len(of_tests)))
        took = common.median(seconds[name])
        cells = [d, f"{model.family.n_features:,}", name, f"{took:.1f}", f"{len(y) / took:,.0f}"]
        above = standing.certificate.objective / exact.certificate.bound - 1.0
        lines.append([*cells, f"{above:.2%}", f"{len(model.ids):,}", f"{area:.3f}"])
    return lines


def long_sequences(n: int, length: int, seed: int) -> tuple[Any, Any]:
    """Codes, uint8 (n, length), in which half of the rows have more copies of some patterns."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 4, (n, length), dtype=np.uint8)
    patterns = np.random.default_rng(0).integers(0, 4, (5, 6), dtype=np.uint8)
    y = random.integers(0, 2, n)
    for row, label in zip(codes, y, strict=True):
        for pattern in patterns:
            starts = random.integers(0, length - 6, random.poisson(50 if label else 40))
            row[starts[:, None] + np.arange(6)] = pattern
    return codes, y


def of_long(args: argparse.Namespace) -> list[list[object]]:
    """The lines of the table for bags of k-mers in long sequences."""
    from fcl.drivers.online.train import train_online
    from fcl.objective.metrics import average_precision

    codes, y = long_sequences(2000, 20_000, 1)
    tests, of_tests = long_sequences(1000, 20_000, 2)
    data, few = fcl.open_data(codes, y=y), fcl.open_data(codes[:200], y=y[:200])

    def online(rows: Any, rate: float) -> Any:
        return train_online(rows, "bag:d=6", C=args.C, rate=rate, certify=False)

    def train(rows: Any) -> Any:
        return fcl.train(rows, "bag:d=6", C=args.C, tol=GAP)

    train(few)
    online(few, 0.01)
    models: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    learners: dict[str, Callable[[], Any]] = {f"fcl train to {GAP:g}": partial(train, data)}
    learners |= {f"rate {rate:g}": partial(online, data, rate) for rate in LONG_RATES}
    for name, learn in learners.items():
        runs = []
        for _ in range(args.repeat):
            begun = time.process_time()
            models[name] = learn().model
            runs.append(time.process_time() - begun)
        seconds[name] = common.median(runs)
    exact = models.pop(next(iter(models)))
    gaps = {name: fcl.certify(m, data, bound=exact, top=0).objective for name, m in models.items()}
    best = min(gaps, key=lambda name: gaps[name])
    lines: list[list[object]] = []
    for name, model in ((f"fcl train to {GAP:g}", exact), (best, models[best])):
        area = average_precision(of_tests > 0, model.margins(tests), np.ones(len(of_tests)))
        above = fcl.certify(model, data, top=0).objective / exact.certificate.bound - 1.0
        took = seconds[name]
        words = name if model is exact else f"fcl online, ftrl, {name}"
        cells = [
            "long",
            f"{model.family.n_features:,}",
            words,
            f"{took:.2f}",
            f"{len(y) / took:,.0f}",
        ]
        lines.append([*cells, f"{above:.2%}", f"{len(model.ids):,}", f"{area:.3f}"])
    return lines


def of_stream(args: argparse.Namespace) -> list[list[object]]:
    """The lines of the table for a pipe of svmlight lines."""
    import resource
    import subprocess
    import tempfile

    from fcl.objective.metrics import average_precision
    from tools.bench.online.peers import load

    case = load("20news", common.SHARED, args.C)
    n, p = case.X.shape
    text = "".join(
        " ".join(
            [f"{label:g}", *(f"{j + 1}:{x:g}" for j, x in zip(row.indices, row.data, strict=True))]
        )
        + "\n"
        for label, row in zip(case.y, (case.X[i] for i in range(n)), strict=True)
    ).encode()
    lines: list[list[object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fcl_command = [sys.executable, "-m", "fcl"]
        common_options = ["--features", "columns", "--quiet", "--overwrite"]
        stream = [*fcl_command, "online", "-", "--columns", str(p), *common_options]
        stream += ["--alpha", repr(case.alpha), "--out", str(folder / "online.fcl")]
        (folder / "rows.svm").write_bytes(b"")
        convert = [*fcl_command, "convert", str(folder / "rows.svm"), str(folder / "rows.zarr")]
        convert += ["--columns", str(p), "--overwrite", "--quiet"]
        train = [*fcl_command, "train", str(folder / "rows.zarr"), *common_options]
        train += ["--driver", "inline", "--C", str(args.C), "--tol", str(GAP)]
        train += ["--out", str(folder / "train.fcl")]

        def seconds(*commands: list[str]) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            for command in commands:
                given = text if command is stream else None
                subprocess.run(command, input=given, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        (folder / "rows.svm").write_bytes(text)
        took: dict[str, list[float]] = {"train": [], "online": []}
        for turn in range(args.repeat + 1):
            for key, commands in (("train", (convert, train)), ("online", (stream,))):
                spent = seconds(*commands)
                if turn:
                    took[key].append(spent)
        data = fcl.open_data(case.X, y=case.y)
        exact = fcl.train(data, "columns", C=args.C, tol=1e-6).certificate.bound
        for key, words in (("train", f"convert, fcl train to {GAP:g}"), ("online", "fcl online -")):
            model: Any = fcl.load_model(folder / f"{key}.fcl")
            own = (model.ids, model.weights, model.intercept)
            above = fcl.certify(own, data, C=args.C, top=0).objective / exact - 1.0
            scores = np.asarray(case.tests[:, model.ids] @ model.weights)
            area = average_precision(case.of_tests > 0, scores, np.ones(len(scores)))
            spent = common.median(took[key])
            cells = ["stream", f"{p:,}", words, f"{spent:.2f}", f"{n / spent:,.0f}", f"{above:.2%}"]
            lines.append([*cells, f"{len(model.ids):,}", f"{area:.3f}"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=EXAMPLE, help="default: examples/celegans")
    parser.add_argument("--cases", default="kmers", help="kmers, long, stream (default kmers)")
    parser.add_argument("--d", default="6,8", help="comma-separated (default 6,8)")
    parser.add_argument("--every", type=int, default=4, help="take every k-th row (default 4)")
    parser.add_argument("--C", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument(
        "--rate", type=float, default=RATE, help=f"of online learning (default {RATE})"
    )
    parser.add_argument("--core", type=int, help="number of the core to run on")
    args = parser.parse_args()
    common.pin(args.core)
    lines: list[list[object]] = []
    for case in args.cases.split(","):
        if case == "kmers":
            lines += [line for d in args.d.split(",") for line in rows_for(int(d), args)]
        else:
            lines += {"long": of_long, "stream": of_stream}[case](args)
    print(common.machine())
    print()
    print(common.table(HEADER, lines))


if __name__ == "__main__":
    main()
