"""The state of an online learner in a model file, from which learning resumes.

Three members beside those of every model: ``online.json`` (options, place and sums of the run),
``online_ids.npy`` and ``online_state.npy`` (the features that were touched, and what the learner keeps of
each), and ``online_sums.npy`` (the learner's numbers that belong to no feature).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError, ModelFileError
from fcl.model import schema
from fcl.model.archive import read_array, read_json, read_member, write_json
from fcl.model.reading import KIND, open_model

#: Members, and the dtypes of arrays; the state may be of float32.
RUN, IDS, TABLE, SUMS = "online.json", "online_ids.npy", "online_state.npy", "online_sums.npy"

_FINITE, _AT_LEAST_0, _POSITIVE = schema.number(), schema.number(0.0), schema.number(5e-324)
#: A share of 1, or of less.
_SHARE = schema.number(5e-324, 1.0)
_OPTIONS = schema.record(
    # words are compared with the options when the job is made
    **dict.fromkeys(("method", "features", "loss", "step", "truncation", "weights"), schema.text),
    **dict.fromkeys(("intercept", "shuffle", "offset"), schema.flag),
    **dict.fromkeys(("alpha", "rate"), _POSITIVE),
    power=schema.number(0.0, 1.0),
    decay=_SHARE,
    l1_ratio=_SHARE,
    period=schema.whole(1),
    batch=schema.Maybe(schema.whole(1)),
    passes=schema.whole(1),
    seed=schema.whole(),
    block_rows=schema.whole(64, 65_536),
    theta=schema.nullable(_AT_LEAST_0),
    average=schema.Maybe(schema.flag),
    gamma=schema.Maybe(schema.nullable(_POSITIVE)),
    max_weight=schema.Maybe(schema.nullable(_POSITIVE)),
    rates=schema.Maybe(schema.text),
    most_nonzero=schema.Maybe(schema.nullable(schema.whole(1))),
    radius=schema.nullable(_POSITIVE),
    valid_fraction=schema.nullable(schema.number(5e-324, 1.0 - 2.0**-53)),
    hash_bits=schema.nullable(schema.whole(4, 31)),
    class_weight=schema.nullable(schema.class_weight),
)
#: What ``online.json`` may contain.
RUN_TABLE = schema.record(
    columns=schema.whole(1, 16),
    table=schema.one_of("float64", "float32"),
    method=schema.text,
    options=_OPTIONS,
    rate=_POSITIVE,
    gravity=_POSITIVE,
    passes=schema.whole(),
    rows=schema.whole(),
    learner_passes=schema.whole(),
    sums=schema.record(
        **dict.fromkeys(
            ("losses", "losses_before", "weight", "weight_before", "squares"), _AT_LEAST_0
        ),
        targets=_FINITE,
        next_line=schema.whole(1),
    ),
    stream=schema.Maybe(schema.flag),
)


@dataclass(frozen=True)
class OnlineState:
    """Where a run stands.

    Attributes
    ----------
    run : dict
        JSON values: method, options, place in the data, sums.
    ids : int64 (k,)
    table : float64 or float32 (k, columns)
    sums : float64
    """

    run: dict[str, Any]
    ids: np.ndarray
    table: np.ndarray
    sums: np.ndarray

    def members(self) -> Mapping[str, bytes | np.ndarray]:
        """The members of the file."""
        own = {"columns": self.table.shape[1], "table": self.table.dtype.name, **self.run}
        content = write_json(own)
        # fcl must be able to read what it writes; an error here is a bug, which tests find
        stored = read_json(content)
        if extra := schema.undeclared(stored, _run("", stored)):
            raise ValueError(f"undeclared in {RUN}: {', '.join(extra)}")
        return {
            RUN: content,
            IDS: self.ids.astype("<i8", copy=False),
            TABLE: self.table.ravel().astype(f"<f{self.table.itemsize}", copy=False),
            SUMS: self.sums.astype("<f8"),
        }


def _run(where: str, value: Any) -> dict[str, Any]:
    """Check for the content of ``online.json``, whose numbers agree with one another."""
    run: dict[str, Any] = RUN_TABLE(where, value)
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


def read_state(path: str | os.PathLike[str]) -> OnlineState:
    """Read the state in a model file.

    Raises ModelFileError if the file has none, or it is damaged.
    """
    with open_model(path) as archive:
        if RUN not in archive.namelist():
            raise InputError(
                "expected a model of fcl online with the state of its learner, got a model without one "
                "(trained otherwise, compact, or with --bare)"
            )
        try:
            run = _run("", read_json(read_member(archive, RUN, KIND)))
        except schema.Mismatch as error:
            raise ModelFileError(f"{RUN}: {error}") from error
        columns, dtype = run.pop("columns"), run.pop("table")
        ids = read_array(archive, IDS, "<i8", KIND)
        if (ids < 0).any() or (ids[1:] <= ids[:-1]).any():
            raise ModelFileError(f"{IDS}: expected increasing numbers of at least 0")
        table = read_array(archive, TABLE, f"<f{np.dtype(dtype).itemsize}", KIND)
        if len(table) != columns * len(ids):
            raise ModelFileError(
                f"{TABLE}: expected {columns} numbers for each of {len(ids)} ids, got {len(table)}"
            )
        return OnlineState(
            run, ids, table.reshape(-1, columns), read_array(archive, SUMS, "<f8", KIND)
        )
