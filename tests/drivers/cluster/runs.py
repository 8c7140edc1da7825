"""Small jobs for the tests of the driver dask, and their bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fcl
from fcl.drivers.train import TrainResult
from tests import by_name

#: The figures of a pass except times and memory.
EXACT = (
    "number",
    "objective",
    "bound",
    "gap",
    "max_violation",
    "priced",
    "cached",
    "active",
    "beta",
)

#: What a small job is given unless a test says otherwise: 33 blocks in three shards.
JOB: dict[str, Any] = {"C": 0.5, "tol": 1e-2, "max_passes": 3, "block_rows": 64, "memory": "1GiB"}


def train(folder: Path, features: str = "kmers:d=3", **options: Any) -> TrainResult:
    """Train on the rows of the fixture ``folder``."""
    opened = {
        name: options.pop(name) for name in ("x", "y", "weights", "offset") if name in options
    }
    return by_name.train(fcl.open_data(folder, **opened), features, **(JOB | options))


def bits(result: TrainResult) -> tuple[Any, ...]:
    """All numbers of a run but times and memory."""
    model = result.model
    history = [
        [entry[name] for name in EXACT] + [str(entry.get("validation"))] for entry in model.history
    ]
    return (
        model.ids.tobytes(),
        model.weights.tobytes(),
        model.support.tobytes(),
        model.intercept.hex(),
        history,
        model.certificate,
        result.reason,
    )
