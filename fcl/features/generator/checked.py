"""Validates what a generator returns; errors name the family, the features and the block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.errors import GeneratorError, InputError
from fcl.features.base import FEATURES_LIMIT, MOST_STEPS, Floats, Ids
from fcl.features.generator.contract import Generator

__all__ = [
    "Place",
    "SomeRows",
    "called",
    "checked_columns",
    "checked_count",
    "checked_factors",
    "checked_largest",
    "checked_moments",
    "checked_prepared",
    "checked_step",
    "checked_vector",
    "name_of",
    "some_ids",
]


@dataclass(frozen=True)
class SomeRows:
    """Rows of a data set that are no row block of a run, for messages.

    words : how they are called.  data : the name of the data set.  numbers : of the rows in it, (n,).
    """

    words: str
    data: str
    numbers: Ids

    def __str__(self) -> str:
        return self.words

    def row(self, row: int) -> str:
        """One of them: where the data have it."""
        return f"row {self.numbers[row]} of {self.data}"


#: Where columns are made: a row block, by its number, or other rows.
Place = int | SomeRows


def _on(place: Place) -> str:
    return str(place) if isinstance(place, SomeRows) else f"row block {place}"


def _row(place: Place, row: int) -> str:
    return place.row(row) if isinstance(place, SomeRows) else f"row {row} of the block"


def name_of(generator: Generator) -> str:
    """How a generator is called in messages."""
    return type(generator).__name__


def called(where: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a method of a generator; an exception is raised anew with ``where``.

    MemoryError passes: the machine is at fault, or the budget. So does an InputError of a family of
    fcl's own, which is meant for the user.
    """
    try:
        return function(*arguments, **options)
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, InputError) and _is_own(function):
            raise
        raise GeneratorError(f"{where} raised {type(error).__name__}: {error}") from error


def _is_own(function: Callable[..., Any]) -> bool:
    """Whether this is a family of fcl's own, or a method of one."""
    owner = getattr(function, "__self__", function)
    cls = owner if isinstance(owner, type) else type(owner)
    return issubclass(cls, Generator) and cls.__module__.partition(".")[0] == "fcl"


def checked_count(generator: Generator) -> int:
    """``n_features`` after fit."""
    n = getattr(generator, "n_features", None)
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or not 0 < n < FEATURES_LIMIT:
        raise GeneratorError(
            f"features {name_of(generator)}: n_features must be a whole number from 1 to 2^62 after "
            f"fit, got {n!r}"
        )
    return int(n)


def checked_step(generator: Generator) -> None:
    """Raise GeneratorError unless ``step`` is 0, or float32 holds its multiples."""
    step = generator.step
    good = isinstance(step, int | float | np.number) and 0.0 <= step < np.inf
    if good and step:
        multiples = float(step) * np.arange(1, MOST_STEPS + 1)
        good = not generator.binary and bool((multiples.astype(np.float32) == multiples).all())
    if not good:
        raise GeneratorError(
            f"features {name_of(generator)}: step must be 0, or (unless binary is True) a number above 0 "
            f"whose multiples, up to {MOST_STEPS} times, float32 holds exactly, got {step!r}"
        )


def checked_columns(generator: Generator, ids: Ids, block: Any, place: Place, n: int) -> np.ndarray:
    """``generator.columns`` on a block of n rows: a real, finite matrix (n, len(ids))."""
    where = f"features {name_of(generator)}: columns({some_ids(ids)}) on {_on(place)}"
    found = called(where, generator.columns, ids, block)
    if not isinstance(found, np.ndarray):
        raise GeneratorError(f"{where}: expected a numpy array, got {type(found).__name__}")
    if found.shape != (n, len(ids)):
        raise GeneratorError(
            f"{where}: expected shape {(n, len(ids))}, rows by features, got {found.shape}"
        )
    if found.dtype.kind not in "biuf":
        raise GeneratorError(f"{where}: expected real numbers, got dtype {found.dtype}")
    if generator.binary and found.dtype != np.bool_:
        wrong = (found != 0) & (found != 1)
        if wrong.any():
            row, k = (int(i) for i in np.argwhere(wrong)[0])
            raise GeneratorError(
                f"{where}: the class says binary = True, but feature {ids[k]} is {found[row, k]} at "
                f"{_row(place, row)}"
            )
    if not _finite(found):
        row, k = (int(i) for i in np.argwhere(~np.isfinite(found))[0])
        raise GeneratorError(
            f"{where}: feature {ids[k]} is {found[row, k]} at {_row(place, row)}; values must be "
            "finite"
        )
    if generator.step:
        steps = np.rint(found / generator.step)
        wrong = (steps * generator.step != found) | (np.abs(steps) > MOST_STEPS)
        if wrong.any():
            row, k = (int(i) for i in np.argwhere(wrong)[0])
            raise GeneratorError(
                f"{where}: the class says step = {generator.step!r}, of which all values are multiples, "
                f"-{MOST_STEPS} to {MOST_STEPS} times, but feature {ids[k]} is {found[row, k]} at "
                f"{_row(place, row)}"
            )
    return found


def checked_vector(
    generator: Generator, what: str, function: Callable[..., Any], *arguments: Any, n: int
) -> Floats:
    """The vector of n numbers that a faster way of the generator returns, as float64 (n,).

    what : the call, in words, with its features and block.
    """
    where = f"features {name_of(generator)}: {what}"
    found = _floats(where, called(where, function, *arguments), (n,))
    if not _finite(found):
        raise GeneratorError(
            f"{where}: expected finite numbers, got {found[~np.isfinite(found)][0]}"
        )
    return found


def checked_largest(generator: Generator, block: Any, place: Place) -> float:
    """``generator.largest`` on a block: a finite number, not negative."""
    where = f"features {name_of(generator)}: largest on {_on(place)}"
    found = called(where, generator.largest, block)
    try:
        value = float(found)
    except (TypeError, ValueError):
        value = np.nan
    if not 0.0 <= value < np.inf:
        raise GeneratorError(
            f"{where}: expected an upper bound of all |values|, a finite number of 0 or more, got "
            f"{found!r:.80}"
        )
    return value


def checked_moments(
    generator: Generator, first: int, last: int, block: Any, place: Place, weights: Floats
) -> Floats:
    """``generator.moments`` on a block: finite numbers, float64 (5, last - first)."""
    what = f"features {name_of(generator)}: moments(features {first} to {last - 1}) on {_on(place)}"
    found = called(what, generator.moments, first, last, block, weights)
    return _floats(what, found, (5, last - first))


def checked_factors(generator: Generator, ids: Ids) -> Floats:
    """The penalty factors of some features, float64 (k,), all above 0."""
    where = f"features {name_of(generator)}: penalty_factors({some_ids(ids)})"
    found = _floats(where, called(where, generator.penalty_factors, ids), (len(ids),))
    if not (found > 0.0).all():
        at = int(np.argmin(found > 0.0))
        raise GeneratorError(
            f"{where}: feature {ids[at]} has {found[at]}; factors must be above 0, or infinite to "
            "leave a feature out"
        )
    return found


def checked_prepared(
    generator: Generator, block: Any, n: int, like: tuple[int, np.dtype] | None
) -> np.ndarray:
    """``generator.prepare`` of a block of n rows: (n, c), of the width and dtype of ``like``."""
    where = f"features {name_of(generator)}: prepare"
    made = called(where, generator.prepare, block)
    if not isinstance(made, np.ndarray) or made.ndim != 2 or len(made) != n:
        raise GeneratorError(
            f"{where}: expected an array ({n}, c), a row for each row, got {_kind(made)}"
        )
    if made.dtype.kind not in "biuf" or not made.shape[1]:
        raise GeneratorError(
            f"{where}: expected at least one column of real numbers, got {_kind(made)}"
        )
    if like is not None and (made.shape[1], made.dtype) != like:
        raise GeneratorError(
            f"{where}: expected {like[1]} {(n, like[0])}, as it gave for the sample of fit, got "
            f"{_kind(made)}; width and dtype have to be the same for every block"
        )
    return made


def some_ids(ids: Ids) -> str:
    """Features in a message: which, or how many and between which."""
    if not len(ids):
        return "no features"
    if len(ids) == 1:
        return f"feature {ids[0]}"
    return f"{len(ids)} features, {ids[0]} to {ids[-1]}"


def _finite(found: np.ndarray) -> bool:
    """Whether all values are finite; a sum needs no array of flags."""
    if found.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(found.sum())) or bool(np.isfinite(found).all())


def _floats(where: str, found: Any, shape: tuple[int, ...]) -> Floats:
    """Real numbers that a method returned, as float64; GeneratorError unless they have this shape."""
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype.kind not in "biuf":
        raise GeneratorError(f"{where}: expected float64 {shape}, got {_kind(found)}")
    return found.astype(np.float64, copy=False)


def _kind(found: object) -> str:
    if isinstance(found, np.ndarray):
        return f"{found.dtype} {found.shape}"
    return type(found).__name__
