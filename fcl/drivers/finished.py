"""Between the units of the user and of the solver: the point of a model, and the model at a point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fcl.checks import shortened
from fcl.drivers.job import Job
from fcl.features.base import Family
from fcl.features.centred import centres, uncentred
from fcl.features.standardized import deviations, plain
from fcl.model.centres import folded, unfolded
from fcl.model.certificate import Certificate
from fcl.model.columns import record_of
from fcl.model.covariates import CovariateTerm
from fcl.model.history import History
from fcl.model.model import Model
from fcl.solve.passes import Passes
from fcl.solve.state import Point
from fcl.types import Ids

#: Maximum number of characters of a feature's description in a model.
MOST_NAME = 1000


def in_solver_units(family: Family, point: Point) -> Point:
    """A point in the user's units as one of a family whose features are measured, if it needs that."""
    sd = deviations(family, point.ids)
    kept = np.isfinite(sd)  # a feature that is constant on these rows has no weight
    ids, weights = point.ids[kept], point.weights[kept]
    at = centres(family, ids)
    intercept, free = point.intercept, point.covariates.copy()
    if at.any():  # the intercepts of the centred columns
        if weights.ndim > 1:
            own = slice(None, None, len(free) // weights.shape[1])  # of the constant
            pairs = zip(free[own], weights.T, strict=True)
            free[own] = [unfolded(b, 0.0, w, at) for b, w in pairs]
        elif len(free):
            free[0] = unfolded(float(free[0]), 0.0, weights, at)
        else:
            intercept = unfolded(intercept, 0.0, weights, at)
    return Point.make(ids, (weights.T * sd[kept]).T, intercept, free)


def model_at(
    job: Job,
    passes: Passes,
    point: Point,
    certificate: Certificate,
    *,
    fingerprint: str,
    C_min: float | None,
    history: Iterable[Mapping[str, Any]] = (),
) -> Model:
    """The model of a job at a point in the solver's units; counts the support in another pass."""
    options = job.options
    terms, intercept, rest = free_in_units(job, point)
    sd = deviations(job.family, point.ids)
    family, at = plain(uncentred(job.family)), centres(job.family, point.ids)
    data = job.train.data
    return Model(
        family=family,
        ids=point.ids,
        weights=(point.weights.T / sd).T,
        support=passes.counts(point.ids),
        intercept=intercept,
        covariates=terms,
        loss=job.loss.text,
        C=options.C,
        alpha=options.alpha,
        labels=job.labels,
        n_rows=job.train.n,
        sum_weights=job.sum_weights,
        fingerprint=fingerprint,
        certificate=certificate,
        options={**options.of_job(), "C_min": C_min},
        history=History(history),
        feature_names=feature_names(family, point.ids, data.column_names),
        column_record=record_of(job.family, point.ids, data.column_record),
        centres={j: c for j, c in zip(point.ids.tolist(), at.tolist(), strict=True) if c},
        intercept_rest=rest,
    )


def free_in_units(job: Job, point: Point) -> tuple[tuple[CovariateTerm, ...], Any, Any]:
    """The covariates with their coefficients, and the intercept (or K of them), of a point.

    The intercept is the one of the plain columns; the third value is what float64 leaves out of it.
    """
    terms: tuple[CovariateTerm, ...] = ()
    own: Any = point.covariates if job.n_outputs > 1 else point.intercept
    if job.design is not None:
        terms, intercept = job.design.in_units(point.covariates, point.weights.shape[1:])
        own = own if job.train.covariates is None else intercept
    found = own + job.intercept_shift
    at = centres(job.family, point.ids)
    if not at.any():
        return terms, found, np.zeros_like(found) if job.n_outputs > 1 else 0.0
    weights = (point.weights.T / deviations(job.family, point.ids)).T
    if job.n_outputs == 1:
        return terms, *folded(float(found), weights, at)
    pairs = [folded(b, w, at) for b, w in zip(found.tolist(), weights.T, strict=True)]
    intercepts, rests = np.array(pairs).T
    return terms, intercepts, rests


def feature_names(family: Family, ids: Ids, names: Sequence[str] | None) -> list[str] | None:
    """Descriptions of features by the names of the columns; None if the columns have no names."""
    if names is None:
        return None
    return [shortened(family.describe(feature, names), MOST_NAME) for feature in ids.tolist()]
