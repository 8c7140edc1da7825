"""Online learners of fcl beside those of other libraries, and in less memory.

Seconds are processor time on one core. Rates are the best of a grid, whose ends are extended until the
best is inside.
"""

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
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import commands, common, data, peers, training
from tools.bench.common import median
from tools.bench.data import Floats, Rows
from tools.bench.runner import Clock, Figures, in_turns, measured

# -- rates, rows and optima ----------------------------------------------------------------------------


def best_rate(
    start: float, cost: Callable[[float], float], factor: float = math.sqrt(10.0)
) -> float:
    """The rate of a grid with the least cost; its ends are extended until the best is inside."""
    costs = {k: cost(start * factor**k) for k in (-1, 0, 1)}
    while True:
        best = min(costs, key=lambda k: costs[k])
        if min(costs) < best < max(costs):
            return float(start * factor**best)
        end = best - 1 if best == min(costs) else best + 1
        costs[end] = cost(start * factor**end)


def chunk_of(X: Any) -> Any:
    """The rows of a CSR matrix for a learner of fcl."""
    from fcl.features.rows import RowChunk

    return RowChunk(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)


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


def rows_of(name: str = "20news", every: int = 160, unit: bool = True) -> Rows:
    """The rows of a name, in random order.

    Parameters
    ----------
    name : str
        "20news" (one group against the others), "example" (all k-mers with d = 4 of examples/celegans),
        or "a9a".
    every : int
        Take every k-th window.
    unit : bool
        Scale the rows of 20 newsgroups to length 1.
    """
    from scipy import sparse

    if name == "20news":
        found = data.newsgroups(scale="unit" if unit else "")
    elif name == "a9a":
        found = data.a9a()
    else:
        found = data.example(every, every, 4)
        tests = sparse.csr_matrix(data.all_kmers(found.tests, 4))
        found = replace(found, x=data.all_kmers(found.x, 4), tests=tests)
    return found.shuffled()


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


# -- learners beside other libraries -------------------------------------------------------------------


def learner_of(rows: Rows, name: str, C: float, folder: Path) -> list[tuple[peers.Learn, float]]:
    """Learners of a name, of which the best counts, and the rate to begin with; 0: no choice."""
    from fcl.online import OnlineOptions, make_learner

    X, y = rows.x, rows.y
    if name.startswith("SGDClassifier"):
        rates = name.split()[1]
        return [(peers.online_sgd(X, y, C, rates), 0.0 if rates == "optimal" else 0.1)]
    if name == "vw --ftrl":
        return [(peers.online_vw(X, y, C, folder, True), 0.1)]
    if name == "vw --l1":
        return [(peers.online_vw(X, y, C, folder, False, s), 0.5) for s in (1.0, 0.1, 0.01)]
    if name == "river":
        return [(peers.online_river(X, y, C), 0.1)]
    method, _, step = name.partition(" ")
    chunk, ones = chunk_of(X), np.ones(len(y))
    odds = float(np.log((1.0 + np.sum(y > 0)) / (1.0 + np.sum(y < 0))))
    options: dict[str, Any] = {"step": step} if step else {}

    def learn(rate: float) -> tuple[Floats, float]:
        given = OnlineOptions(alpha=1.0 / (C * len(y)), rate=rate, **options)
        margins = np.zeros(len(y))
        begun = time.process_time()
        learner = make_learner(method, X.shape[1], given)
        learner.start_at(odds)
        learner.learn(chunk, y, ones, margins)
        learner.end_pass()
        point = learner.point()
        return dense(X.shape[1], point), time.process_time() - begun

    return [(learn, 0.3 if step == "implicit" else 0.1)]


def one_pass(
    rows: Rows, clock: Clock, learner: str = "ftrl", C: float = 0.1, repeat: int = 5,
    most_rows: int = 0,
) -> Figures:  # fmt: skip
    """One pass of an online learner at its best rate, that with the least objective after the pass.

    "train" is fcl's certified training to a gap of 1e-3. The intercept of every model is fitted before it
    is scored. most_rows : of river, which is slow; its rate is chosen on 1,000 rows
    """
    from scipy.optimize import minimize_scalar
    from sklearn.metrics import average_precision_score

    import fcl

    def fitted(w: Floats, own: Rows, C: float) -> tuple[float, float]:
        margins = own.x @ w
        found = minimize_scalar(lambda b: float(np.logaddexp(0.0, -own.y * (margins + b)).sum()))
        return float(found.x), float(np.abs(w).sum() + C * found.fun)

    n = len(rows.y)
    rate, count, times, w = math.nan, n, [], np.zeros(0)
    if learner == "train":
        w, own = measured(clock, lambda: optimum_of(rows, C, 1e-3)[0])
        times = [own["processor"]]
    else:
        few, few_C = rows, C
        if most_rows and most_rows < n:  # the same penalty for fewer rows
            rows_of = partial(Rows, tests=rows.tests, of_tests=rows.of_tests)
            few, few_C, count = rows_of(rows.x[:1000], rows.y[:1000]), C * n / 1000, most_rows
        with tempfile.TemporaryDirectory() as name:
            costs: dict[tuple[int, float], float] = {}
            choices = learner_of(few, learner, few_C, Path(name))
            for which, (learn, start) in enumerate(choices):

                def cost(rate: float, which: int = which, learn: Any = learn) -> float:
                    own = learn(rate)[0]
                    found = fitted(own, few, few_C)[1] if np.isfinite(own).all() else math.inf
                    costs[which, rate] = found
                    return found

                if start:
                    best_rate(start, cost)
            which, rate = min(costs, key=lambda key: costs[key]) if costs else (0, math.nan)
            learn = choices[which][0]
            if few is not rows:
                part = rows_of(rows.x[:count], rows.y[:count])
                learn, repeat = learner_of(part, learner, C * n / count, Path(name))[0][0], 1
            with clock:
                for _ in range(repeat):
                    w, seconds = learn(rate)
                    times.append(seconds)
    b, value = fitted(w, rows, C)
    best = optimum_of(rows, C, 1e-6)[1].certificate.objective
    optimality = fcl.certify((w, b), rows.open(), C=C, top=0)
    found = {"rate": rate, "rows/s": count / median(times), "above optimum": value / best - 1.0,
             "own gap": optimality.own_gap, "active": int(np.count_nonzero(w))}  # fmt: skip
    if rows.tests is not None:
        margins = rows.tests @ w + b
        found["test loss"] = float(np.logaddexp(0.0, -rows.of_tests * margins).mean())
        found["test error"] = float(np.mean((margins > 0) != (rows.of_tests > 0)))
        found["AUPRC"] = float(average_precision_score(rows.of_tests > 0, margins))
    point = [[found["rows/s"]], [max(found["above optimum"], 1e-4)]]
    return found | {"curve": point, "label": learner}


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


def auto_rate(
    rows: Rows, clock: Clock, method: str = "ftrl", C: float = 0.1, repeat: int = 5
) -> Figures:
    """``--rate auto``: its objective beside a grid with steps of 2, and what the choice costs."""
    import fcl
    from fcl.drivers.online.job import make_online_job
    from fcl.drivers.online.rates import choose_rate
    from fcl.drivers.online.train import train_online
    from fcl.options import OnlineOptions, OnlineRunOptions
    from fcl.parallel import one_blas_thread

    data = rows.open()
    best = optimum_of(rows, C, 1e-6)[1].certificate.bound
    job = make_online_job(data, "columns", OnlineOptions(1.0), OnlineRunOptions(method, C=C))

    def learnt(rate: Any) -> tuple[float, float]:
        model = train_online(data, "columns", C=C, method=method, rate=rate, certify=False).model
        above = fcl.certify(model, data, C=C, top=0).objective / best - 1.0
        return above, float(model.options["rate"])

    def choose() -> None:
        with one_blas_thread():
            choose_rate(job)

    auto, chosen = learnt("auto")
    grid = min(learnt(2.0**k) for k in range(-8, 3))
    learn = partial(train_online, data, "columns", C=C, method=method, rate=chosen, certify=False)
    with clock:
        times = in_turns({"choice": choose, "pass": learn}, repeat)
    share = median(times["choice"]) / median(times["pass"])
    return {"auto": chosen, "grid": grid[1], "above, auto": auto, "above, grid": grid[0],
            "choice / pass": share}  # fmt: skip


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
