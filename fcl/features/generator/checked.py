"""Validates the return values of a generator; errors name the family, the features and the block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import GeneratorError, InputError
from fcl.features.base import FEATURES_LIMIT, MOST_STEPS
from fcl.features.generator.contract import Generator
from fcl.features.rows import RowChunk, id_type
from fcl.types import Floats, Ids
from fcl.working_folder import why_missing


@dataclass(frozen=True)
class SomeRows:
    """Describes rows that are not a row block of a run, for messages.

    words : description of the rows.
    data : name of the data set.
    numbers : int64 (n,), numbers of the rows in the data set.
    """

    words: str
    data: str
    numbers: Ids

    def __str__(self) -> str:
        return self.words

    def row(self, row: int) -> str:
        """The position in the data set of one of the rows."""
        return f"row {self.numbers[row]} of {self.data}"


#: The rows for which columns are made: the number of a row block, or other rows.
Place = int | SomeRows


def _on(place: Place) -> str:
    return str(place) if isinstance(place, SomeRows) else f"row block {place}"


def _row(place: Place, row: int) -> str:
    return place.row(row) if isinstance(place, SomeRows) else f"row {row} of the block"


def name_of(generator: Generator) -> str:
    """Name of a generator in messages."""
    return type(generator).__name__


def is_built_in(generator: object) -> bool:
    """Whether a generator, or a class of generators, is one of fcl's own."""
    cls = generator if isinstance(generator, type) else type(generator)
    return issubclass(cls, Generator) and cls.__module__.partition(".")[0] == "fcl"


def fault(generator: object, text: str) -> InputError:
    """The error for a generator that breaks the contract.

    It blames a user's class only. A class of fcl meets numbers that it cannot use, such as values that
    overflow, and the message is then about the data.
    """
    return InputError(text) if is_built_in(generator) else GeneratorError(text)


def called(where: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a method of a generator, or a function of one; exceptions become a :func:`fault` of it.

    The message begins with ``where``. A MemoryError is raised unchanged, because it is due to the machine
    or the memory budget. So is an InputError of a built-in family, whose message addresses the user.
    """
    try:
        return function(*arguments, **options)
    except MemoryError:
        raise
    except Exception as error:
        owners = getattr(function, "__self__", function), *arguments
        built_in = any(map(is_built_in, owners))
        if isinstance(error, InputError) and built_in:
            raise
        kind = InputError if built_in else GeneratorError
        text = f"{where} raised {type(error).__name__}: {error}{why_missing(error)}"
        raise kind(text) from error


def checked_count(generator: Generator) -> int:
    """``n_features`` after fit, as an int; an error unless it is from 1 to 2^62 - 1."""
    n = getattr(generator, "n_features", None)
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or not 0 < n < FEATURES_LIMIT:
        raise fault(
            generator,
            f"features {name_of(generator)}: n_features must be a whole number from 1 to 2^62 - 1 "
            f"after fit, got {shown(n)}",
        )
    return int(n)


def checked_step(generator: Generator) -> None:
    """Raise an error unless ``step`` is 0, or float32 represents its multiples exactly."""
    step = generator.step
    good = isinstance(step, int | float | np.number) and 0.0 <= step < np.inf
    if good and step:
        multiples = float(step) * np.arange(1, MOST_STEPS + 1)
        good = not generator.binary and bool((multiples.astype(np.float32) == multiples).all())
    if not good:
        raise fault(
            generator,
            f"features {name_of(generator)}: step must be 0, or (unless binary is True) a number above 0 "
            f"whose multiples, up to {MOST_STEPS} times, are exact in float32, got {step!r}",
        )


def checked_columns(generator: Generator, ids: Ids, block: Any, place: Place, n: int) -> np.ndarray:
    """Validated result of ``generator.columns`` on n rows: a real, finite matrix (n, len(ids))."""
    where = f"features {name_of(generator)}: columns({some_ids(ids)}) on {_on(place)}"
    found = called(where, generator.columns, ids, block)
    if not isinstance(found, np.ndarray):
        raise fault(generator, f"{where}: expected a numpy array, got {type(found).__name__}")
    if found.shape != (n, len(ids)):
        raise fault(
            generator,
            f"{where}: expected shape {(n, len(ids))}, rows by features, got {found.shape}",
        )
    if found.dtype.kind not in "biuf":
        raise fault(generator, f"{where}: expected real numbers, got dtype {found.dtype}")

    def refuse(wrong: np.ndarray, before: str, after: str = "") -> None:
        """Raise an error for the first wrong value, if there is one."""
        if wrong.any():
            row, k = (int(i) for i in np.argwhere(wrong)[0])
            value = f"feature {ids[k]} is {found[row, k]} at {_row(place, row)}"
            raise fault(generator, f"{where}: {before}{value}{after}")

    if generator.binary and found.dtype != np.bool_:
        refuse((found != 0) & (found != 1), "the class says binary = True, but ")
    if not _finite(found):
        refuse(~np.isfinite(found), "", "; values must be finite")
    if generator.step:
        steps = np.rint(found / generator.step)
        refuse(
            (steps * generator.step != found) | (np.abs(steps) > MOST_STEPS),
            f"the class says step = {generator.step!r}, so all values must be multiples of it, "
            f"-{MOST_STEPS} to {MOST_STEPS} times, but ",
        )
    return found


def checked(
    generator: Generator,
    call: str,
    function: Callable[..., Any],
    *arguments: Any,
    shape: tuple[int, ...],
    finite: bool = True,
) -> Floats:
    """Validated array that an optional method of the generator returns, as float64 of this shape.

    call : description of the call, with its features and block.
    """
    where = f"features {name_of(generator)}: {call}"
    found = _floats(generator, where, called(where, function, *arguments), shape)
    if finite and not _finite(found):
        raise fault(
            generator, f"{where}: expected finite numbers, got {found[~np.isfinite(found)][0]}"
        )
    return found


def checked_powers(
    generator: Generator, ids: Ids, block: Any, place: Place, power: int, v: Floats
) -> Floats | None:
    """Validated result of ``generator.power_sums``, float64 (K, len(ids)); squares may overflow."""
    where = f"features {name_of(generator)}: power_sums on {_on(place)}"
    found = called(where, generator.power_sums, ids, block, power, v)
    return None if found is None else _floats(generator, where, found, (len(v), len(ids)))


def checked_nonzeros(generator: Generator, block: Any, n: int, place: Place) -> RowChunk:
    """Validated result of ``generator.nonzeros`` on n rows, with values of float32 or float64."""
    where = f"features {name_of(generator)}: nonzeros on {_on(place)}"
    found = called(where, generator.nonzeros, block)
    if not isinstance(found, tuple) or len(found) != 3:
        raise fault(
            generator, f"{where}: expected (indptr, ids, values), got {type(found).__name__}"
        )
    indptr, ids, values = map(np.asarray, found)
    if (
        indptr.dtype.kind not in "iu"
        or ids.dtype.kind not in "iu"
        or values.dtype.kind not in "biuf"
    ):
        raise fault(
            generator,
            f"{where}: expected whole numbers, whole numbers and real numbers, got dtypes "
            f"{indptr.dtype}, {ids.dtype} and {values.dtype}",
        )
    ends = indptr[[0, -1]].tolist() if indptr.ndim == 1 and len(indptr) else []
    if len(indptr) != n + 1 or ends != [0, len(ids)] or (np.diff(indptr) < 0).any():
        raise fault(
            generator,
            f"{where}: expected an indptr of {n + 1} numbers that increase from 0 to {len(ids)}, the "
            f"number of ids, got {indptr!r:.80}",
        )
    if ids.shape != (len(ids),) or values.shape != ids.shape:
        raise fault(
            generator,
            f"{where}: expected as many ids as values, got shapes {ids.shape} and {values.shape}",
        )
    outside = (ids < 0) | (ids >= generator.n_features)
    for wrong, what in ((outside, "outside the family"), (~np.isfinite(values), "not finite")):
        if wrong.any():
            e = int(wrong.argmax())
            row = int(np.searchsorted(indptr, e, side="right")) - 1
            raise fault(
                generator,
                f"{where}: feature {ids[e]} with value {values[e]} at {_row(place, row)} is {what}",
            )
    rows = np.repeat(np.arange(n), np.diff(indptr))
    order = np.lexsort((ids, rows))
    twice = (np.diff(ids[order]) == 0) & (np.diff(rows[order]) == 0)
    if twice.any():
        e = order[int(twice.argmax())]
        raise fault(
            generator,
            f"{where}: feature {ids[e]} is listed twice at {_row(place, int(rows[e]))}; "
            "add the values up",
        )
    dtype = np.float32 if values.dtype == np.float32 else np.float64
    return RowChunk(
        indptr.astype(np.int64), ids.astype(id_type(generator.n_features)), values.astype(dtype)
    )


def checked_largest(generator: Generator, block: Any, place: Place) -> float:
    """Validated result of ``generator.largest`` on a block: a finite number >= 0."""
    where = f"features {name_of(generator)}: largest on {_on(place)}"
    found = called(where, generator.largest, block)
    try:
        value = float(found)
    except (TypeError, ValueError):
        value = np.nan
    if not 0.0 <= value < np.inf:
        raise fault(
            generator,
            f"{where}: expected an upper bound on all |values|, a finite number >= 0, got "
            f"{found!r:.80}",
        )
    return value


def checked_moments(
    generator: Generator, first: int, last: int, block: Any, place: Place, weights: Floats
) -> Floats:
    """Validated result of ``generator.moments`` on a block, as float64 (5, last - first)."""
    call, shape = f"moments(features {first} to {last - 1}) on {_on(place)}", (5, last - first)
    arguments = generator.moments, first, last, block, weights
    return checked(generator, call, *arguments, shape=shape, finite=False)


def checked_factors(generator: Generator, ids: Ids) -> Floats:
    """Validated penalty factors of some features, float64 (k,), all above 0."""
    call, function = f"penalty_factors({some_ids(ids)})", generator.penalty_factors
    found = checked(generator, call, function, ids, shape=(len(ids),), finite=False)
    if not (found > 0.0).all():
        at = int(np.argmin(found > 0.0))
        raise fault(
            generator,
            f"features {name_of(generator)}: {call}: feature {ids[at]} has {found[at]}; factors must be "
            "above 0, or infinite to exclude a feature",
        )
    return found


def checked_prepared(
    generator: Generator, block: Any, n: int, like: tuple[int, np.dtype] | None
) -> np.ndarray:
    """Validated result of ``generator.prepare``: an array (n, c).

    n : number of rows.
    like : required width c and dtype; None: any.
    """
    where = f"features {name_of(generator)}: prepare"
    made = called(where, generator.prepare, block)
    if not isinstance(made, np.ndarray) or made.ndim != 2 or len(made) != n:
        raise fault(
            generator,
            f"{where}: expected an array ({n}, c), one row for each row of the block, got {_kind(made)}",
        )
    if made.dtype.kind not in "biuf" or not made.shape[1]:
        raise fault(
            generator, f"{where}: expected at least one column of real numbers, got {_kind(made)}"
        )
    if like is not None and (made.shape[1], made.dtype) != like:
        raise fault(
            generator,
            f"{where}: expected {like[1]} {(n, like[0])}, as for the sample of fit, got "
            f"{_kind(made)}; width and dtype must be the same for every block",
        )
    return made


def some_ids(ids: Ids) -> str:
    """Text for features in a message: the id, or their number and range."""
    if not len(ids):
        return "no features"
    if len(ids) == 1:
        return f"feature {ids[0]}"
    return f"{len(ids)} features, {ids[0]} to {ids[-1]}"


def _finite(found: np.ndarray) -> bool:
    """Whether all values are finite. Tries the sum first, which needs no temporary array."""
    if found.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(found.sum())) or bool(np.isfinite(found).all())


def _floats(generator: Generator, where: str, found: Any, shape: tuple[int, ...]) -> Floats:
    """Convert the result of a method to float64; error unless it is real, of this shape."""
    if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype.kind not in "biuf":
        raise fault(generator, f"{where}: expected float64 {shape}, got {_kind(found)}")
    return found.astype(np.float64, copy=False)


def _kind(found: object) -> str:
    if isinstance(found, np.ndarray):
        return f"{found.dtype} {found.shape}"
    return type(found).__name__
