"""The hashes that stand for names in Vowpal Wabbit's readable models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.features.base import Family

__all__ = ["Hashing", "murmur"]

Ids = npt.NDArray[np.int64]

#: The hash of the constant feature.
CONSTANT = 11650396


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

    def place(self, name: str, namespace: str = "") -> int:
        """The place of a feature; the default namespace has no name."""
        seed = self._hash(namespace, 0) if namespace else 0
        return self._place(self._hash(name, seed))

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

        Raises InputError for a family without columns.
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
        ids, at = [], []
        for index, text in enumerate(places):
            place = int(text)
            own = found[place] or ([] if place == self.constant else [-1])
            ids += own
            at += [index] * len(own)
        return np.array(ids, np.int64), np.array(at, np.int64)
