"""Standardised features: the penalty sees each weight in units of its feature's standard deviation.

With sd_j the weighted standard deviation of feature j over the training rows, the problem is

    minimise   sum_j f_j [ rho |sd_j w_j| + (1 - rho) (sd_j w_j)^2 / 2 ] + C sum_i s_i loss(y_i, m_i)

with the population form sd_j^2 = sum_i s_i (phi_ij - mean_j)^2 / sum_i s_i. This is the problem that
glmnet solves by default: deviations are taken about the mean whether or not there is an intercept,
features are not centred, and a feature that is constant over the training rows is excluded (its sd_j is
set to infinity).

The solver works in the units of the penalty: its features are phi_j / sd_j, scaled when they enter the
cache and when they are priced, and its weights are u_j = sd_j w_j. Rows are stored unscaled. Models hold
w_j and the plain family, and therefore no standard deviations; checkpoints hold u_j, and a resumed job
measures the features again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl import kernels
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import Family, is_sampled
from fcl.features.concat import ConcatFamily
from fcl.features.generator.checked import checked_columns, checked_moments
from fcl.features.generator.columns import batches
from fcl.features.generator.contract import overrides
from fcl.features.generator.family import GeneratedFamily
from fcl.features.generator.pricing import PART_FEATURES, GeneratedPricer
from fcl.features.products import Products
from fcl.features.support import SupportFamily
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.base import ListedColumns
    from fcl.features.prices import Pricer

#: commands show its notes, unless they are to be quiet
_log = logging.getLogger("fcl.columns")

#: Standard deviations of columns that differ by more than this factor cause a warning.
UNEVEN = 1e3
#: Bytes per feature: its entry in ``scales``, and the temporary moments while it is measured.
SCALE_BYTES, MEASURE_BYTES = 16, 80


def standardized(family: Family) -> Family:
    """The same features, standardised; :func:`attach_scales` then provides the array of scales.

    Raises InputError for a family whose features cannot be measured one by one.
    """
    if isinstance(family, ConcatFamily):
        return family.changed(standardized)
    why = "it has more features than can be measured one by one"
    instead = "omit standardize or this family"
    if isinstance(family, GeneratedFamily):
        if is_sampled(family):
            why = "each pass draws new features from it"
        elif not overrides(family.generator, "pricer"):
            return StandardizedFamily(family)
        if isinstance(family.generator, Products):
            instead = "omit standardize: products divides its columns instead (scale=true, always)"
    raise InputError(
        "standardize: expected a family that makes all its columns, such as columns, fourier with a "
        f"number of features or a class of your own, or several of these, got {family.name}: {why}; "
        f"{instead}"
    )


def plain(family: Family) -> Family:
    """The original family of one that :func:`standardized` returned."""
    if isinstance(family, ConcatFamily):
        return family.changed(plain)
    return family.plain if isinstance(family, StandardizedFamily) else family


def attach_scales(family: Family, scales: Floats) -> None:
    """Attach the array of scales to standardised features; their pricers fill it.

    scales : float64 (2, n_features): standard deviations, infinite for constant features, and largest
        |values|.
    """
    if isinstance(family, ConcatFamily):
        for m, member in enumerate(family.members):
            attach_scales(member, scales[:, family.first_ids[m] : family.first_ids[m + 1]])
    else:
        assert isinstance(family, StandardizedFamily)
        family.scales = scales


def deviations(family: Family, ids: Ids) -> Floats:
    """The divisors of the solver's features, float64 (k,): standard deviations, or 1."""
    if isinstance(family, StandardizedFamily):
        return family.scales[0, ids]
    return (
        family.gathered(ids, deviations) if isinstance(family, ConcatFamily) else np.ones(len(ids))
    )


def uneven_scales(family: Family, names: Sequence[str] | None = None) -> str:
    """A warning about columns whose scales differ by more than UNEVEN, or an empty text.

    Scales come from the sample of rows with which the family was bound; they are measured only for
    generators that set ``warns_of_scales``.
    names : names of the columns, if they are known.
    """
    if isinstance(family, ConcatFamily):
        return next(filter(None, (uneven_scales(m, names) for m in family.members)), "")
    if not isinstance(family, GeneratedFamily):
        return ""
    seen = family.scales_seen
    if seen is None or seen.high <= UNEVEN * seen.low:
        return ""
    low, high = (f"x{j}" if names is None else names[j] for j in (seen.smallest, seen.largest))
    cure = "set standardize=True (--standardize), or scale the columns"
    if overrides(family.generator, "pricer"):
        cure = "scale the columns before they are multiplied"
        if isinstance(family.generator, Products):
            cure = "set products:scale=true, or scale the columns before they are multiplied"
    return (
        f"features {family.name}: the standard deviations of the columns range from {seen.low:.2g} "
        f"({low}) to {seen.high:.2g} ({high}) on {seen.n_rows:,} rows; the same penalty for all weights "
        f"excludes columns of a small scale: {cure}"
    )


def divided_by(family: Family, ids: Ids) -> Floats:
    """Divisors of features whose family divides its columns, float64 (k,); 1 for other features.

    Weights divided by these numbers are the weights of the undivided columns.
    """
    if isinstance(family, SupportFamily):
        return divided_by(family.inner, family.chosen[ids])
    if isinstance(family, ConcatFamily):
        return family.gathered(ids, divided_by)
    if isinstance(family, GeneratedFamily) and isinstance(family.generator, Products):
        return family.generator.scales_of(ids)
    return np.ones(len(ids))


def say_divided(family: Family, names: Sequence[str] | None = None) -> None:
    """Log that a family shifts or divides its columns, unless the user asked for it."""
    if isinstance(family, ConcatFamily):
        for member in family.members:
            say_divided(member, names)
    if not isinstance(family, GeneratedFamily) or not isinstance(family.generator, Products):
        return
    divisors, shifts = family.generator.divisors, family.generator.shifts
    if shifts is not None:
        moved = np.flatnonzero(shifts)
        listed = [f"{shifts[j]:g} from {f'x{j}' if names is None else names[j]}" for j in moved[:3]]
        more = f" and from {len(moved) - 3:,} more" if len(moved) > 3 else ""
        _log.info(
            "features products: before columns of large mean and small spread are multiplied, a constant "
            "is subtracted: %s%s; products:centre=false subtracts nothing",
            ", ".join(listed),
            more,
        )
    if divisors is None or family.generator.scale:
        return
    low, high = int(divisors.argmin()), int(divisors.argmax())
    words = (f"x{j}" if names is None else names[j] for j in (low, high))
    _log.info(
        "features products: columns are divided by their standard deviations, %.2g (%s) to %.2g (%s), "
        "before they are multiplied; products:scale=false does not divide them",
        *(value for pair in zip(divisors[[low, high]], words, strict=True) for value in pair),
    )


class StandardizedFamily(GeneratedFamily):
    """The features of a generator divided by their standard deviations."""

    binary = False
    step = 0.0

    def __init__(self, family: GeneratedFamily) -> None:
        super().__init__(family.generator, family.form, family.record, family.probe)
        self.plain = family
        self.scales: Floats = np.empty((2, 0))

    def columns(self, ids: Ids, block: Any, number: int, n: int) -> np.ndarray:
        found = super().columns(ids, block, number, n)
        scaled: np.ndarray = found.astype(np.float64, copy=False) / self.scales[0, ids]
        return scaled

    def listed_columns(self, ids: Ids, block: Any, dtype: Any) -> ListedColumns | None:
        found = super().listed_columns(ids, block, np.float64)
        if found is None:
            return None
        scales = np.repeat(self.scales[0, ids], np.diff(found.start))
        values = (found.values / scales).astype(dtype)
        return replace(found, values=values) if values.all() else None

    def _margins(self, ids: Ids, weights: Floats, block: Any, number: int, n: int) -> Floats:
        return super()._margins(ids, weights / self.scales[0, ids], block, number, n)

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> Pricer:
        return StandardizedPricer(self, prepared, keep, team if self.thread_safe else SERIAL)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        part = max(PART_FEATURES, -(-self.n_features // self.n_price_parts))
        own = SCALE_BYTES * self.n_features + MEASURE_BYTES * min(self.n_features, part)
        return own + super().workspace_bytes(block_rows, scratch)


class StandardizedPricer(GeneratedPricer):
    """Prices of standardised features, computed from the sums of the plain features."""

    _family: StandardizedFamily

    def _scaled(
        self, first: int, last: int, g: Floats, most: Floats | float
    ) -> tuple[Floats, Floats | float]:
        sd, largest = self._family.scales[:, first:last]
        # a bound per feature: the largest |value| of another feature may be 10^12 of its deviations
        return g / sd, largest / sd

    def _scaled_powers(self, ids: Ids, sums: Floats, power: int) -> Floats:
        return sums / self._family.scales[0, ids] ** power

    def measure(self, s: Floats, parts: range) -> None:
        """See :class:`fcl.features.base.MeasuringPricer`.

        Blocks are merged in order (Chan, Golub and LeVeque 1983), separately for each feature, so the
        result is the same, bit for bit, however parts are grouped.
        """
        top = float(s.max())  # weights of 1e-300 would underflow in the squares
        n = self._family.n_features
        for group in self._groups(parts, n):
            first, last = self._features(group.start, n)[0], self._features(group.stop - 1, n)[1]
            total = 0.0
            origin = mean = squares = low = high = np.empty(0)
            for number, rows in self._prepared.blocks():
                weights = s[rows] / top
                block = self._family.block(self._prepared, number)
                found = self._block_moments(first, last, block, number, weights)
                weight = float(weights.sum())
                before, total = total, total + weight
                if not number:
                    origin, mean, squares, low, high = found
                    continue
                delta = (found[0] - origin) + (found[1] - mean)
                with np.errstate(over="ignore"):  # overflow is rejected below
                    squares = squares + found[2] + delta * delta * (before * (weight / total))
                mean = mean + delta * (weight / total)
                low, high = np.minimum(low, found[3]), np.maximum(high, found[4])
            sd = np.sqrt(squares / total)
            self._refuse_overflow(first, sd)
            # rounding can leave a constant feature with a small deviation
            self._family.scales[0, first:last] = np.where((low < high) & (sd > 0.0), sd, np.inf)
            self._family.scales[1, first:last] = np.maximum(high, -low)

    def _block_moments(
        self, first: int, last: int, block: Any, number: int, weights: Floats
    ) -> Floats:
        """Moments of the plain features over a block, in the form of :meth:`Generator.moments`."""
        generator = self._family.generator
        if overrides(generator, "moments"):
            return checked_moments(generator, first, last, block, number, weights)
        out = np.empty((5, last - first))
        ids = np.arange(first, last)
        for some in batches(len(ids), len(weights)):
            columns = checked_columns(generator, ids[some], block, number, len(weights))
            part = np.empty((5, columns.shape[1]))
            kernels.matrix.dense_moments(np.ascontiguousarray(columns.T, np.float64), weights, part)
            out[:, some] = part
        return out

    def _refuse_overflow(self, first: int, sd: Floats) -> None:
        wrong = np.flatnonzero(~np.isfinite(sd))
        if len(wrong):
            feature = first + int(wrong[0])
            raise InputError(
                f"standardize: expected features with a standard deviation below 1e154, got "
                f"{self._family.describe(feature)}, whose squares overflow float64; divide its "
                "values by a constant"
            )
