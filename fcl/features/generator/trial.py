"""Tries whether a class keeps its promises on some rows of the data.

Binding tries a few features on the sample of fit; :func:`fcl.testing.check_generator` tries more.
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
from fcl.features.base import Floats, Ids
from fcl.features.generator.checked import (
    SomeRows,
    called,
    checked_columns,
    checked_largest,
    checked_vector,
    some_ids,
)
from fcl.features.generator.contract import Generator, overrides
from fcl.features.generator.family import GeneratedFamily

__all__ = ["Trial", "made_again", "take"]

#: What rounding may change of a value, in shares of the largest of its column. Products of matrices round
#: otherwise for other numbers of rows; the trainer tells columns apart from 1e-5 on.
SAME_FLOAT64, SAME_FLOAT32 = 1e-9, 1e-5
#: ... and of a sum in float64, in shares of the sum of the sizes of its terms: some 1e-16 times the root
#: of their number. A sum in float32 is off by 1e-8 and more.
SAME_SUM = 1e-11
#: Attributes of a generator that are stored in a way of their own, or need not be.
OWN = ("n_features", "stored", "binary", "step", "per_pass", "rows", "name")


def take(raw: Any, rows: Ids) -> Any:
    """Some raw rows, in this order."""
    return raw.take(rows) if isinstance(raw, SparseRows) else np.ascontiguousarray(raw[rows])


@dataclass
class Trial:
    """Some features of a family on some rows.

    Each method checks one promise of the contract, and raises GeneratorError if it is broken.

    raw : the rows as they were read.  place : the rows, for messages.
    block : the rows as the class gets them.  columns : what it makes of them.
    """

    family: GeneratedFamily
    raw: Any
    place: SomeRows
    ids: Ids
    block: Any
    columns: np.ndarray

    @property
    def generator(self) -> Generator:
        """The class on trial, fitted."""
        return self.family.generator

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.raw)

    def again(self) -> None:
        """The same columns after others were asked for."""
        checked_columns(self.generator, self.ids[::2], self.block, self.place, self.n)
        found = checked_columns(self.generator, self.ids, self.block, self.place, self.n)
        self.compare(found, slice(None), "when it is called a second time")

    def restored(self) -> None:
        """The same columns of the class made again from what is stored."""
        made, hint = made_again(self.family)
        when = f"when it is made again from its options and state, as models and processes do{hint}"
        try:
            block = made.block_of(self.raw)
            found = checked_columns(made.generator, self.ids, block, self.place, self.n)
        except GeneratorError as error:
            raise GeneratorError(f"{error}; so it does {when}") from error
        self.compare(found, slice(None), when)

    def rows_alone(self) -> None:
        """Half of the rows have the same values without the other half.

        A single one may be a value at a cut, which is rounded otherwise.
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
        """Raise GeneratorError if columns differ from those of the trial by more than rounding.

        found : (k, c), of some of its rows and features.
        when : the difference to how the columns of the trial were made, in words.
        spared : values of a column that may differ.
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
            f"features {self.family.name}: {own} gives another column of feature {ids[k]} {when}: "
            f"{found[row, k]} instead of {expected[row, k]} at {self.place.row(at)}; it must depend on "
            "the feature and the row alone: learn statistics of the data in fit(), into attributes whose "
            "names end in _, and let the seed of random numbers follow from the id"
        )

    def margins(self) -> None:
        """The class's own margins are the products of its columns with weights."""
        for k in (len(self.ids), 1):
            ids, columns = self.ids[:k], self.columns[:, :k].astype(np.float64)
            weights = np.random.default_rng(3).normal(size=k)
            what = f"margins({some_ids(ids)}) on {self.place}"
            arguments = (ids, weights, self.block)
            found = checked_vector(
                self.generator, what, self.generator.margins, *arguments, n=self.n
            )
            sizes = np.abs(columns) @ np.abs(weights)
            self.compare_sums(what, found, columns @ weights, sizes, self.place.row)

    def largest(self) -> None:
        """The class's own bound of its values is one."""
        bound = checked_largest(self.generator, self.block, self.place)
        sizes = np.abs(self.columns.astype(np.float64))
        row, k = (int(i) for i in np.unravel_index(np.argmax(sizes), sizes.shape))
        if bound < sizes[row, k]:
            raise GeneratorError(
                f"features {self.family.name}: largest on {self.place} says that no |value| is beyond "
                f"{bound}, but feature {self.ids[k]} is {self.columns[row, k]} at {self.place.row(row)}; "
                "it has to bound all features on the block, or certificates would be wrong"
            )

    def compare_sums(
        self, what: str, found: Floats, expected: Floats, sizes: Floats, name: Callable[[int], str]
    ) -> None:
        """Raise GeneratorError if sums differ from the expected ones by more than rounding.

        sizes : sums of the sizes of their terms.  name : called with the place of one, names it.
        """
        wrong = np.flatnonzero(np.abs(found - expected) > SAME_SUM * sizes)
        if len(wrong):
            k = int(wrong[0])
            raise GeneratorError(
                f"features {self.family.name}: {what} gives {found[k]!r} for {name(k)}, where the "
                f"columns give {expected[k]!r}; it has to be the same sum, added up in float64"
            )


def made_again(family: GeneratedFamily) -> tuple[GeneratedFamily, str]:
    """The family made again from what is stored, and in words what is not stored.

    Raises GeneratorError unless that would be stored alike.
    """
    generator, name = family.generator, family.name
    config = called(f"features {name}: options() or state()", family.to_config)
    try:
        text = json.dumps(config, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise GeneratorError(
            f"features {name}: options and what fit has learnt (attributes whose names end in _) must be "
            f"finite numbers, text, lists or arrays of numbers, which JSON can hold: {error}"
        ) from None
    loose = sorted(
        k
        for k in vars(generator)
        if k not in config["options"] and not k.endswith("_") and k not in OWN
    )
    hint = f"; fit or __init__ set {', '.join(loose)}, which is not stored" * bool(loose)
    hint += ": the name of what is learnt ends in _" * bool(loose)
    stored = json.loads(text)
    where = f"features {name}: making it again from its options and state"
    new = called(where, partial(type(generator), **stored["options"]))
    made: GeneratedFamily = called(where, GeneratedFamily.from_config, new, stored)
    found = json.dumps(made.to_config())
    if found != text:
        raise GeneratorError(
            f"features {name}: expected the same options and state after making it again from them, "
            f"{text:.200}, got {found:.200}; keep the arguments of __init__ unchanged under their "
            "names, and let restore() take up all that state() gives"
        )
    if made.n_features != family.n_features:
        raise GeneratorError(
            f"features {name}: made again from options and state it has {made.n_features} features "
            f"instead of {family.n_features}; restore() has to set n_features"
        )
    return made, hint
