"""Compile the kernels of each kind of family once, so that later runs only load them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.cache import ColumnCache
from fcl.config import silence
from fcl.data import open_data
from fcl.data.sparse import SparseRows
from fcl.drivers.kinds import KINDS_VARIABLE
from fcl.drivers.online.train import train_online
from fcl.drivers.processes.logic.protocol import CompileStarted
from fcl.drivers.train import train
from fcl.errors import ConvergenceWarning
from fcl.features.base import DenseColumns, ListedColumns, StepColumns
from fcl.features.generator.forms import SparseColumns
from fcl.objective import SoftmaxOutputs, find_loss
from fcl.solve import clipped, coupled_exact, inner_descent, single

if TYPE_CHECKING:
    from fcl.drivers.processes.child import ChildLink


class Compiler:
    """The role of a short-lived child that only compiles, since compilers retain memory."""

    def __init__(self, link: ChildLink) -> None:
        self._link = link

    def run(self) -> None:
        """Compile the kinds in KINDS_VARIABLE; report when the first compilation starts."""
        with silence(), kernels.compilation.Compilation(lambda: self._link.send(CompileStarted())):
            warmup(os.environ[KINDS_VARIABLE].split(","))


def warmup(kinds: Iterable[str] | None = None) -> None:
    """Train and predict on a few synthetic rows, in every way that calls another kernel.

    kinds : keys of :data:`KINDS`; None for all.
    """
    kinds = KINDS if kinds is None else kinds
    with silence():  # each of these trainings compiles something
        _cache()
        for kind in kinds:
            KINDS[kind]()
            kernels.compilation.mark_compiled(kind)


@contextmanager
def _coordinate_descent() -> Iterator[None]:
    """Solve small problems by coordinate descent, as large ones are solved."""
    values = {
        (single, "CHEAP_HESSIAN"): 0,
        (clipped, "MOST_ENTRIES"): 0,
        (inner_descent, "LONG_SWEEP"): 0,
        (inner_descent, "EXTRAPOLATE_FROM"): 1,
        (coupled_exact, "MOST_WEIGHTS"): 0,
    }
    before = {place: getattr(*place) for place in values}
    for (module, name), value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def _windows() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Codes, uint8 (256, 16), a few of them unknown, and labels that depend on them."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 4, (256, 16)).astype(np.uint8)
    labels = np.where(codes[:, 5] == 2, 1, -1)
    labels[:16] = -labels[:16]
    codes[::7, 3] = 4
    return codes, labels


def _train(
    rows: Any,
    labels: Any,
    features: str,
    loss: str = "logistic",
    standardize: bool = False,
    row_view: str | int = "auto",
) -> Any:
    """Train on synthetic rows with either solver of the local problem, and predict."""

    def trained() -> Any:
        return train(
            open_data(rows, y=labels),
            features,
            C=1.0,
            loss=loss,
            standardize=standardize,
            row_view=row_view,
            tol=1e-2,
            block_rows=128,
            memory="1GiB",
            valid=0.2,
        ).model

    trained()
    with _coordinate_descent():
        model = trained()
    model.margins(rows)
    return model


def _sequences() -> None:
    codes, labels = _windows()
    _train(codes, np.arange(len(codes)) % 3, "kmers:d=5", "softmax")
    # short patterns: unknown letters are frequent enough to be a fifth letter; long ones: some tables
    # would be too large
    for features, loss in (
        ("kmers:d=3", "logistic"),
        ("kmers:d=3", "squared"),
        ("bag:d=3,strands=both", "logistic"),
        ("bag:d=3,value=presence", "logistic"),
        ("bag:d=3,strands=both,wildcards=true", "logistic"),
        ("bag:d=3,value=presence,wildcards=true", "logistic"),
        ("kmers:d=10", "squared_hinge"),
    ):
        model = _train(codes, labels, features, loss)
    # tables of two positions
    numbers = np.zeros(64, np.int64)
    kernels.kmers.take_marginals(numbers, numbers[:16].copy(), numbers[:16].copy(), False)
    table, word = np.zeros(4), np.zeros(kernels.kmers.CHUNK, np.uint32)
    kernels.margins.add_two_margins(
        np.zeros((1, 8), np.uint8), 0, 1, table, 1, table, word, np.zeros(8)
    )
    steps, shared = np.zeros(4, np.int32), np.zeros(16, np.int32)
    kernels.margins.fold_table(numbers[:1], numbers[:1], steps[:1], 1, steps)
    kernels.margins.spread_table(steps, 1, shared)
    total, two = np.zeros(1), np.zeros((2, 1), np.int64)
    kernels.margins.choose_tables(two[0], two, total, 1.0, np.zeros(2), 1.0, *two)
    kernels.margins.add_margins(np.zeros((1, 8), np.uint8), 0, 2, shared, 1.0, word, np.zeros(8))
    # scores of patterns of two letters by table, and of the longest pattern by itself
    for ids in ([*range(5**8 - 1, 4 * 5**9, 5**8)], [0]):
        scorer = model.family.scorer(np.array(ids, np.int64), np.ones(len(ids)))
        scorer.margins(codes)


def _matrices(values: float) -> Iterator[tuple[Any, Any]]:
    """Synthetic sparse and dense (256, 16) matrices in float32 and float64, with labels."""
    codes, labels = _windows()
    for dtype in (np.float32, np.float64):
        numbers = np.where(codes == 2, values, 0.0).astype(dtype)
        indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(numbers, axis=1))])
        entries = np.nonzero(numbers)
        yield numbers, labels
        yield SparseRows(indptr, entries[1].astype(np.int32), numbers[entries], 16), labels


def _numbers() -> None:
    for rows, labels in _matrices(1.5):
        if not isinstance(rows, np.ndarray):  # as for more rows than are cached in float64
            entries = SparseColumns.of(rows, rows.data.dtype.str).entries()
            room = np.empty(17, np.int64), np.empty(rows.nnz, np.uint16)
            kernels.matrix.listed_columns(
                entries, np.arange(16), *room, np.empty(rows.nnz, np.float32)
            )
            _train(rows, labels, "columns", row_view=64)
        _train(rows, labels, "columns")
        _train(rows, labels, "columns", standardize=True)
        _train(rows, np.arange(256) % 3, "columns", "softmax")
        if isinstance(rows, np.ndarray):
            _train(rows, labels, "hinges:n=4")
            # columns that are centred
            _train(rows + rows.dtype.type(4096), labels, "columns")
            _train(rows + rows.dtype.type(4096), np.arange(256) % 3, "columns", "softmax")


def _products() -> None:
    for rows, labels in _matrices(1.5):
        for degree in (2, 3):
            _train(rows, labels, f"products:degree={degree}")
        _train(rows, labels, "columns + products:degree=2")  # on a part of the columns' record
    codes, labels = _windows()
    for degree in (2, 3):
        _train(codes == 2, labels, f"products:degree={degree}")


def _fourier() -> None:
    codes, labels = _windows()
    for dtype in (np.float32, np.float64):
        _train(codes.astype(dtype), labels, "fourier:n=64")
        _train(codes.astype(dtype), np.arange(256) % 3, "fourier:n=64", "softmax")
        _train(codes.astype(dtype), labels, "fourier:n=64,dtype=int8")
    for targets, loss in ((labels, "logistic"), (np.arange(256) % 3, "softmax")):
        _train(codes.astype(np.float64), targets, "fourier:n=64,kernel=laplace", loss)


def _cache() -> None:
    """Call the kernels that the trainings may not call: columns with values, eviction."""
    cache = ColumnCache(1 << 20, 8, 128, 64, binary=False)
    values = np.zeros((2, 64), np.float32)
    values[0, :3] = values[1, :] = 1.0
    staged = cache.measure(np.arange(2), [DenseColumns(values, 64), DenseColumns(values, 64)])
    cache.admit(staged, 0)
    cache.admit(staged, 1)
    cache.evict(np.array([False, True]))
    fine = DenseColumns(np.full((1, 64), 0.1), 64)
    cache.admit(cache.measure(np.arange(2, 3), [fine, fine]), 0)
    ends = np.array([0, 1])
    for column in (np.ones(1, np.float32), np.full(1, 0.1)):
        listed = ListedColumns(ends, np.zeros(1, np.uint16), column, 64)
        cache.admit(cache.measure(np.arange(4, 5), [listed, listed]), 0)
    steps = StepColumns(np.ones((1, 64), np.int8), 64, 0.5)
    cache.admit(cache.measure(np.arange(3, 4), [steps, steps]), 0)
    one = np.ones(1)
    kernels.losses.raise_curvatures(
        find_loss("logistic").kernel, one, one, one, 0.0, 0.5, np.ones(1)
    )
    kernels.losses.ray_sums(one, one, one, one, (0.0, 1.0, 1.0), np.empty(2))
    kernels.sampling.choose_by(np.ones(1), 1, np.empty(1, np.bool_))


def _outputs() -> None:
    """Call the kernels of the softmax loss, and of the trainer of coupled outputs."""
    loss, y, s = find_loss("softmax"), np.arange(64.0) % 3, np.ones(64)
    m = np.random.default_rng(0).normal(size=(3, 64))
    r, q = np.empty((2, 3, 64))
    objective = SoftmaxOutputs(loss, y, s, 1.0, n_classes=3)
    objective.fit_unpenalised(m)
    objective.line_sums(m, m, 0.5)
    objective.residuals_curvatures(m, r, q)
    objective.close(slice(0, 64), r, objective.least_step)
    objective.dual_bound(r, 1.0)
    loss.score(y, s, m)
    codes, labels = _windows()
    rows, columns = (codes * 0.5).astype(np.float32), np.stack([labels, -codes[:, 1]], axis=1)
    with _coordinate_descent():
        for penalty in ("group", "l1"):
            _train_outputs(rows, codes[:, 5], "softmax", penalty)
        _train_outputs(rows, columns.astype(np.float64), "squared", "group")


def _train_outputs(rows: Any, several: Any, loss: str, penalty: str) -> None:
    """Train a small model of several outputs."""
    data = open_data(rows, y=several)
    train(
        data, "columns", C=1.0, loss=loss, penalty=penalty, tol=1e-3, memory="1GiB", block_rows=128
    )


def _online() -> None:
    """Learn a few rows by each method, with tables of each dtype."""
    codes, labels = _windows()
    sources = [(codes, "kmers:d=3"), (codes, "kmers:d=3 * 2")]
    sources += [(rows, "columns") for rows, _ in _matrices(1.5)]
    learners: list[dict[str, Any]] = [
        *({"method": "ftrl", "weights": table} for table in ("float64", "float32")),
        *({"method": "truncated-gradient", "weights": table} for table in ("float64", "float32")),
        {"method": "truncated-gradient:step=adagrad"},
        {"method": "truncated-gradient:average=true"},
        {"method": "ball:radius=1"},
        {"method": "ball:radius=1,step=explicit,batch=10"},
        *({"method": "ogd", "weights": table} for table in ("float64", "float32", "q2.13")),
        *({"method": name, "weights": "q2.13"} for name in ("ftrl", "truncated-gradient")),
        {"method": "ftrl", "hash_bits": 4},
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for rows, features in sources:
            for options in learners:
                if "hash_bits" in options and features != "kmers:d=3":
                    continue
                data = open_data(rows, y=labels)
                train_online(data, features, alpha=1e-3, rate=0.1, block_rows=128, **options)


#: Kind of families -> the function that compiles its kernels.
KINDS: dict[str, Callable[[], None]] = {
    "sequences": _sequences,
    "numbers": _numbers,
    "products": _products,
    "fourier": _fourier,
    "outputs": _outputs,
    "online": _online,
}
