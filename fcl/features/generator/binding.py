"""Binds a generator to a data set: fits it, tests it, and compares stored probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.base import RowReader
from fcl.features.generator.checked import (
    SomeRows,
    called,
    checked_columns,
    checked_count,
    checked_prepared,
    checked_step,
    fault,
    is_built_in,
    name_of,
)
from fcl.features.generator.contract import ROWS, Generator, overrides
from fcl.features.generator.family import GeneratedFamily, block_for
from fcl.features.generator.forms import MatrixRecord, RowForm, SparseColumns, form_for
from fcl.features.generator.scales import (
    centres_of,
    extremes,
    means_and_deviations,
    sparse_deviations,
)
from fcl.features.generator.trial import Trial, made_again, take
from fcl.types import Ids

#: The sample for :meth:`Generator.fit` takes at most this many bytes.
FIT_BYTES = 64 << 20
#: Number of its rows on which the class is tried.
TRIED_ROWS = 2000
#: Number of contiguous parts of the data from which these rows come.
FIT_PARTS = 20
#: Number of features of a probe.
PROBED = 16


def bind(
    generator: Generator,
    rows: RowReader[Any],
    keep: npt.NDArray[np.bool_] | None = None,
    probe: bool = True,
) -> GeneratedFamily:
    """Bind a copy of the generator, fitted to a sample of the rows, to a data set.

    keep : bool (n,), the training rows; None: all rows.
    probe : whether to make a few columns as well, and to test them unless the class is one of fcl.

    Raises InputError: for rows of another kind.
    Raises GeneratorError: for a class that breaks the contract, or cannot be restored from its options
        and state.
    """
    name = name_of(generator)
    if generator.rows not in ROWS:
        raise fault(
            generator,
            f"features {name}: rows must be one of {', '.join(ROWS)}, got {generator.rows!r}",
        )
    if overrides(generator, "gradients") and not overrides(generator, "largest"):
        raise fault(
            generator,
            f"features {name}: a class that defines gradients() must also define largest(), an upper "
            "bound on its |values|; without it nothing can be certified",
        )
    form = form_for(generator.rows, rows)
    options = called(
        f"features {name}: options(), the arguments of __init__ under their own names,",
        generator.options,
    )
    fitted = called(
        f"features {name}: {name}(**options) with options {options}", type(generator), **options
    )
    fitted.stored, fitted.kept = rows.dtype, generator.kept
    raw, numbers = sample_rows(form, rows, keep, fitted.fit_rows)
    sample = block_for(fitted, form.block_of(raw))
    called(f"features {name}: fit on a sample of {len(raw)} rows", fitted.fit, sample)
    if fitted.measured_rows:
        measured, _ = sample_rows(form, rows, keep, fitted.measured_rows)
        fitted.measure(form.block_of(measured))
    if len(raw) > TRIED_ROWS:
        some = spread(len(raw), TRIED_ROWS)
        raw, numbers = take(raw, some), numbers[some]
        sample = block_for(fitted, form.block_of(raw))
    place = SomeRows(f"the sample of {len(raw)} rows that fit got", rows.name, numbers)
    checked_count(fitted)
    checked_step(fitted)
    if overrides(fitted, "check"):  # before columns are made, because its errors name the row
        fitted.check(raw, numbers, rows.name)
    size, n = fitted.per_pass, fitted.n_features
    if size is not None and (not 0 < size <= n or n % size):
        raise fault(
            generator,
            f"features {name}: per_pass must divide n_features = {n} (or be None), got {size!r}",
        )
    record = None
    if overrides(fitted, "prepare"):
        compact = checked_prepared(fitted, sample, len(raw), None)
        record = MatrixRecord(compact.shape[1], compact.dtype.str)
    family = GeneratedFamily(fitted, form, record)
    block = family.block_of(raw) if record is None else compact
    _measure(family, form.block_of(raw))
    tried = not is_built_in(generator)
    if not probe:
        if tried:
            made_again(family)
        return family
    ids = probed_ids(n)
    columns = checked_columns(fitted, ids, block, place, len(raw))
    family.probe = _sums(columns)
    if not tried:
        return family
    trial = Trial(family, raw, place, ids, block, columns)
    trial.again()
    trial.restored()
    trial.rows_alone()
    if overrides(fitted, "margins"):
        trial.margins()
    if overrides(fitted, "largest"):
        trial.largest()
    return family


def _measure(family: GeneratedFamily, sample: Any) -> None:
    """Measure scales and centres of the columns of a sample, where the generator's features need them."""
    generator = family.generator
    if isinstance(sample, SparseColumns):
        if generator.warns_of_scales:
            family.scales_seen = extremes(*sparse_deviations(sample), sample.n_rows)
    elif generator.warns_of_scales or generator.may_be_centred:
        means, sd = means_and_deviations(sample)
        if generator.warns_of_scales:
            family.scales_seen = extremes(np.arange(len(sd)), sd, len(sample))
        if generator.may_be_centred:
            family.centres_seen = centres_of(sample, means, sd)


def probed_ids(n_features: int) -> Ids:
    """Up to ``PROBED`` features spread over the family, including the first and the last."""
    last = int(n_features) - 1  # Python integers, since float64 is exact only up to 2^53
    return np.unique(np.array([last * k // (PROBED - 1) for k in range(PROBED)], np.int64))


def _sums(columns: np.ndarray) -> list[float]:
    """Sums over columns that reveal a changed class; row weights make them depend on the row order."""
    sums = (1.0 + np.arange(len(columns)) % 7) @ columns.astype(np.float64, copy=False)
    return [float(x) for x in sums]


def same_features(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the probes of two configurations agree, so that their families make the same columns.

    ``before`` may come from an untrusted file; a malformed configuration counts as different.
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
    except (TypeError, ValueError, AttributeError, OverflowError):
        return False


def without_probes(config: Mapping[str, Any]) -> dict[str, Any]:
    """A family's configuration without its probes and centres, which depend on the values of the rows."""
    out = {name: value for name, value in config.items() if name != "probe"}
    if "state" in out:
        state = out["state"].items()
        out["state"] = {k: v for k, v in state if k not in ("centred_", "centres_")}
    if "members" in out:
        out["members"] = [without_probes(member) for member in out["members"]]
    return out


def without_scales(config: Mapping[str, Any]) -> dict[str, Any]:
    """:func:`without_probes`, and without what products divide their columns by."""
    out = without_probes(config)
    if out.get("family") == "products":
        out["state"] = {k: v for k, v in out["state"].items() if k != "scales_"}
        out["options"] = {k: v for k, v in out["options"].items() if k not in ("scale", "centre")}
    if "members" in out:
        out["members"] = [without_scales(member) for member in config["members"]]
    return out


def sample_rows(
    form: RowForm,
    rows: RowReader[Any],
    keep: npt.NDArray[np.bool_] | None,
    most: int = TRIED_ROWS,
) -> tuple[Any, Ids]:
    """A sample of raw rows from all parts of the kept rows, and their numbers in the data set."""
    row_bytes = form.width * rows.dtype.itemsize
    most = max(FIT_PARTS, min(most, FIT_BYTES // max(1, row_bytes)))
    kept = np.arange(rows.shape[0]) if keep is None else np.flatnonzero(keep)
    kept = kept[spread(len(kept), most)]
    chosen = np.zeros(rows.shape[0], bool)
    chosen[kept] = True
    _, _, raw = next(form.read(rows, len(kept), chosen, 0, None))
    return raw, kept


def spread(n: int, most: int) -> Ids:
    """At most ``most`` of the indices 0 .. n - 1, in contiguous parts spread over the range."""
    if n <= most:
        return np.arange(n)
    part = most // FIT_PARTS
    starts = np.linspace(0, n - part, FIT_PARTS).astype(np.int64)
    return np.unique((starts[:, None] + np.arange(part)).ravel())
