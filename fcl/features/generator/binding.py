"""From a generator and a data set to a family: fitting, and looking at what is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.base import RowReader
from fcl.data.sparse import SparseRows
from fcl.errors import GeneratorError
from fcl.features.base import Floats, Ids
from fcl.features.generator.checked import (
    SomeRows,
    called,
    checked_columns,
    checked_count,
    checked_largest,
    checked_prepared,
    checked_step,
    checked_vector,
    name_of,
    some_ids,
)
from fcl.features.generator.contract import ROWS, Generator, overrides
from fcl.features.generator.family import GeneratedFamily, ScalesSeen, shown
from fcl.features.generator.forms import MatrixRecord, RowForm, SparseColumns, form_for

__all__ = ["bind", "probed_ids", "same_features", "sample_rows", "spread", "without_probes"]

#: Rows of the sample that :meth:`Generator.fit` sees, fewer if they would take more bytes than that.
FIT_ROWS = 2000
FIT_BYTES = 64 << 20
#: Parts of the data from which they come.
FIT_PARTS = 20
#: Columns of the sample whose scales are looked at together.
SCALED_AT_ONCE = 1024
#: Features that a probe looks at.
PROBED = 16
#: What rounding may change of a value, in shares of the largest of its column: that of float32 products.
SAME = 1e-5
#: Attributes of a generator that are stored in a way of their own, or need not be.
OWN = ("n_features", "stored", "binary", "step", "per_pass", "rows", "name")


def bind(
    generator: Generator,
    rows: RowReader[Any],
    keep: npt.NDArray[np.bool_] | None = None,
    probe: bool = True,
) -> GeneratedFamily:
    """A copy of the generator, fitted to the rows of a data set.

    keep : the rows that are trained on; None for all.
    probe : whether to look at a few columns as well.

    Raises InputError for rows of another kind; GeneratorError for a class that breaks the contract, or
    one that could not be made again from what is stored.
    """
    name = name_of(generator)
    if generator.rows not in ROWS:
        raise GeneratorError(
            f"features {name}: rows must be one of {', '.join(ROWS)}, got {generator.rows!r}"
        )
    if overrides(generator, "gradients") and not overrides(generator, "largest"):
        raise GeneratorError(
            f"features {name}: a class with gradients of its own has to give largest(), an upper bound "
            "of its values; without one nothing could be certified"
        )
    form = form_for(generator.rows, rows)
    options = called(
        f"features {name}: options(), the arguments of __init__ under their own names,",
        generator.options,
    )
    fitted = called(
        f"features {name}: {name}(**options) with options {options}", type(generator), **options
    )
    fitted.stored = rows.dtype
    raw, numbers = sample_rows(form, rows, keep)
    place = SomeRows(f"the sample of {len(raw)} rows that fit got", rows.name, numbers)
    sample = shown(fitted, form.block_of(raw))
    called(f"features {name}: fit on a sample of {len(raw)} rows", fitted.fit, sample)
    checked_count(fitted)
    checked_step(fitted)
    if overrides(fitted, "check"):  # before its columns are looked at: it names the row
        fitted.check(raw, numbers, rows.name)
    size, n = fitted.per_pass, fitted.n_features
    if size is not None and (not 0 < size <= n or n % size):
        raise GeneratorError(
            f"features {name}: per_pass must divide n_features = {n} (or be None), got {size!r}"
        )
    record = None
    if overrides(fitted, "prepare"):
        compact = checked_prepared(fitted, sample, len(raw), None)
        record = MatrixRecord(compact.shape[1], compact.dtype.str)
    block = sample if record is None else compact
    family = GeneratedFamily(fitted, form, record)
    if fitted.warns_of_scales:
        family.scales_seen = _scales(form.block_of(raw))
    made, hint = _made_again(family)
    if probe:
        columns = _probed(fitted, block, place)
        family.probe = _sums(columns)
        _check_columns(family, made, hint, block, place)
        _check_rows_alone(family, raw, columns, place)
        _check_faster_ways(fitted, block, columns, place)
    return family


def _scales(sample: Any) -> ScalesSeen | None:
    """The extreme standard deviations of the columns that vary on a sample, if any does."""
    with np.errstate(over="ignore", invalid="ignore"):  # squares may overflow
        columns, sd = (
            _sparse_scales(sample) if isinstance(sample, SparseColumns) else _dense_scales(sample)
        )
    varies = (sd > 0.0) & np.isfinite(sd)
    if not varies.any():
        return None
    columns, sd = columns[varies], sd[varies]
    low, high = int(np.argmin(sd)), int(np.argmax(sd))
    n = sample.n_rows if isinstance(sample, SparseColumns) else len(sample)
    return ScalesSeen(int(columns[low]), float(sd[low]), int(columns[high]), float(sd[high]), n)


def _dense_scales(sample: np.ndarray) -> tuple[Ids, Floats]:
    """Columns and their standard deviations: exactly 0 where a column is constant."""
    sd = np.empty(sample.shape[1])
    for at in range(0, len(sd), SCALED_AT_ONCE):
        part = sample[:, at : at + SCALED_AT_ONCE].astype(np.float64)
        sd[at : at + SCALED_AT_ONCE] = (part - part[0]).std(axis=0)
    return np.arange(len(sd)), sd


def _sparse_scales(sample: SparseColumns) -> tuple[Ids, Floats]:
    """The same of the columns that have an entry."""
    if not len(sample.columns):
        return sample.columns, np.empty(0)
    counts, first = np.diff(sample.start), sample.start[:-1]
    zeros = sample.n_rows - counts
    # a column without zeros may have a large offset
    shift = np.where(zeros > 0, 0.0, sample.values[first])
    values = sample.values - np.repeat(shift, counts)
    means = np.add.reduceat(values, first) / sample.n_rows
    squares = np.add.reduceat((values - np.repeat(means, counts)) ** 2, first)
    return sample.columns, np.sqrt((squares + zeros * means**2) / sample.n_rows)


def probed_ids(n_features: int) -> Ids:
    """Up to ``PROBED`` features from all over the family, with the first and the last."""
    last = int(n_features) - 1  # Python's whole numbers: float64 is exact to 2^53 alone
    return np.unique(np.array([last * k // (PROBED - 1) for k in range(PROBED)], np.int64))


def _probed(generator: Generator, block: Any, place: SomeRows) -> np.ndarray:
    """The columns that are looked at, on some rows: (n, k), as the class makes them."""
    ids = probed_ids(generator.n_features)
    return checked_columns(generator, ids, block, place, len(place.numbers))


def _sums(columns: np.ndarray) -> list[float]:
    """Sums over columns: they tell whether a class has changed. The order of rows matters too."""
    sums = (1.0 + np.arange(len(columns)) % 7) @ columns.astype(np.float64, copy=False)
    return [float(x) for x in sums]


def same_features(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether families of these configurations make the same columns, as far as their probes tell.

    ``before`` is from a file that anyone may have written; what is malformed differs.
    """
    try:
        if "members" in before:
            pairs = zip(before["members"], now.get("members", ()), strict=False)
            return all(same_features(a, b) for a, b in pairs)
        one, other = before.get("probe"), now.get("probe")
        if one is None or other is None:
            return True
        scale = 1e-6 * max((abs(x) for x in one), default=0.0)
        return len(one) == len(other) and bool(np.allclose(one, other, rtol=1e-6, atol=scale))
    except (TypeError, ValueError, AttributeError):
        return False


def without_probes(config: Mapping[str, Any]) -> dict[str, Any]:
    """A family's configuration without its probes, which differ where values of the rows do."""
    out = {name: value for name, value in config.items() if name != "probe"}
    if "members" in out:
        out["members"] = [without_probes(member) for member in out["members"]]
    return out


def _made_again(family: GeneratedFamily) -> tuple[GeneratedFamily, str]:
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

    def again() -> GeneratedFamily:
        stored = json.loads(text)
        new = type(generator)(**stored["options"])
        return GeneratedFamily.from_config(new, stored)

    made = called(f"features {name}: making it again from its options and state", again)
    found = json.dumps(made.to_config())
    if found != text:
        raise GeneratorError(
            f"features {name}: expected the same options and state after making it again from them, "
            f"{text:.200}, got {found:.200}; keep the arguments of __init__ unchanged under their "
            "names, and let restore() take up all that state() gives"
        )
    return made, hint


def _check_columns(
    family: GeneratedFamily, made: GeneratedFamily, hint: str, block: Any, place: SomeRows
) -> None:
    """Raise GeneratorError unless a few columns are the same again, here and made from what is stored."""
    generator, name = family.generator, family.name
    if _sums(_probed(generator, block, place)) != family.probe:
        raise GeneratorError(
            f"features {name}: columns() gave other values when asked again for the same features and "
            "rows; they must depend on these alone, whatever was asked before"
        )
    try:
        same = _sums(_probed(made.generator, block, place)) == family.probe
    except GeneratorError as error:
        raise GeneratorError(
            f"{error}; so it does when made again from what is stored{hint}"
        ) from error
    if not same:
        raise GeneratorError(
            f"features {name}: made again from its options and state, as another process and a model "
            f"file do, it gives other columns{hint}"
        )


def _check_rows_alone(
    family: GeneratedFamily, raw: Any, columns: np.ndarray, place: SomeRows
) -> None:
    """Raise GeneratorError unless half of the rows give the same values without the other half."""
    ids = probed_ids(family.n_features)
    limit = SAME * np.abs(columns.astype(np.float64)).max(axis=0, initial=0.0)
    for at in range(2 if len(raw) > 1 else 0):
        some = slice(at, None, 2)
        rows = np.arange(at, len(raw), 2)
        part = raw.take(rows) if isinstance(raw, SparseRows) else np.ascontiguousarray(raw[rows])
        half = place.part("every second row", some)
        found = checked_columns(family.generator, ids, family.block_of(part), half, len(rows))
        wrong = np.abs(found.astype(np.float64) - columns[some]) > limit
        wrong &= wrong.sum(axis=0) > 1  # a single one may be a value at a cut, rounded otherwise
        if wrong.any():
            row, k = (int(i) for i in np.argwhere(wrong)[0])
            own = (
                "prepare() or columns()" if overrides(family.generator, "prepare") else "columns()"
            )
            raise GeneratorError(
                f"features {family.name}: feature {ids[k]} is {columns[some][row, k]} at "
                f"{half.row(row)} in {place}, but {found[row, k]} in a block of every second of these; "
                f"what {own} makes of a row must not depend on the other rows of the block, which are "
                "others in prediction: learn statistics of the data in fit(), into attributes whose "
                "names end in _"
            )


def _check_faster_ways(
    generator: Generator, block: Any, columns: np.ndarray, place: SomeRows
) -> None:
    """Raise GeneratorError unless the class's own margins and largest agree with a few columns."""
    name, ids = name_of(generator), probed_ids(generator.n_features)
    values = columns.astype(np.float64, copy=False)
    sizes = np.abs(values)
    if overrides(generator, "margins"):
        weights = np.random.default_rng(0).normal(size=len(ids))
        what = f"margins({some_ids(ids)}) on {place}"
        found = checked_vector(
            generator, what, generator.margins, ids, weights, block, n=len(values)
        )
        expected = values @ weights
        wrong = np.abs(found - expected) > SAME * (sizes @ np.abs(weights))
        if wrong.any():
            row = int(wrong.argmax())
            raise GeneratorError(
                f"features {name}: {what}: {found[row]!r} at {place.row(row)}, where columns() @ weights "
                f"is {expected[row]!r}; it has to be the same sum, added up in float64 (or leave "
                "margins() out: columns() then does)"
            )
    if overrides(generator, "largest"):
        bound = checked_largest(generator, block, place)
        row, k = (int(i) for i in np.unravel_index(np.argmax(sizes), sizes.shape))
        if sizes[row, k] > bound * (1.0 + SAME):
            raise GeneratorError(
                f"features {name}: largest on {place} says that no |value| is beyond {bound}, but "
                f"feature {ids[k]} is {columns[row, k]} at {place.row(row)}; it has to bound all "
                "features on the block, or certificates would be wrong"
            )


def sample_rows(
    form: RowForm, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None
) -> tuple[Any, Ids]:
    """Raw rows from all over those that are kept, and their numbers in the data set."""
    row_bytes = form.width * rows.dtype.itemsize
    most = max(FIT_PARTS, min(FIT_ROWS, FIT_BYTES // max(1, row_bytes)))
    kept = np.arange(rows.shape[0]) if keep is None else np.flatnonzero(keep)
    kept = kept[spread(len(kept), most)]
    chosen = np.zeros(rows.shape[0], bool)
    chosen[kept] = True
    _, _, raw = next(form.read(rows, len(kept), chosen, 0, None))
    return raw, kept


def spread(n: int, most: int) -> Ids:
    """Places of at most so many of n rows, in parts from all over them; all, if they are no more."""
    if n <= most:
        return np.arange(n)
    part = most // FIT_PARTS
    starts = np.linspace(0, n - part, FIT_PARTS).astype(np.int64)
    return np.unique((starts[:, None] + np.arange(part)).ravel())
