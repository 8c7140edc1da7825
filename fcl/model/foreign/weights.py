"""The weights of a linear model of another program, and the features that they belong to."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.model.foreign.hashing import Hashing, SharedPlaces
from fcl.numerals import read_number
from fcl.store import open_file
from fcl.types import Floats, Ids


@dataclass(frozen=True, eq=False)
class ForeignWeights:
    """Weights of features, by id, by name, by place or by hash.

    source : the file, for messages.
    values : float64 (k,), finite.
    intercept : None if the file has none.
    names : sequence of str (k,), or None, descriptions of the features, as families give them; None: the
        weights of all features in order.
    lines : sequence of int (k,), the line of each weight in the file; empty if it has no lines.
    hashing : if features are known by their hashes alone, how names become hashes; ``names`` are then
        decimal numbers, perhaps with the intercept's, which columns may share.
    ids : int64 (k,), or None, of the features, in the place of names.
    shared : the table of weights in which features that are not named may share a place with named ones.
    """

    source: str
    values: Floats
    intercept: float | None = None
    names: Sequence[str] | None = None
    lines: Sequence[int] = field(default=())
    hashing: Hashing | None = None
    ids: Ids | None = None
    shared: SharedPlaces | None = None

    def of(
        self, family: Family, columns: Sequence[str] | None = None, namespace: str = ""
    ) -> tuple[Ids, Floats]:
        """The ids of the features with nonzero weights, int64 (m,), and these weights, float64 (m,).

        columns : names of the columns of the rows, if they have names.
        namespace : of the names, if they are hashed.

        Raises InputError: a weight belongs to no feature, or two to the same one; the message names file
            and line.
        """
        if self.ids is not None:
            return self._by_id(self.ids, family)
        if self.names is None:
            if len(self.values) != family.n_features:
                raise InputError(
                    f"{self.source}: expected {family.n_features:,} weights, one for each feature of "
                    f"{family.name}, got {len(self.values):,}; give the data and --features that the "
                    "model was trained on"
                )
            ids = np.flatnonzero(self.values)
            return ids, self.values[ids]
        used = np.flatnonzero(self.values)
        names = [self.names[at] for at in used.tolist()]
        if self.hashing is None:
            ids = family.find(names, columns)
        else:
            ids, places = self.hashing.find(names, family, columns, namespace, self.source)
            used, names = used[places], [names[at] for at in places.tolist()]
        unknown = np.flatnonzero(ids < 0)
        if len(unknown):
            at = int(unknown[0])
            such = f" ({len(unknown):,} such weights)" if len(unknown) > 1 else ""
            why = "" if self.hashing is None else self.hashing.advice
            raise InputError(
                f"{self._where(int(used[at]))}: {shown(names[at])} is no feature of {family.name}"
                f"{such}; {why or 'give the data and --features that the model was trained on'}"
            )
        order = np.argsort(ids, kind="stable")
        again = np.flatnonzero(np.diff(ids[order]) == 0)
        if len(again):
            first, second = used[order[again[0]]], used[order[again[0] + 1]]
            raise InputError(
                f"{self._where(int(second))}: {shown(self.names[second])} is the same feature as "
                f"{shown(self.names[first])} ({self._where(int(first))}); leave one of them out"
            )
        if self.shared is None:
            return ids, self.values[used]
        more, shared = self.shared.others(family, columns, set(ids.tolist()), self.source)
        return np.concatenate([ids, more]), np.concatenate([self.values[used], shared])

    def _by_id(self, ids: Ids, family: Family) -> tuple[Ids, Floats]:
        if len(ids) != len(self.values):
            raise InputError(
                f"{self.source}: expected an id for each weight, got {len(ids):,} ids and "
                f"{len(self.values):,} weights"
            )
        found, counts = np.unique(ids, return_counts=True)
        if len(found) < len(ids):
            raise InputError(
                f"{self.source}: expected each id once, got {found[counts.argmax()]} "
                f"{counts.max()} times"
            )
        used = np.flatnonzero(self.values)
        return family.checked_ids(ids)[used], self.values[used]

    def _where(self, at: int) -> str:
        return f"{self.source}, line {self.lines[at]}" if len(self.lines) else self.source


def number(text: str, source: str, line: int) -> float:
    """A finite number of a line; InputError for anything else."""
    value = read_number(text)
    if value is None or not np.isfinite(value):
        raise InputError(
            f"{source}, line {line}: expected a finite number as weight, got {shown(text)}"
        )
    return value


def lines_of(path: str, ends: bool = False) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers from 1, without line ends and without empty lines.

    ends : whether the last line must have an end, as programs write it; otherwise the file is cut off.
    """
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8-sig", newline="\n") as file:
            for at, line in enumerate(file, 1):
                if ends and not line.endswith("\n"):
                    raise InputError(
                        f"{path}, line {at}: expected the end of a line, found the end of the file; "
                        "it is cut off: copy it again"
                    )
                if text := line.rstrip("\r\n"):
                    yield at, text
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: expected a text in UTF-8, found other bytes; of Vowpal Wabbit give the file of "
            "--readable_model or --invert_hash"
        ) from error
