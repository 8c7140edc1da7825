"""The hashes that stand for names in Vowpal Wabbit's models: places in a table of weights."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.types import Ids

_log = logging.getLogger("fcl")


#: The hash of the constant feature.
CONSTANT = 11650396
#: The factor by which the hashes of the factors of a product are joined.
JOIN = np.uint64(16777619)
#: Features whose places are computed at a time.
PIECE = 1 << 18
#: Features of other families than columns and products that are looked for by their names.
MOST_NAMED = 1 << 20
#: A smaller chance that all weights belong to some column by accident is not worth a warning.
SMALL_CHANCE = 1e-6


def murmur(data: bytes, seed: int) -> int:
    """MurmurHash3 of 32 bits (Austin Appleby, public domain)."""
    mask, h = 0xFFFFFFFF, seed & 0xFFFFFFFF
    n = len(data) // 4 * 4
    for at in range(0, n, 4):
        h ^= _scrambled(int.from_bytes(data[at : at + 4], "little"))
        h = (h << 13 | h >> 19) & mask
        h = (h * 5 + 0xE6546B64) & mask
    h ^= _scrambled(int.from_bytes(data[n:], "little"))  # 0 for nothing
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


def _scrambled(k: int) -> int:
    k = k * 0xCC9E2D51 & 0xFFFFFFFF
    k = (k << 15 | k >> 17) & 0xFFFFFFFF
    return k * 0x1B873593 & 0xFFFFFFFF


@dataclass(frozen=True)
class Hashing:
    """From names of features to places in a table of 2^bits weights.

    every : whether names that are whole numbers are hashed, too (``--hash all``); otherwise they stand
        for themselves.
    """

    bits: int
    every: bool = False
    advice: ClassVar[str] = (
        "if the features have a namespace, name it (--namespace); or write the model with --invert_hash, "
        "which keeps the names"
    )

    @property
    def constant(self) -> int:
        """The place of the intercept."""
        return self._place(CONSTANT)

    def _place(self, value: int) -> int:
        return value & ((1 << self.bits) - 1)

    def _hash(self, name: str, seed: int) -> int:
        if not self.every and name.isascii() and name.isdigit():
            return (int(name) + seed) & 0xFFFFFFFF
        return murmur(name.encode(), seed)

    def hash_of(self, name: str, namespace: str = "") -> int:
        """The hash of a feature, of 32 bits; the default namespace has no name."""
        return self._hash(name, self._hash(namespace, 0) if namespace else 0)

    def place(self, name: str, namespace: str = "") -> int:
        """The place of a feature."""
        return self._place(self.hash_of(name, namespace))

    def joined(self, hashes: npt.NDArray[np.uint64]) -> Ids:
        """The places of products, from the hashes of their factors (m, factors): int64 (m,)."""
        found = hashes[:, 0].copy()
        for factor in hashes.T[1:]:
            found = (found * JOIN) ^ factor
        return (found & np.uint64((1 << self.bits) - 1)).astype(np.int64)

    def find(
        self,
        places: Sequence[str],
        family: Family,
        columns: Sequence[str] | None,
        namespace: str,
        source: str,
    ) -> tuple[Ids, Ids]:
        """The columns at some places, int64 (m,), and where in ``places`` each was found, int64 (m,).

        Columns with equal hashes share a weight, and are all found. A place without a column gives -1,
        apart from the intercept's. Columns without names are hashed by their numbers from 0.

        Raises InputError for a family without columns; and for columns without names that fit any hash.
        """
        if family.to_config().get("family") != "columns":
            raise InputError(
                f"{source}: expected names of features, since hashes can only be compared with the names "
                f"of columns (--features columns), not with {family.name}; write the model with "
                "--invert_hash"
            )
        names = columns if columns is not None else list(map(str, range(family.n_features)))
        found: dict[int, list[int]] = {int(place): [] for place in places}
        for j, name in enumerate(names):
            place = self.place(name, namespace)
            if place in found:
                found[place].append(j)
        if columns is None:
            self._judge_numbers(family.n_features, sum(map(bool, found.values())), source)
        ids, at = [], []
        for index, text in enumerate(places):
            place = int(text)
            own = found[place] or ([] if place == self.constant else [-1])
            ids += own
            at += [index] * len(own)
        return np.array(ids, np.int64), np.array(at, np.int64)

    def _judge_numbers(self, n_columns: int, n_found: int, source: str) -> None:
        """Refuse columns without names, or say that they were taken by number, if they fit by chance."""
        share = n_columns / (1 << self.bits)
        advice = (
            "give the columns names (fcl convert --names, or a data frame), or write the model with "
            "--invert_hash"
        )
        if share >= 1.0 and n_found:
            raise InputError(
                f"{source}: expected names of columns, since the numbers of {n_columns:,} columns "
                f"without names fit any hash of {self.bits} bits; {advice}"
            )
        if n_found and share**n_found > SMALL_CHANCE:
            _log.warning(
                "%s: the columns have no names and were found by their numbers from 0; if the model was "
                "trained with other names, the numbers fit all %s weights with a chance of %.2g: %s",
                source,
                f"{n_found:,}",
                share**n_found,
                advice,
            )


@dataclass(frozen=True, eq=False)
class SharedPlaces:
    """The table of weights behind names of features: features with equal hashes share a place.

    ``--invert_hash`` names one feature of each place, and none but the intercept at its place.

    weights : dict of int to float, by place; the intercept's, too.
    namespaces : dict of str to str, name of a feature, or of a factor of a product -> its namespace.
    degrees : numbers of factors of the features: 1, and the numbers of factors of products.
    wrong : the message about a name whose hash is not at its place; empty if all are.
    """

    hashing: Hashing
    weights: dict[int, float]
    namespaces: dict[str, str]
    degrees: tuple[int, ...] = (1,)
    wrong: str = ""

    def others(
        self, family: Family, columns: Sequence[str] | None, named: Collection[int], source: str
    ) -> tuple[Ids, npt.NDArray[np.float64]]:
        """The features that the file does not name, but whose places have weights, and these weights.

        named : ids of the features that it names.

        Raises InputError if the hash of a feature cannot be computed.
        """
        if self.wrong:
            raise InputError(self.wrong)
        used = np.array(sorted(place for place, weight in self.weights.items() if weight), np.int64)
        ids: list[int] = []
        weights: list[float] = []
        for some, places in self._places(family, columns, source):
            hit = np.flatnonzero(np.isin(places, used))
            for feature, place in zip(some[hit].tolist(), places[hit].tolist(), strict=True):
                if feature not in named:
                    ids.append(feature)
                    weights.append(self.weights[place])
        return np.array(ids, np.int64), np.array(weights, np.float64)

    def _places(
        self, family: Family, columns: Sequence[str] | None, source: str
    ) -> Iterator[tuple[Ids, Ids]]:
        """Ids of features, in pieces, and their places."""
        spaces = set(self.namespaces.values())
        if len(spaces) > 1 and (len(self.degrees) > 1 or not self._knows_all(columns)):
            raise InputError(
                f"{source}: expected features of one namespace, got {shown(sorted(spaces))}; it cannot "
                "be found which features share a weight: train with all features in one namespace"
            )
        space = next(iter(spaces), "")
        kind = family.to_config().get("family")
        n = family.n_features
        if kind not in ("columns", "products") and n > MOST_NAMED:
            raise InputError(
                f"{source}: expected columns, products or at most {MOST_NAMED:,} features, which can be "
                f"compared with hashes, got {n:,} of {family.name}"
            )
        if kind == "products":
            names = columns or [family.describe(j) for j in range(family.row_width)]
            hashes = self._hashes(names, space)
            tuples = family.generator.numbering.tuples  # type: ignore[attr-defined]
            for first in range(0, n, PIECE):
                ids = np.arange(first, min(first + PIECE, n))
                yield from self._products(ids, tuples(ids), hashes)
            return
        names = [family.describe(j, columns) for j in range(n)]
        yield np.arange(n), self.hashing.joined(self._hashes(names, space)[:, None])

    def _products(
        self, ids: Ids, factors: Ids, hashes: npt.NDArray[np.uint64]
    ) -> Iterator[tuple[Ids, Ids]]:
        degrees = (factors >= 0).sum(axis=1)
        for degree in self.degrees:
            here = np.flatnonzero(degrees == degree)
            if len(here):  # Vowpal Wabbit joins the factors in the order of the columns
                own = factors[here][:, :degree][:, ::-1]
                yield ids[here], self.hashing.joined(hashes[own])

    def _knows_all(self, columns: Sequence[str] | None) -> bool:
        return columns is not None and all(name in self.namespaces for name in columns)

    def _hashes(self, names: Sequence[str], space: str) -> npt.NDArray[np.uint64]:
        known = self.namespaces
        hashes = [self.hashing.hash_of(name, known.get(name, space)) for name in names]
        return np.array(hashes, np.uint64)
