"""Centred columns: dense columns of large mean and small spread, minus a constant near their mean.

Where the intercept is free, x_j and x_j - c_j give the same problem: the weights, their penalty, the
objective and the bound are equal, and the intercepts differ by sum_j c_j w_j. But float64 margins of
times such as 1.7e9 +- 10 lose eight digits, and float32 columns lose all. The solver therefore works on
x_j - c_j, with c_j as short a number as the spread allows, so that the differences are exact.

Models hold the family of the plain columns, weights and the intercept of the plain columns, and beside
them the centres of their active columns, from which predictions compute the same margins as the training.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.data.base import RowReader
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.features.concat import ConcatFamily
from fcl.features.generator.binding import sample_rows
from fcl.features.generator.contract import decode
from fcl.features.generator.family import GeneratedFamily
from fcl.features.generator.scales import centres_of
from fcl.features.plain import Columns
from fcl.features.standardized import StandardizedFamily
from fcl.features.support import SupportFamily
from fcl.types import Floats, Ids

#: Names of the attributes of :class:`Columns` that hold the centres.
STATE = ("centred_", "centres_")


def with_centres(
    family: Family, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None = None
) -> Family:
    """The same features, with the dense columns of large mean and small spread centred.

    keep : bool (n,), the rows on which the family is trained, or None for all.
    """
    if isinstance(family, ConcatFamily):
        return family.changed(lambda member: with_centres(member, rows, keep))
    if not _is_dense(family):
        return family
    seen = family.centres_seen
    if seen is None:
        raw, _ = sample_rows(family.form, rows, keep)
        seen = centres_of(family.form.block_of(raw))
    ids = np.flatnonzero(seen)
    return _moved(family, ids, seen[ids])


def with_centres_of(family: Family, config: Mapping[str, Any]) -> Family:
    """A family with the centres of a stored configuration, which may have none."""
    if isinstance(family, ConcatFamily):
        pairs = zip(family.members, config["members"], strict=True)
        members = tuple(with_centres_of(member, own) for member, own in pairs)
        return ConcatFamily(members, family.factors)
    if not _is_dense(family):
        return family
    state = config.get("state", {})
    if not isinstance(state, Mapping):
        raise InputError(f"family.state: expected a table, got {shown(state)}")
    ids, values = (np.asarray(decode(state.get(name, []))) for name in STATE)
    return _moved(family, ids.astype(np.int64), values.astype(np.float64))


def with_centres_at(family: Family, given: Mapping[int, float]) -> Family:
    """A plain family with the centres of some features, by their ids."""
    if isinstance(family, SupportFamily):
        of = {int(family.chosen[feature]): centre for feature, centre in given.items()}
        return SupportFamily(with_centres_at(family.inner, of), family.chosen)
    ids = np.array(sorted(given), np.int64)
    values = np.array([given[feature] for feature in ids.tolist()])
    if isinstance(family, ConcatFamily):
        members = list(family.members)
        for m, own in family.split(ids):
            members[m] = _moved(members[m], family.local(m, ids[own]), values[own])
        return ConcatFamily(tuple(members), family.factors)
    return _moved(family, ids, values)


def uncentred(family: Family) -> Family:
    """The family of the plain columns."""
    if isinstance(family, ConcatFamily):
        return family.changed(uncentred)
    nothing: Ids = np.empty(0, np.int64)
    return _moved(family, nothing, np.empty(0)) if _is_dense(family) else family


def centres(family: Family, ids: Ids) -> Floats:
    """The centres of some features, float64 (k,); 0 for features that are not centred."""
    if isinstance(family, ConcatFamily):
        return family.gathered(ids, centres)
    if isinstance(family, SupportFamily):
        return centres(family.inner, family.chosen[ids])
    if not _is_dense(family):
        return np.zeros(len(ids))
    assert isinstance(family.generator, Columns)
    return family.generator.centres_at(ids)


def _is_dense(family: Family) -> TypeGuard[GeneratedFamily]:
    """Whether the features are the columns of dense rows."""
    if not isinstance(family, GeneratedFamily):
        return False
    return family.form.kind == "numbers" and family.generator.may_be_centred


def _moved(family: Family, ids: Ids, values: Floats) -> Family:
    """A family of dense columns with these centres, and no others; InputError for another family."""
    if not _is_dense(family):
        raise InputError(f"features {family.name}: expected no centres for features of this kind")
    if isinstance(family, StandardizedFamily):
        plain = _moved(family.plain, ids, values)
        assert isinstance(plain, GeneratedFamily)
        return StandardizedFamily(plain)
    moved = copy.copy(family)
    moved.generator = copy.copy(family.generator)
    for name, array in zip(STATE, (ids, values), strict=True):
        vars(moved.generator).pop(name, None)
        if len(ids):
            setattr(moved.generator, name, array)
    return moved
