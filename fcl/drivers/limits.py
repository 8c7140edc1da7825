"""The limits of weights as users give them: of all features, and of features by name or id."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.base import Family, is_sampled
from fcl.objective.limits import Limits, Stored
from fcl.options import TrainOptions
from fcl.solve.state import Point

#: Most features with limits of their own: every pass makes and keeps their sums.
MOST_NAMED = 10_000


def resolved(given: Any, family: Family, options: TrainOptions, n_outputs: int, names: Any) -> Any:
    """The limits of a job, with the ids of named features; None for no limits.

    given : as ``TrainOptions.limits`` has them, see :func:`fcl.options.kinds.limits_of`.
    names : of the columns of the rows, or None.

    Raises InputError for features that the family does not have, and for limits that it cannot use.
    """
    if given is None:
        return None
    low, high, rows = given
    ids = _ids([key for key, _, _ in rows], family, names)
    named = tuple((id, *ends) for id, (_, *ends) in zip(ids, rows, strict=True))
    stored: Stored = (low, high, tuple(sorted(named)))
    limits = Limits.from_stored(stored)
    check_limits(limits, family, options, n_outputs)
    return limits.stored()


def _ids(keys: list[str | int], family: Family, names: Any) -> list[int]:
    """The ids of features that are given by name or id."""
    texts = [key for key in keys if isinstance(key, str)]
    found = dict(zip(texts, family.find(texts, names).tolist(), strict=True)) if texts else {}
    ids = [found[key] if isinstance(key, str) else key for key in keys]
    seen: set[int] = set()
    for key, id in zip(keys, ids, strict=True):
        if not 0 <= id < family.n_features:
            raise InputError(
                f"limits: expected features of {family.name}, by name or by an id below "
                f"{family.n_features:,}, got {shown(key)}"
            )
        if id in seen:
            raise InputError(f"limits: expected each feature once, got {shown(key)} twice")
        seen.add(id)
    return ids


def check_limits(limits: Limits, family: Family, options: TrainOptions, n_outputs: int) -> None:
    """Raise InputError for limits that a job of these options cannot use."""
    if limits.unlimited:
        return
    if options.group or options.loss == "softmax":
        raise InputError(
            "limits: expected one output, or several with separate losses and penalties, got "
            f"{'a group penalty' if options.group else 'the softmax loss'}; leave limits out"
        )
    if not limits.exact:
        return
    got = "limits of named features" if len(limits.ids) else "finite limits of all features"
    if n_outputs > 1:
        raise InputError(
            f"limits: expected a sign for all features with several outputs, 0: or :0, got {got}; train "
            "a model for each output"
        )
    if options.standardize:
        raise InputError(
            f"limits: expected a sign for all features with standardize, 0: or :0, got {got}, which are "
            "in the units of the data, and standard deviations are not known yet; leave standardize out, "
            "and scale the columns or give penalty factors"
        )
    if is_sampled(family):
        raise InputError(
            f"limits: expected a sign for all features, 0: or :0, since each pass of {family.name} "
            f"draws other features, got {got}; give the family a fixed number of features"
        )
    if limits.boxed and not family.visits_all:
        raise InputError(
            f"limits: expected a sign for all features of {family.name}, 0: or :0, since its passes do "
            f"not visit every feature that a finite limit stops, got {got}; give limits of up to "
            f"{MOST_NAMED:,} features by name or id"
        )
    if len(limits.ids) > MOST_NAMED:
        raise InputError(
            f"limits: expected at most {MOST_NAMED:,} features by name or id, since every pass keeps "
            f"their sums, got {len(limits.ids):,}; give limits for all features, or for fewer"
        )


def check_within(point: Point, limits: Limits, family: Family) -> None:
    """Raise InputError for a point to certify that is outside of the limits."""
    if limits.unlimited:
        return
    weights = point.weights_by_output
    beyond = np.abs(limits.within(point.ids, weights) - weights) > 1e-9 * np.abs(weights)
    if beyond.any():
        at = np.flatnonzero(beyond.any(axis=1))[0]
        raise InputError(
            f"limits: expected weights within them, got {shown(point.weights[at].tolist())} for "
            f"{family.describe(int(point.ids[at]))}; certify the model without limits, or with wider ones"
        )
