"""The state of an online learner in a model file, from which learning resumes.

Three members beside those of every model: ``online.json`` (options, place and sums of the run),
``online_ids.npy`` and ``online_state.npy`` (the features that were touched, and what the learner keeps of
each), and ``online_sums.npy`` (the learner's numbers that belong to no feature).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.files import schema
from fcl.files.bundle import FileKind, Members, open_bundle, to_vector

#: Members; the state may be of float32.
RUN, IDS, TABLE, SUMS = "online.json", "online_ids", "online_state", "online_sums"

_OPTIONS = schema.record(
    # words are compared with the options when the job is made
    **dict.fromkeys(("method", "features", "loss", "step", "truncation", "weights"), schema.text),
    **dict.fromkeys(("intercept", "shuffle", "offset"), schema.flag),
    **dict.fromkeys(("alpha", "rate"), schema.positive),
    power=schema.number(0.0, 1.0),
    decay=schema.share,
    l1_ratio=schema.share,
    period=schema.whole(1),
    passes=schema.whole(1),
    seed=schema.whole(),
    block_rows=schema.whole(64, 65_536),
    theta=schema.nullable(schema.at_least_0),
    radius=schema.nullable(schema.positive),
    valid_fraction=schema.nullable(schema.number(5e-324, 1.0 - 2.0**-53)),
    hash_bits=schema.nullable(schema.whole(4, 31)),
    class_weight=schema.nullable(schema.class_weight),
    # earlier versions lacked these options
    batch=schema.Maybe(schema.whole(1), 1),
    average=schema.Maybe(schema.flag, False),
    gamma=schema.Maybe(schema.nullable(schema.positive), None),
    max_weight=schema.Maybe(schema.nullable(schema.positive), None),
    rates=schema.Maybe(schema.text, "feature"),
    most_nonzero=schema.Maybe(schema.nullable(schema.whole(1)), None),
)
#: What ``online.json`` may contain.
_RUN = schema.record(
    columns=schema.whole(1, 16),
    table=schema.one_of("float64", "float32"),
    method=schema.text,
    options=_OPTIONS,
    rate=schema.positive,
    gravity=schema.positive,
    passes=schema.whole(),
    rows=schema.whole(),
    learner_passes=schema.whole(),
    sums=schema.record(
        **dict.fromkeys(
            ("losses", "losses_before", "weight", "weight_before", "squares"), schema.at_least_0
        ),
        targets=schema.finite,
        next_line=schema.whole(1),
    ),
    stream=schema.Maybe(schema.flag),  # only streams say so
)


def _run(where: str, value: Any) -> dict[str, Any]:
    """Check for the content of ``online.json``, whose numbers agree with one another."""
    run: dict[str, Any] = _RUN(where, value)
    sums, method = run["sums"], run["options"]["method"]
    pairs = [
        ("learner_passes", run["learner_passes"], run["passes"]),
        ("method", run["method"], method),
        ("rate", run["rate"], run["options"]["rate"]),
        # what was summed up to the last line of progress, and up to now
        ("sums.losses", max(sums["losses"], sums["losses_before"]), sums["losses"]),
        ("sums.weight", max(sums["weight"], sums["weight_before"]), sums["weight"]),
    ]
    for name, found, expected in pairs:
        if found != expected:
            raise schema.Mismatch(
                f"{name}: expected {shown(expected)}, as elsewhere in the file, got {shown(found)}"
            )
    return run


#: The member in a model file. It has no version of its own.
ONLINE = FileKind(
    "",
    1,
    "model file",
    _run,
    header=RUN,
    missing="expected a model of fcl online with the state of its learner, got a model without one "
    "(trained otherwise, compact, or with --bare)",
)


@dataclass(frozen=True)
class OnlineState:
    """Where a run stands."""

    run: dict[str, Any]  #: JSON values: method, options, place in the data, sums
    ids: np.ndarray  #: int64 (k,)
    table: np.ndarray  #: float64 or float32 (k, columns)
    sums: np.ndarray  #: float64

    def members(self) -> Members:
        """The members of the file; raises ValueError if a reader would reject them."""
        dtype = f"<f{self.table.itemsize}"
        shape = {"columns": self.table.shape[1], "table": self.table.dtype.name}
        return {
            RUN: ONLINE.encode({**shape, **self.run}),
            f"{IDS}.npy": to_vector(self.ids, "<i8"),
            f"{TABLE}.npy": to_vector(self.table, dtype),
            f"{SUMS}.npy": to_vector(self.sums, "<f8"),
        }


def read_state(path: str | os.PathLike[str]) -> OnlineState:
    """Read the state in a model file.

    Raises ModelFileError if the file has none, or it is damaged.
    """
    with open_bundle(path, ONLINE) as bundle:
        run = bundle.header
        columns, dtype = run.pop("columns"), run.pop("table")
        ids = bundle.vector(IDS, "<i8")
        if (ids < 0).any() or (ids[1:] <= ids[:-1]).any():
            raise ValueError(f"{IDS}.npy: expected increasing numbers of at least 0")
        table = bundle.vector(TABLE, f"<f{np.dtype(dtype).itemsize}")
        if len(table) != columns * len(ids):
            raise ValueError(
                f"{TABLE}.npy: expected {columns} numbers for each of {len(ids)} ids, got {len(table)}"
            )
        return OnlineState(run, ids, table.reshape(-1, columns), bundle.vector(SUMS, "<f8"))
