"""What the benchmarks of online learning share: rates, rows, optima, and how they count.

Seconds are processor time on one core. Rates are the best of a grid, whose ends are extended until the
best is inside. The radius of a ball is the norm of fcl's certified optimum of the penalised problem,
which is therefore the optimum of the ball, too. An operation is a multiplication or an addition: 2 for
each entry of the matrix that a margin or a gradient reads, 8 for each weight of a projected vector, 2
log2(m) for a weight that moves in a heap of m, 10 for an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.bench.data import Rows

Floats = npt.NDArray[np.float64]
#: The logistic loss, as the kernels take it.
LOSS = (0, 0.0, 0.0)


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


def matrix_of(X: Any) -> tuple[Any, Any, Any]:
    """indptr, ids and values of a CSR matrix, as loops over rows take them."""
    return X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data


def chunk_of(X: Any) -> Any:
    """The rows of a CSR matrix for a learner of fcl."""
    from fcl.features.rows import RowChunk

    return RowChunk(*matrix_of(X))


def dense(size: int, point: tuple[Any, ...]) -> Floats:
    """The weights of a learner as a full vector."""
    w = np.zeros(size)
    w[point[0]] = point[1]
    return w


def optimum_of(rows: Rows, C: float, tol: float, loss: str = "logistic") -> tuple[Floats, Any]:
    """Weights of fcl's certified optimum of the penalised problem, and the model."""
    import fcl

    model: Any = fcl.train(rows.open(), "columns", C=C, tol=tol, loss=loss).model
    return dense(rows.x.shape[1], (model.ids, model.weights)), model
