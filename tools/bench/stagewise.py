"""Calls of stagewise training: test errors after each block, beside classifiers; parts and memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import commands, common, peers
from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures

#: Kernel of pixels from 0 to 1, and number of principal components, as in examples/mnist.
GAMMA, COMPONENTS = 0.012, 50


def features_of(kind: str, n: int, gamma: float) -> Any:
    """The columns, cosines of components or of the rows themselves, random logits, or polynomials."""
    from fcl.features import Fourier

    if kind == "columns":
        return "columns"
    if kind == "cosines":
        return Fourier(n=n, gamma=gamma, pca=COMPONENTS)
    if kind == "plain cosines":
        return Fourier(n=n, gamma=gamma, standardise=False)
    made = import_module("examples.generators.random_features")
    if kind == "polynomials":
        return made.RandomPolynomials(n)
    return made.RandomLogits(n, scale=float(kind.removeprefix("logits ")))


def learn(
    rows: Rows, clock: Clock, kind: str, n: int, gamma: float, options: Figures
) -> list[Figures]:
    """Train on all rows, scoring the test rows after each block; the scores decide nothing."""
    import fcl
    from fcl.stagewise.settings import Settings
    from fcl.stagewise.train import StagewiseRunOptions, train_stagewise

    settings = Settings(valid_fraction=0.0, patience=1 << 30, memory="12GiB", **options)
    points: list[Figures] = []
    begun, processor = time.perf_counter(), time.process_time()

    def note(event: Any) -> None:
        if hasattr(event, "valid_error"):
            points.append({
                "line": f"block {event.number}", "test error": event.valid_error,
                "test loss": event.valid_loss, "seconds": time.perf_counter() - begun,
                "processor": time.process_time() - processor,
            })  # fmt: skip

    train, tests = rows.open(), fcl.open_data(rows.tests, y=rows.of_tests)
    with clock:
        running = StagewiseRunOptions(None, progress=note)
        train_stagewise(train, features_of(kind, n, gamma), settings, tests, running=running)
    return points


def table(
    rows: Rows, clock: Clock, kind: str = "columns", n: int = 0, gamma: float = GAMMA,
    update: str = "ls", visits: int = 1, inner: int = 0, rounds: int = 0, block: int = 0,
    alpha: float = 0.0, order: str = "", shown: str = "last",
) -> list[Figures]:  # fmt: skip
    """A stagewise model, with a line for its last block, for each visit of all, or for parts.

    shown : "last"; "quarters": after a quarter, half and all blocks; or numbers of blocks, as "3 20 60"
    """
    given = {"update": update, "visits": visits, "inner": inner, "rounds": rounds, "block": block,
             "alpha": alpha, "order": order}  # fmt: skip
    options = {name: value for name, value in given.items() if value}
    if rounds:
        options.pop("visits")
    points = learn(rows, clock, kind, n, gamma, options)
    if shown == "last":
        chosen = points[-1:]
    elif shown == "quarters":
        chosen = [points[max(0, round(s * len(points)) - 1)] for s in (0.25, 0.5, 1.0)]
    else:
        chosen = [points[int(number) - 1] for number in str(shown).split()]
    chosen[-1]["curve"] = [
        [p["processor"] for p in points],
        [100.0 * p["test error"] for p in points],
    ]
    return chosen


def peer(rows: Rows, clock: Clock, method: str, n: int = 0, gamma: float = GAMMA) -> list[Figures]:
    """A classifier on the rows, or on n cosines as scikit-learn makes them, whose time counts."""
    spent, points = Clock(), list[Figures]()
    x, tests = rows.x, rows.tests
    with spent:
        if n:
            x, tests = cosines_by_sklearn(rows, n, gamma)
    fits = peers.classifier(method)(x, rows.y)
    while True:
        own = Clock()
        with own:
            step = next(fits, None)
        if step is None:
            break
        what, predict = step
        if predict is None:
            continue
        spent.seconds += own.seconds
        spent.processor += own.processor
        error = float(np.mean(predict(tests) != rows.of_tests))
        points.append({"line": what, "test error": error, "processor": spent.processor,
                       "seconds": spent.seconds})  # fmt: skip
    errors = [100.0 * p["test error"] for p in points]
    points[-1]["curve"] = [[p["processor"] for p in points], errors]
    return points


def compared(
    rows: Rows, clock: Clock, method: str = "fcl", n: int = 0, kind: str = "columns",
    update: str = "ls", visits: int = 1, inner: int = 0, rounds: int = 0, block: int = 0,
    alpha: float = 0.0, order: str = "",
) -> list[Figures]:  # fmt: skip
    """A stagewise model of fcl, or another classifier on as many features."""
    if method != "fcl":
        return peer(rows, clock, method, n)
    return table(rows, clock, kind, n, GAMMA, update, visits, inner, rounds, block, alpha, order)


def cosines_by_sklearn(rows: Rows, n: int, gamma: float) -> tuple[Any, Any]:
    """n cosines of the training and of the test rows, float32."""
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.pipeline import make_pipeline

    sampler = RBFSampler(gamma=gamma, n_components=n, random_state=0)
    pipeline = make_pipeline(PCA(COMPONENTS, random_state=0), sampler)
    # RBFSampler scales its cosines by sqrt(2 / n); unit cosines are those of fcl
    scale = np.float32(np.sqrt(n / 2.0))
    x = (pipeline.fit_transform(rows.x) * scale).astype(np.float32)
    return x, (pipeline.transform(rows.tests) * scale).astype(np.float32)


def memory(
    folder: Path, clock: Clock, n: int = 50_000, update: str = "ls", visits: int = 1,
    memory: str = "2GiB", certify: bool = False, max_time: str = "",
) -> Figures:  # fmt: skip
    """``fcl stagewise`` on files: its peak memory beside the plan."""
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as name:
        options = ["stagewise", str(folder), "--overwrite", "--features", f"fourier:n={n}"]
        options += ["--out", f"{name}/model.fcl", "--update", update, "--visits", str(visits)]
        options += ["--memory", memory] + ["--certify"] * certify
        options += ["--max-time", max_time] if max_time else []
        command = [sys.executable, "-m", "fcl", *options, "--plan"]
        plan = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with clock:
            peak, _ = commands.run_command(options)
    total, budget = (int(line.split()[-1].replace(",", "")) for line in plan.splitlines()[-2:])
    return {"plan": total / common.MIB, "peak": peak / common.MIB, "peak / plan": peak / total,
            "problems": "above the budget" if peak > budget else "none"}  # fmt: skip
