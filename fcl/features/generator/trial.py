"""Tests whether a class keeps the contract of :class:`Generator` on some rows of the data.

Binding tests a few features on the sample of fit; :func:`fcl.testing.check_generator` tests more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fcl.data.sparse import SparseRows
from fcl.errors import GeneratorError
from fcl.features.generator.checked import (
    SomeRows,
    called,
    checked,
    checked_columns,
    checked_largest,
    some_ids,
)
from fcl.features.generator.contract import Generator, overrides
from fcl.features.generator.family import GeneratedFamily
from fcl.types import Floats, Ids

#: Tolerances for rounding errors of a value, relative to the largest |value| of its column. Matrix
#: products round differently for different numbers of rows; the trainer detects differences from 1e-5 on.
SAME_FLOAT64, SAME_FLOAT32 = 1e-9, 1e-5
#: Tolerance for a float64 sum, relative to the sum of the |terms|. Rounding errors are about 1e-16 times
#: the square root of the number of terms; a float32 sum has errors of 1e-8 and more.
SAME_SUM = 1e-11
#: Attributes of a generator that are stored separately, or need not be stored.
OWN = ("n_features", "stored", "kept", "binary", "step", "per_pass", "rows", "name", "fit_rows")


def take(raw: Any, rows: Ids) -> Any:
    """Some raw rows, in the given order."""
    return raw[rows] if isinstance(raw, SparseRows) else np.ascontiguousarray(raw[rows])


@dataclass
class Trial:
    """Tests some features of a family on some rows.

    Each method checks one rule of the contract, and raises GeneratorError if the class breaks it.

    raw : the rows as they were read.
    place : description of the rows, for messages.
    block : the rows in the form that the class gets.
    columns : the columns that the class returned for ``block``.
    """

    family: GeneratedFamily
    raw: Any
    place: SomeRows
    ids: Ids
    block: Any
    columns: np.ndarray

    @property
    def generator(self) -> Generator:
        """The fitted generator that is tested."""
        return self.family.generator

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.raw)

    def again(self) -> None:
        """The columns are the same after a call for other features."""
        checked_columns(self.generator, self.ids[::2], self.block, self.place, self.n)
        found = checked_columns(self.generator, self.ids, self.block, self.place, self.n)
        self.compare(found, slice(None), "when it is called a second time")

    def restored(self) -> None:
        """The columns are the same after the class is restored from its options and state."""
        made, hint = made_again(self.family)
        when = f"when it is made again from its options and state, as models and processes do{hint}"
        try:
            block = made.block_of(self.raw)
            found = checked_columns(made.generator, self.ids, block, self.place, self.n)
        except GeneratorError as error:
            raise GeneratorError(f"{error}; this happens {when}") from error
        self.compare(found, slice(None), when)

    def rows_alone(self) -> None:
        """The values of half of the rows are the same without the other half.

        One value per column may differ: it may lie at a threshold and be rounded to the other side.
        """
        for at in range(2 if self.n > 1 else 0):
            rows = np.arange(at, self.n, 2)
            block = self.family.block_of(take(self.raw, rows))
            place = SomeRows(
                f"every second row of {self.place}", self.place.data, self.place.numbers[rows]
            )
            found = checked_columns(self.generator, self.ids, block, place, len(rows))
            self.compare(found, rows, f"in a block of {place}", spared=1)

    def compare(
        self, found: np.ndarray, rows: Any, when: str, some: Any = slice(None), spared: int = 0
    ) -> None:
        """Raise GeneratorError if columns differ from ``self.columns`` by more than rounding.

        found : array (k, c), the columns ``some`` on the rows ``rows``.
        when : for the message, how the computation differed from ``self.columns``.
        spared : number of values per column that may differ.
        """
        rounding = SAME_FLOAT64 if found.dtype.itemsize > 4 else SAME_FLOAT32
        ids, expected = self.ids[some], self.columns[rows][:, some]
        limit = rounding * np.abs(self.columns[:, some].astype(np.float64)).max(axis=0, initial=0.0)
        if found.dtype.kind != "f":
            limit[:] = 0.0
        wrong = np.abs(found.astype(np.float64) - expected.astype(np.float64)) > limit
        wrong &= wrong.sum(axis=0) > spared
        if not wrong.any():
            return
        row, k = (int(i) for i in np.argwhere(wrong)[0])
        at = int(np.arange(self.n)[rows][row])
        own = "prepare() or columns()" if overrides(self.generator, "prepare") else "columns()"
        raise GeneratorError(
            f"features {self.family.name}: {own} returns a different column for feature {ids[k]} {when}: "
            f"{found[row, k]} instead of {expected[row, k]} at {self.place.row(at)}; values must depend "
            "only on the feature and the row: learn statistics of the data in fit(), in attributes whose "
            "names end in _, and derive seeds of random numbers from the id"
        )

    def margins(self) -> None:
        """``margins`` returns the columns times the weights."""
        for k in (len(self.ids), 1):
            ids, columns = self.ids[:k], self.columns[:, :k].astype(np.float64)
            weights = np.random.default_rng(3).normal(size=k)
            what = f"margins({some_ids(ids)}) on {self.place}"
            arguments = (ids, weights, self.block)
            margins, shape = self.generator.margins, (self.n,)
            found = checked(self.generator, what, margins, *arguments, shape=shape)
            sizes = np.abs(columns) @ np.abs(weights)
            self.compare_sums(what, found, columns @ weights, sizes, self.place.row)

    def largest(self) -> None:
        """``largest`` returns a bound on the values."""
        bound = checked_largest(self.generator, self.block, self.place)
        sizes = np.abs(self.columns.astype(np.float64))
        row, k = (int(i) for i in np.unravel_index(np.argmax(sizes), sizes.shape))
        if bound < sizes[row, k]:
            raise GeneratorError(
                f"features {self.family.name}: largest on {self.place} says that no |value| exceeds "
                f"{bound}, but feature {self.ids[k]} is {self.columns[row, k]} at {self.place.row(row)}; "
                "it must bound all features on the block, or certificates would be wrong"
            )

    def compare_sums(
        self, what: str, found: Floats, expected: Floats, sizes: Floats, name: Callable[[int], str]
    ) -> None:
        """Raise GeneratorError if sums differ from the expected ones by more than rounding.

        sizes : float64, for each sum the sum of its |terms|.
        name : called with the index of a sum, returns its name for the message.
        """
        wrong = np.flatnonzero(np.abs(found - expected) > SAME_SUM * sizes)
        if len(wrong):
            k = int(wrong[0])
            raise GeneratorError(
                f"features {self.family.name}: {what} gives {found[k]!r} for {name(k)}, where the "
                f"columns give {expected[k]!r}; it must be the same sum, accumulated in float64"
            )


def made_again(family: GeneratedFamily) -> tuple[GeneratedFamily, str]:
    """Restore the family from its configuration; also returns a hint about attributes not stored.

    Raises GeneratorError unless the restored family has the same configuration.
    """
    generator, name = family.generator, family.name
    config = called(f"features {name}: options() or state()", family.to_config)
    try:
        text = json.dumps(config, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise GeneratorError(
            f"features {name}: options and what fit has learnt (attributes whose names end in _) must be "
            f"finite numbers, text, lists or arrays of numbers, which JSON can represent: {error}"
        ) from None
    loose = sorted(
        k
        for k in vars(generator)
        if k not in config["options"] and not k.endswith("_") and k not in OWN
    )
    hint = f"; fit or __init__ set {', '.join(loose)}, which is not stored" * bool(loose)
    hint += ": the name of a learnt attribute must end in _" * bool(loose)
    stored = json.loads(text)
    where = f"features {name}: making it again from its options and state"
    new = called(where, partial(type(generator), **stored["options"]))
    made: GeneratedFamily = called(where, GeneratedFamily.from_config, new, stored)
    found = json.dumps(made.to_config())
    if found != text:
        raise GeneratorError(
            f"features {name}: expected the same options and state after making it again from them, "
            f"{text:.200}, got {found:.200}; keep the arguments of __init__ unchanged under their "
            "names, and make restore() set everything that state() returns"
        )
    if made.n_features != family.n_features:
        raise GeneratorError(
            f"features {name}: made again from its options and state it has {made.n_features} features "
            f"instead of {family.n_features}; restore() must set n_features"
        )
    return made, hint
