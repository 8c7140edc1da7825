"""The file of a checkpoint: its schema, and how it is written and read.

docs/reference/checkpoint.md is the specification. A file may come from a stranger, so it is validated as
a whole before it is used. Values that the schema below declares are restored bit for bit.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shortened
from fcl.files import schema
from fcl.files.bundle import (
    HEADER,
    DamagedFile,
    FileKind,
    Members,
    installed_version,
    now,
    open_bundle,
    to_vector,
)
from fcl.files.passes import PASS_TABLE
from fcl.files.same_job import JobFacts, differences, require_same
from fcl.options import FIXED, JOB_DEFAULTS
from fcl.plain import plain

#: Largest |weight|: sums of the squares of such weights are finite.
MOST_WEIGHT = 1e100

_CHECKSUMS = "block_checksums"

# -- the schema: numbers from which a job continues; the resumed job takes no number as proven

_ANY = schema.number(infinite=True)

_SAMPLE = schema.record(
    **dict.fromkeys(("most", "wanted"), schema.whole(1)),
    **dict.fromkeys(("drawn", "draws", "age"), schema.whole()),
    **dict.fromkeys(("objective", "last_gap", "last_objective"), _ANY),
    pending=schema.flag,
    proximal=schema.number(1e-9, 1e9),
    step=schema.record(beta=schema.finite, decrease=_ANY, promised=_ANY),
    intercept=schema.Maybe(schema.finite),  # of the anchor at which the sample was drawn
)
_STATE = schema.record(
    # the anchor; its objective and bound are recomputed when the job is resumed
    objective=schema.finite,
    intercept=schema.finite,
    bound=_ANY,
    best_intercept=schema.Maybe(schema.finite),  # of the point whose residuals gave the bound
    # what the next steps depend on
    max_violation=schema.number(0.0, infinite=True),
    gap=_ANY,
    sharpness=schema.number(1e-9, 1.0),
    drawn=schema.whole(0, 1 << 31),
    grown=schema.number(1.0, 1024.0),
    raised=schema.Maybe(schema.number(0.0, 1e6)),
    careful=schema.Maybe(schema.whole(0, 1)),
    idle=schema.whole(0, 1 << 31),
    beta=schema.finite,
    evicted=schema.whole(),
    last=schema.record(objective=schema.Maybe(schema.finite), bound=schema.Maybe(_ANY)),
    sample=schema.Maybe(_SAMPLE),
    untried_intercept=schema.Maybe(schema.finite),  # of a point that no search has judged yet
    best_pass=schema.Maybe(  # of the lowest held-out loss, with ``patience``
        schema.record(number=schema.whole(), loss=schema.finite, intercept=schema.finite)
    ),
    n_outputs=schema.Maybe(schema.whole(2, 1 << 31)),  # absent for one output
    slots=schema.Maybe(schema.whole(0, 1 << 40)),  # of the cache; absent if they cannot grow
)
_COMMAND_VALUE_KINDS = (type(None), bool, int, float, str)


def command_table(where: str, value: Any) -> dict[str, Any]:
    """Check for options of a command by name: plain values, or values or pairs by label or feature."""
    for name, item in schema.table(where, value).items():
        inner = list(item.values()) if isinstance(item, dict) else [item]
        pairs = [part for part in inner if isinstance(part, list) and len(part) == 2]
        for part in [*(part for part in inner if part not in pairs), *itertools.chain(*pairs)]:
            too_long = isinstance(part, int) and abs(part) >= 1 << 128
            if too_long or not isinstance(part, _COMMAND_VALUE_KINDS):
                raise schema.Mismatch(
                    f"{where}.{name}: expected a plain value, got a {type(part).__name__}"
                )
    return dict(value)


#: All options are kept, to be compared with those of the resumed job; these are used.
_OPTIONS = schema.open_record(
    block_rows=schema.Maybe(schema.whole(64, 65_536)),
    covariates=schema.Maybe(schema.nullable(schema.listing(schema.text))),
    command=schema.Maybe(schema.nullable(command_table)),
    points_done=schema.Maybe(schema.whole()),  # of a path
)
#: Of the record of the columns: the first id of svmlight rows, and a hash of everything else.
COLUMNS_TABLE = schema.nullable(
    schema.record(first_id=schema.nullable(schema.whole(0, 1)), sha256=schema.text)
)
_HEADER_TABLE = schema.record(
    number=schema.whole(),
    created=schema.text,
    fcl_version=schema.text,
    driver=schema.text,
    elapsed=schema.at_least_0,
    family=schema.table,
    options=_OPTIONS,
    signature=schema.Maybe(schema.text),  # absent in files of earlier versions
    n_rows=schema.whole(1),
    fingerprint=schema.text,
    columns=schema.Maybe(COLUMNS_TABLE),
    arrays=schema.listing(schema.text),
    state=_STATE,
    history=schema.listing(PASS_TABLE),
)
_STAGEWISE = "is a checkpoint of a stagewise job; resume it with fcl stagewise --resume FOLDER"
CHECKPOINT = FileKind(
    "fcl-checkpoint",
    2,
    "checkpoint",
    _HEADER_TABLE,
    other_formats={"fcl-stagewise-checkpoint": _STAGEWISE},
)
#: prefix of the arrays of each point of the job -> keys of its intercept in the state
_POINTS = {
    "": ("intercept",),
    "best_": ("best_intercept",),
    "sample_": ("sample", "intercept"),
    "untried_": ("untried_intercept",),
    "kept_": ("best_pass", "intercept"),
}
_POINT_DTYPES = {"ids": "<i8", "weights": "<f8", "covariates": "<f8"}
#: dtype of each array, little-endian on every machine
_DTYPES = {
    **{f"{point}{name}": dtype for point in _POINTS for name, dtype in _POINT_DTYPES.items()},
    "cached": "<i8",
    "seen": "|b1",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """The state of a job between two passes: the fields of the header, and the arrays."""

    number: int = 0  #: 0 until it is saved; increases within a folder
    signature: str = ""  #: of the locations in the command of the options; empty until it is saved
    created: str = field(default_factory=now)
    fcl_version: str = field(default_factory=installed_version)
    driver: str  #: that saved the checkpoint
    elapsed: float  #: seconds of work so far, over all resumptions
    family: Mapping[str, Any]  #: configuration of the bound family
    options: Mapping[str, Any]  #: effective options as JSON values, ``block_rows`` among them
    n_rows: int  #: training rows
    fingerprint: str  #: hash of the training data
    arrays: Mapping[str, np.ndarray]  #: that ``_DTYPES`` declares, as ``_check_arrays`` requires
    state: Mapping[str, Any]  #: the fields that ``_STATE`` declares; infinite floats are kept
    history: list[dict[str, Any]]  #: one for each pass
    block_checksums: npt.NDArray[
        np.uint64
    ]  #: of the prepared rows; empty if they were not computed
    #: summary of the record of the columns; None in checkpoints of earlier versions
    columns: Mapping[str, Any] | None = None

    def check_job(self, now: JobFacts) -> None:
        """Raise InputError that names every difference in what a resumed job may not change."""
        now = replace(now, options=compared_options(now.options))
        what = f"checkpoint {self.number} of {shortened(self.created)}"
        require_same(what, self._facts, now)

    def matches(self, options: Mapping[str, Any], fingerprint: str) -> bool:
        """Whether the job could give a model with these options, of data with this fingerprint."""
        saved, now = (
            dict.fromkeys(FIXED) | compared_options(own) for own in (self.options, options)
        )
        return not differences(JobFacts(saved, self.fingerprint), JobFacts(now, fingerprint))

    @property
    def _facts(self) -> JobFacts:
        ids = [array for name, array in self.arrays.items() if name.endswith(("ids", "cached"))]
        return JobFacts(
            # an earlier version did not have all options
            compared_options(
                {**JOB_DEFAULTS, **self.options, "n_outputs": self.state.get("n_outputs") or 1}
            ),
            self.fingerprint,
            self.columns,
            self.family,
            1 + max(int(array.max(initial=0)) for array in ids) if ids else None,
            self.block_checksums,
            self.n_rows,
            int(self.options.get("block_rows", 0)),
        )


def compared_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a resumed job may not change, as JSON values."""
    names = (*FIXED, "n_outputs")
    return {name: plain(options[name]) for name in names if name in options}


#: Fields that are not in the header, or that :func:`plain` would change.
_OTHER = ("arrays", "state", "block_checksums")


def checkpoint_members(checkpoint: Checkpoint) -> Members:
    """The members of its file; raises ValueError or TypeError if a reader would reject them."""
    if unknown := checkpoint.arrays.keys() - _DTYPES.keys():
        raise ValueError(f"undeclared arrays of a checkpoint: {', '.join(sorted(unknown))}")
    arrays = {name: to_vector(array, _DTYPES[name]) for name, array in checkpoint.arrays.items()}
    checksums = to_vector(checkpoint.block_checksums, "<u8")
    header = {
        name: plain(getattr(checkpoint, name))
        for name in (declared.name for declared in fields(Checkpoint))
        if name not in _OTHER
    }
    header["arrays"] = sorted(arrays)
    header["state"] = dict(checkpoint.state)  # not plain, which would drop an infinite bound
    content = CHECKPOINT.encode(header, allow_nan=True)
    _check_arrays(header, checksums, arrays)
    named = {f"arrays/{name}.npy": arrays[name] for name in sorted(arrays)}
    return {HEADER: content, f"{_CHECKSUMS}.npy": checksums, **named}


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raises DamagedFile if it is not intact, ModelFileError if it cannot be read."""
    if not os.path.isfile(path):  # opening a FIFO would never end
        raise DamagedFile(f"{path}: not a regular file")
    with open_bundle(path, CHECKPOINT) as bundle:
        header = bundle.header
        checksums = bundle.vector(_CHECKSUMS, "<u8")
        arrays = {
            name: bundle.vector(f"arrays/{name}", dtype)
            for name, dtype in _DTYPES.items()
            if name in header["arrays"]
        }
        _check_arrays(header, checksums, arrays)
        return Checkpoint(**header | {"arrays": arrays, "block_checksums": checksums})


def _check_arrays(
    header: Mapping[str, Any], checksums: np.ndarray, arrays: Mapping[str, np.ndarray]
) -> None:
    """Raise Mismatch unless the arrays agree with one another and with the header."""

    def intercept(keys: tuple[str, ...]) -> Any:
        value = header["state"]
        for key in keys:
            value = value.get(key) if value is not None else None
        return value

    options = header["options"]
    named = options.get("covariates") or ()
    K = header["state"].get("n_outputs") or 1
    q = len(named) + bool(options.get("intercept")) if named else 0
    # without covariates, several outputs list their intercepts
    n_free = q if K == 1 else K * max(q, 1)
    for prefix, keys in _POINTS.items():
        names = {f"{prefix}ids", f"{prefix}weights"}
        if intercept(keys) is None:
            if extra := names & arrays.keys():
                raise schema.Mismatch(f"state.{'.'.join(keys)} is missing beside {min(extra)}")
            continue
        if missing := names - arrays.keys():
            raise schema.Mismatch(f"array {min(missing)} is missing")
        ids, weights = arrays[f"{prefix}ids"], arrays[f"{prefix}weights"]
        if weights.shape != (K * len(ids),):
            raise schema.Mismatch(f"{len(ids)} {prefix}ids and {len(weights)} {prefix}weights")
        if (ids < 0).any() or (ids[1:] <= ids[:-1]).any():
            raise schema.Mismatch(f"{prefix}ids: expected increasing numbers >= 0")
        if not (np.abs(weights) <= MOST_WEIGHT).all():  # nor NaN
            raise schema.Mismatch(f"{prefix}weights: expected numbers up to {MOST_WEIGHT:g}")
        v = arrays.get(f"{prefix}covariates", np.empty(0))
        if v.shape != (n_free,) or not (np.abs(v) <= MOST_WEIGHT).all():
            raise schema.Mismatch(
                f"{prefix}covariates: expected {n_free} numbers up to {MOST_WEIGHT:g}, got {len(v)}"
            )
    for name in ("cached", "seen"):
        if name not in arrays:
            raise schema.Mismatch(f"array {name} is missing")
    cached = arrays["cached"]
    if cached.shape != arrays["seen"].shape:
        raise schema.Mismatch(f"{len(cached)} cached and {len(arrays['seen'])} seen")
    if (cached < 0).any() or len(np.unique(cached)) < len(cached):
        raise schema.Mismatch("cached: expected distinct numbers >= 0")
    rows = header["options"].get("block_rows")
    if len(checksums) and rows and len(checksums) != -(-header["n_rows"] // rows):
        raise schema.Mismatch(
            f"{len(checksums)} checksums for {header['n_rows']} rows in blocks of {rows}"
        )
