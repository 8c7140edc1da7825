"""The file of a checkpoint: its schema, and how it is written and read.

CHECKPOINT.md in this folder is the specification. A file may come from a stranger, so it is validated as
a whole before it is used. Values that the schema below declares are restored bit for bit.
"""

from __future__ import annotations

import itertools
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.errors import InputError
from fcl.model import schema
from fcl.model.archive import (
    add_array,
    add_member,
    installed_version,
    now,
    open_archive,
    read_array,
    read_json,
    read_member,
    write_json,
)
from fcl.model.history import PASS_TABLE
from fcl.plain import plain

FORMAT = "fcl-checkpoint"
VERSION = 2

#: Largest |weight|: sums of the squares of such weights are finite.
MOST_WEIGHT = 1e100

_KIND = "a checkpoint"
_HEADER = "header.json"
_CHECKSUMS = "block_checksums.npy"

# -- the schema: numbers from which a job continues; the resumed job takes no number as proven

_AT_LEAST_0 = schema.number(0.0)
_FINITE = schema.number()
_ANY = schema.number(infinite=True)

_SAMPLE = schema.record(
    **dict.fromkeys(("most", "wanted"), schema.whole(1)),
    **dict.fromkeys(("drawn", "draws", "age"), schema.whole()),
    **dict.fromkeys(("objective", "last_gap", "last_objective"), _ANY),
    pending=schema.flag,
    proximal=schema.number(1e-9, 1e9),
    step=schema.record(beta=_FINITE, decrease=_ANY, promised=_ANY),
    intercept=schema.Maybe(_FINITE),  # of the anchor at which the sample was drawn
)
_STATE = schema.record(
    # the anchor; its objective and bound are recomputed when the job is resumed
    objective=_FINITE,
    intercept=_FINITE,
    bound=_ANY,
    best_intercept=schema.Maybe(_FINITE),  # of the point whose residuals gave the bound
    # what the next steps depend on
    max_violation=schema.number(0.0, infinite=True),
    gap=_ANY,
    sharpness=schema.number(1e-9, 1.0),
    drawn=schema.whole(0, 1 << 31),
    grown=schema.number(1.0, 1024.0),
    raised=schema.Maybe(schema.number(0.0, 1e6)),
    careful=schema.Maybe(schema.whole(0, 1)),
    idle=schema.whole(0, 1 << 31),
    beta=_FINITE,
    evicted=schema.whole(),
    last=schema.record(objective=schema.Maybe(_FINITE), bound=schema.Maybe(_ANY)),
    sample=schema.Maybe(_SAMPLE),
    untried_intercept=schema.Maybe(_FINITE),  # of a point that no search has judged yet
    n_outputs=schema.Maybe(schema.whole(2, 1 << 31)),  # absent for one output
    slots=schema.Maybe(schema.whole(0, 1 << 40)),  # of the cache; absent if they cannot grow
)
_COMMAND_VALUE_KINDS = (type(None), bool, int, float, str)


def _command(where: str, value: Any) -> dict[str, Any]:
    """Check for options of fcl-train by name: plain values, or values or pairs by label or feature."""
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


def _options(where: str, value: Any) -> dict[str, Any]:
    """Keep all options, to compare with the resumed job's; validate those that fcl uses."""
    used = schema.record(
        block_rows=schema.Maybe(schema.whole(64, 65_536)),
        covariates=schema.Maybe(schema.nullable(schema.listing(schema.text))),
        command=schema.Maybe(schema.nullable(_command)),
        points_done=schema.Maybe(schema.whole()),  # of a path
    )
    return {**schema.table(where, value), **used(where, value)}


#: Of the record of the columns: the first id of svmlight rows, and a hash of everything else.
COLUMNS_TABLE = schema.nullable(
    schema.record(first_id=schema.nullable(schema.whole(0, 1)), sha256=schema.text)
)
_HEADER_TABLE = schema.record(
    format=schema.one_of(FORMAT),
    version=schema.whole(1),
    number=schema.whole(),
    created=schema.text,
    fcl_version=schema.text,
    driver=schema.text,
    elapsed=_AT_LEAST_0,
    family=schema.table,
    options=_options,
    signature=schema.Maybe(schema.text),  # absent in files of earlier versions
    n_rows=schema.whole(1),
    fingerprint=schema.text,
    columns=schema.Maybe(COLUMNS_TABLE),
    arrays=schema.listing(schema.text),
    state=_STATE,
    history=schema.listing(PASS_TABLE),
)
#: dtype of each array, little-endian on every machine
_DTYPES = {
    **dict.fromkeys(("ids", "best_ids", "sample_ids", "untried_ids", "cached"), "<i8"),
    **dict.fromkeys(("weights", "best_weights", "sample_weights", "untried_weights"), "<f8"),
    **dict.fromkeys(
        ("covariates", "best_covariates", "sample_covariates", "untried_covariates"), "<f8"
    ),
    "seen": "|b1",
}
#: prefix of the arrays of each point of the job -> keys of its intercept in the state
_POINTS = {
    "": ("intercept",),
    "best_": ("best_intercept",),
    "sample_": ("sample", "intercept"),
    "untried_": ("untried_intercept",),
}


#: Errors that a damaged zip raises; RuntimeError if it looks encrypted.
_DAMAGE_ERRORS = (
    zipfile.BadZipFile,
    EOFError,
    RuntimeError,
    NotImplementedError,
    OSError,
    struct.error,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
)


class Damaged(Exception):
    """A file is not an intact checkpoint."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """The state of a job between two passes: the fields of the header, and the arrays.

    Attributes
    ----------
    options : mapping
        Effective options as JSON values, ``block_rows`` among them.
    family : mapping
        Configuration of the bound family.
    fingerprint : str
        Hash of the training data.
    columns : mapping or None
        Of the record of the columns (:meth:`fcl.data.columns.ColumnRecord.summary`); None in checkpoints
        of earlier versions.
    n_rows : int
        Number of training rows.
    block_checksums : uint64 (blocks,)
        Checksums of the prepared rows; empty if they were not computed.
    state : mapping
        The fields that ``_STATE`` declares; infinite floats are kept.
    arrays : mapping of str to array
        The arrays that ``_DTYPES`` declares, which fit together as ``_check_arrays`` requires.
    history : list of dict
        One for each pass.
    driver : str
        The driver that saved the checkpoint.
    elapsed : float
        Seconds of work so far, over all resumptions.
    number : int
        0 until it is saved; increases within a folder.
    signature : str
        Of the locations in the command of the options; empty until it is saved.
    """

    version: int = VERSION
    number: int = 0
    signature: str = ""
    created: str = field(default_factory=now)
    fcl_version: str = field(default_factory=installed_version)
    driver: str
    elapsed: float
    family: Mapping[str, Any]
    options: Mapping[str, Any]
    n_rows: int
    fingerprint: str
    arrays: Mapping[str, np.ndarray]
    state: Mapping[str, Any]
    history: list[dict[str, Any]]
    block_checksums: npt.NDArray[np.uint64]
    columns: Mapping[str, Any] | None = None


_NOT_PLAIN = ("version", "arrays", "state", "history", "block_checksums")
#: fields of the header for which :func:`plain` suffices
_PLAIN = tuple(f.name for f in fields(Checkpoint) if f.name not in _NOT_PLAIN)


def write_checkpoint(archive: zipfile.ZipFile, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; raises ValueError or TypeError if a reader would reject it."""
    if unknown := checkpoint.arrays.keys() - _DTYPES.keys():
        raise ValueError(f"undeclared arrays of a checkpoint: {', '.join(sorted(unknown))}")
    arrays = {
        name: np.asarray(array).astype(_DTYPES[name], casting="safe", copy=False)
        for name, array in checkpoint.arrays.items()
    }
    header = {
        "format": FORMAT,
        "version": VERSION,
        **{name: plain(getattr(checkpoint, name)) for name in _PLAIN},
        "arrays": sorted(checkpoint.arrays),
        "state": dict(checkpoint.state),  # not plain, which would drop an infinite bound
        "history": plain(checkpoint.history),
    }
    content = write_json(header, default=_scalar, allow_nan=True)
    # fcl must be able to read what it writes; an error here is a bug, which tests find
    stored = read_json(content)
    checked = _HEADER_TABLE("", stored)
    if extra := schema.undeclared(stored["state"], checked["state"]):
        raise ValueError(f"undeclared in the state of a checkpoint: {', '.join(extra)}")
    checksums = np.asarray(checkpoint.block_checksums).astype("<u8")
    _check_arrays(checked, checksums, arrays)
    add_member(archive, _HEADER, content)
    add_array(archive, _CHECKSUMS, checksums)
    for name, array in sorted(arrays.items()):
        add_array(archive, f"arrays/{name}.npy", array)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"the state of a checkpoint cannot hold {type(value).__name__}: {value!r}")


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raises Damaged if it is not intact, InputError if it is of a newer version."""
    try:
        if not path.is_file():  # opening a FIFO would never end
            raise Damaged("not a regular file")
        with open_archive(path) as archive:
            header = read_json(read_member(archive, _HEADER, _KIND))
            _check_version(header, path)
            header = _HEADER_TABLE("", header)
            checksums = read_array(archive, _CHECKSUMS, "<u8", _KIND)
            arrays = {
                name: read_array(archive, f"arrays/{name}.npy", dtype, _KIND)
                for name, dtype in _DTYPES.items()
                if name in header["arrays"]
            }
        _check_arrays(header, checksums, arrays)
        del header["format"]
        return Checkpoint(**{**header, "arrays": arrays, "block_checksums": checksums})
    except (InputError, Damaged):
        raise
    except PermissionError as error:
        raise InputError(f"{path}: no permission to read it") from error
    except schema.Mismatch as error:
        raise Damaged(str(error)) from error
    except _DAMAGE_ERRORS as error:
        raise Damaged(str(error) or type(error).__name__) from error


def _check_version(header: Mapping[str, Any], path: Path) -> None:
    """Check the version before everything else, since a newer version may hold anything."""
    if header.get("format") == "fcl-stagewise-checkpoint":
        raise InputError(
            f"{path}: is a checkpoint of a stagewise job; continue it with fcl stagewise --resume "
            f"{path.parent}"
        )
    if header.get("format") != FORMAT:
        raise Damaged("not a checkpoint")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise Damaged(f"version must be an integer from 1, got {shown(version)}")
    if version > VERSION:
        raise InputError(
            f"{path}: checkpoint version {shown(version)}, this fcl reads up to {VERSION}: made by a "
            f"newer fcl? (it says {shown(header.get('fcl_version'))}); upgrade fcl to resume it"
        )


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
    n_free = (
        q if K == 1 else K * max(q, 1)
    )  # without covariates, several outputs list their intercepts
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
