"""Online learners beside certified training, and in less memory, in seconds of the processor."""

from __future__ import annotations

import hashlib
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import commands, common, data, training
from tools.bench.common import median
from tools.bench.data import Floats, Rows
from tools.bench.runner import Clock, Figures, measured


def dense(size: int, point: tuple[Any, ...]) -> Floats:
    """The weights of a learner as a full vector."""
    w = np.zeros(size)
    w[point[0]] = point[1]
    return w


def optimum_of(rows: Rows, C: float, tol: float) -> tuple[Floats, Any]:
    """Weights of fcl's certified optimum of the penalised problem, and the model."""
    import fcl

    model: Any = fcl.train(rows.open(), "columns", C=C, tol=tol).model
    return dense(rows.x.shape[1], (model.ids, model.weights)), model


def news() -> Rows:
    """20 newsgroups, one group against the others, in random order."""
    return data.newsgroups().shuffled()


def long_sequences(n: int = 2000, length: int = 20_000) -> Rows:
    """Random sequences, in which half of the rows have 50 copies of each of 5 patterns, the others 40."""
    found: list[Any] = []
    for rows, seed in ((n, 1), (n // 2, 2)):
        random = np.random.default_rng(seed)
        codes = random.integers(0, 4, (rows, length), dtype=np.uint8)
        patterns = np.random.default_rng(0).integers(0, 4, (5, 6), dtype=np.uint8)
        y = random.integers(0, 2, rows)
        for row, label in zip(codes, y, strict=True):
            for pattern in patterns:
                starts = random.integers(0, length - 6, random.poisson(50 if label else 40))
                row[starts[:, None] + np.arange(6)] = pattern
        found += [codes, y]
    return Rows(found[0], found[1], "bag:d=6", tests=found[2], of_tests=found[3])


def which(
    rows: Rows, clock: Clock, method: str = "train", C: float = 0.1, rates: str = "0.0625",
    tol: float = 1e-3,
) -> Figures:  # fmt: skip
    """Certified training, or one pass of FTRL at the best of some rates, without its certificate."""
    import fcl
    from fcl.drivers.online.train import train_online

    data, few, rate = rows.open(), rows.few().open(), math.nan
    exact: Any = fcl.train(data, rows.features, C=C, tol=tol).model
    if method == "train":
        with clock:
            model: Any = fcl.train(data, rows.features, C=C, tol=tol).model
    else:
        learn = partial(train_online, features=rows.features, C=C, certify=False)
        learn(few, rate=0.01)
        found = {}
        for one in map(float, str(rates).split()):
            found[one] = measured(Clock(), lambda one=one: learn(data, rate=one).model)[0]  # type: ignore[misc]
        objectives = {one: fcl.certify(own, data, bound=exact, top=0).objective
                      for one, own in found.items()}  # fmt: skip
        rate = min(objectives, key=lambda one: objectives[one])
        with clock:
            model = learn(data, rate=rate).model
    certificate = fcl.certify(model, data, bound=exact, top=0).certificate
    above = certificate.objective / exact.certificate.bound - 1.0
    return {"rows/s": len(rows.y) / clock.processor, "above optimum": above, "rate": rate,
            "features": model.family.n_features, "active": len(model.ids),
            **training.test_scores(model, rows)}  # fmt: skip


def svmlight_stream(rows: Rows, clock: Clock, method: str = "online", C: float = 0.1) -> Figures:
    """svmlight lines in a pipe: ``fcl online -``, or ``fcl convert`` and ``fcl train``.

    Seconds are those of all processes, with their start, and the choice of the rate counts.
    """
    import fcl

    n, p = rows.x.shape
    lines = []
    for i, label in enumerate(rows.y):
        row = rows.x[[i]]
        cells = zip(row.indices, row.data, strict=True)
        lines.append(" ".join([f"{label:g}", *(f"{j + 1}:{x:g}" for j, x in cells)]))
    text = ("\n".join(lines) + "\n").encode()
    with tempfile.TemporaryDirectory() as name:
        out = ["--features", "columns", "--quiet", "--overwrite", "--out", f"{name}/model.fcl"]
        Path(name, "rows.svm").write_bytes(text)
        with clock:
            if method == "online":
                alpha = repr(1.0 / (C * n))
                commands.run_command(
                    ["online", "-", "--columns", str(p), "--alpha", alpha, *out], stdin=text
                )
            else:
                files = [f"{name}/rows.svm", f"{name}/rows.zarr"]
                commands.run_command(["convert", *files, "--columns", str(p), "--quiet"])
                given = ["--driver", "inline", "--C", str(C), "--tol", "1e-3"]
                commands.run_command(["train", files[1], *given, *out])
        model: Any = fcl.load_model(f"{name}/model.fcl")
    w = dense(p, (model.ids, model.weights))
    objective = fcl.certify((w, model.intercept), rows.open(), C=C, top=0).objective
    best = optimum_of(rows, C, 1e-6)[1].certificate.bound
    return {
        "rows/s": n / clock.processor,
        "active": len(model.ids),
        "above optimum": objective / best - 1.0,
    }


# -- learning in less memory ---------------------------------------------------------------------------


def learner(p: int, rate: float, method: str = "ogd", **options: Any) -> Any:
    """A learner without penalty, unless the options have one."""
    from fcl.online import OnlineOptions, make_learner

    return make_learner(method, p, OnlineOptions(**{"alpha": 0.0, "rate": rate, **options}))


def random_chunk(first: int, n: int, p: int, width: int = 100) -> tuple[Any, Any]:
    """Rows of random features, by their numbers; labels follow the parity of the first feature."""
    from fcl.features.rows import RowChunk

    ids = np.random.default_rng([7, first]).integers(0, p, (n, width))
    y = np.where(ids[:, 0] % 2, 1.0, -1.0)
    indptr = np.arange(n + 1, dtype=np.int64) * width
    return RowChunk(indptr, ids.ravel().astype(np.int32), np.ones(n * width, np.float32)), y


def updates(
    rows: None, clock: Clock, p: int = 1 << 22, weights: str = "q2.13", repeat: int = 5
) -> Figures:
    """Nanoseconds of processor time for an update: margin, count, step and rounding."""
    from fcl.online.ogd import Ogd

    chunk, y = random_chunk(0, 5000, p)
    one, y_of_one = random_chunk(0, 1, p)
    learner(p, 0.1, weights=weights).learn(one, y_of_one, np.ones(1), np.zeros(1))
    made, times = learner(p, 0.1, weights=weights), []
    for _ in range(repeat + 1):
        work = partial(made.learn, chunk, y, np.ones(len(y)), np.zeros(len(y)))
        times.append(1e9 * measured(clock, work)[1]["processor"] / len(chunk.ids))
    return {"MB": Ogd.bytes_for(p, made.options) / 1e6, "ns, first": times[0],
            "ns, later": median(times[1:])}  # fmt: skip


def huge(
    rows: None, clock: Clock, p: int = 10**9, n: int = 200_000, every: int = 50_000
) -> list[Figures]:
    """Learn 10^9 weights without interruption, and with a kill and a resumption; compare the tables."""
    context, lines = multiprocessing.get_context("spawn"), []
    common.MADE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=common.MADE) as folder:
        for name, kill in (("whole", 0), ("killed", n // 2 + every // 2), ("killed", 0)):
            ends = context.Pipe(duplex=False)
            given = (Path(folder, f"{name}.zip"), p, n, every, kill, ends[1])
            process = context.Process(target=learn_huge, args=given)
            with clock:
                process.start()
                ends[1].close()
                found = {} if kill else ends[0].recv()
                process.join()
            if kill:
                assert process.exitcode == -signal.SIGKILL
            else:
                lines.append({"line": "killed, resumed" if name == "killed" else name, **found})
    return lines


def learn_huge(state: Path, p: int, n: int, every: int, kill: int, out: Any) -> None:
    """Learn from the last checkpoint on; send the hash of the table, or kill this process in a row."""
    from fcl.online import OnlineOptions
    from fcl.online.ogd import Ogd

    made = Ogd(p, OnlineOptions(0.0, rate=0.1, weights="q2.13"))
    if state.exists():
        made.load(state)
    first, busy, block = made.rows, 0.0, 1000
    for at in range(first, n, block):
        chunk, y = random_chunk(at, block, p)
        before = time.perf_counter()
        made.learn(chunk, y, np.ones(block), np.zeros(block))
        busy += time.perf_counter() - before
        if kill and made.rows >= kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if made.rows % every == 0:
            made.save(state)
    digest = hashlib.sha256()
    for array in (made.weights, made.others, made.state):
        digest.update(array.view(np.uint8).data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    out.send({"bits": digest.hexdigest()[:8], "rows/s": (n - first) / busy, "from row": first,
              "peak": peak / common.MIB, "table, MB": Ogd.bytes_for(p, made.options) / 1e6,
              "touched": int(np.count_nonzero(made.others))})  # fmt: skip
