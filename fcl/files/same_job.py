"""Whether a file belongs to the job that is to be run: all rooms ask here, and give one message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.generator import same_features
from fcl.plain import plain

ADVICE = "Resume with the data and options of that job, or start over"
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class JobFacts:
    """What makes a job this job; what is None is not known, and not compared."""

    #: values by name, as JSON values; of a job, only those that a saved job must share
    options: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None  #: hash of the data
    columns: Mapping[str, Any] | None = None  #: summary of the record of the columns
    family: Mapping[str, Any] | None = None  #: configuration of the bound family
    n_features: int | None = None  #: of a saved job, the least number that its ids need
    checksums: np.ndarray | None = None  #: of the blocks of rows; empty if they were not computed
    n_rows: int = 0  #: training rows
    block_rows: int = 0


def require_same(
    what: str, saved: JobFacts, now: JobFacts, advice: str = ADVICE, more: Iterable[str] = ()
) -> None:
    """Raise InputError that names every difference between a saved job and the one to be run.

    what : the file, with which the message begins.  advice : with which it ends.  more : differences that
    the caller found; empty texts are none.
    """
    if wrong := [*differences(saved, now), *filter(None, more)]:
        raise InputError(f"{what} is of another job: {'; '.join(wrong)}. {advice}")


def differences(saved: JobFacts, now: JobFacts) -> list[str]:
    """Every difference between a saved job and another one, in words; without any, the same job."""
    wrong = [
        f"{name} was {_shown(saved.options.get(name))}, is {_shown(value)}"
        for name, value in plain(now.options).items()
        if saved.options.get(name) != value
    ]
    if None not in (saved.fingerprint, now.fingerprint) and saved.fingerprint != now.fingerprint:
        wrong.append(
            f"the data differ: fingerprint was {_shown(saved.fingerprint)}, is "
            f"{_shown(now.fingerprint)} (of X, names of its columns, target, weights, offset, covariates)"
        )
    if saved.columns is not None and now.columns is not None:
        wrong += _other_columns(saved.columns, now.columns)
    if saved.family is not None and now.family is not None:
        wrong += _other_features(saved.family, now.family)
    if saved.n_features is not None and now.n_features is not None:
        last, n = saved.n_features - 1, now.n_features
        wrong += [f"its features go up to {last}, with {n} features"] if last >= n else []
    if saved.checksums is not None and now.checksums is not None:
        wrong += _other_rows(saved, saved.checksums, now.checksums)
    return wrong


def _shown(value: Any) -> str:
    """A value; of a hash the first digits."""
    if value is None:
        return "not given"
    return value[:12] if isinstance(value, str) and _HASH.fullmatch(value) else shown(value)


def _other_features(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    if same_features(saved, plain(now)):
        return []
    return [
        "the features differ: the columns of the data, the class of the features, or what it learnt have "
        "changed"
    ]


def _other_columns(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    if saved["first_id"] != now["first_id"]:
        return [f"the ids of its columns began at {saved['first_id']}, begin at {now['first_id']}"]
    if saved["sha256"] != now["sha256"]:
        return ["its columns had other names, alleles, means or categories"]
    return []


def _other_rows(saved: JobFacts, before: np.ndarray, now: np.ndarray) -> list[str]:
    """The first few blocks of prepared rows whose checksums differ."""
    if before.size == 0:  # the job was stopped before they were computed
        return []
    if before.shape != now.shape:
        return [f"there were {before.size} blocks of rows, there are {now.size}"]
    rows, blocks = saved.block_rows, np.flatnonzero(before != now).tolist()
    words = [
        f"training rows {block * rows}-{min(saved.n_rows, (block + 1) * rows) - 1} "
        f"(block {block}) differ: checksum was {int(before[block]):016x}, is {int(now[block]):016x}"
        for block in blocks[:3]
    ]
    return words if len(blocks) <= 3 else [*words, f"and so do {len(blocks) - 3} more blocks"]
