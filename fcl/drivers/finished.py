"""Between the units of the user and of the solver: the point of a model, and the model at a point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fcl.drivers.job import Job
from fcl.features.base import Family
from fcl.features.centred import centres, uncentred
from fcl.features.standardized import deviations, plain
from fcl.model.centres import folded, unfolded
from fcl.model.certificate import Certificate
from fcl.model.columns import feature_names, record_of
from fcl.model.covariates import CovariateTerm
from fcl.model.history import History
from fcl.model.model import Model
from fcl.model.shapes import public
from fcl.solve.passes import Passes
from fcl.solve.state import Point
from fcl.types import Floats, Ids


def in_solver_units(family: Family, point: Point) -> Point:
    """A point in the user's units as one of a family whose features are measured, if it needs that."""
    sd = deviations(family, point.ids)
    kept = np.isfinite(sd)  # a feature that is constant on these rows has no weight
    ids, weights = point.ids[kept], point.weights_by_output[kept]
    at, free = centres(family, ids), point.free_by_output.copy()
    if at.any():  # the intercepts of the centred columns
        pairs = zip(free[0].tolist(), weights.T, strict=True)
        free[0] = [unfolded(b, 0.0, w, at) for b, w in pairs]
    return Point.of_outputs(ids, weights * sd[kept][:, None], free, bool(len(point.covariates)))


def point_of(
    job: Job,
    ids: Ids,
    weights: Floats,
    intercepts: Floats,
    terms: Sequence[CovariateTerm] = (),
) -> Point:
    """A point of a job from weights (k, K), intercepts (K,) and covariates, all in the user's units."""
    own = intercepts - job.intercept_shift if job.options.intercept else np.zeros(job.n_outputs)
    free = own[None, :] if job.design is None else job.design.start(terms, own)
    return Point.of_outputs(ids, weights, free, job.train.covariates is not None)


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
    terms, intercepts, rests = free_in_units(job, point)
    sd = deviations(job.family, point.ids)
    family, at = plain(uncentred(job.family)), centres(job.family, point.ids)
    data = job.train.data
    return Model(
        family=family,
        ids=point.ids,
        weights=(point.weights.T / sd).T,
        support=passes.counts(point.ids),
        intercept=public(intercepts),
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
        intercept_rest=public(rests),
    )


def free_in_units(job: Job, point: Point) -> tuple[tuple[CovariateTerm, ...], Floats, Floats]:
    """The covariates with their coefficients, and the intercepts of a point, float64 (K,).

    The intercepts are those of the plain columns; the third value is what float64 leaves out of them.
    """
    terms: tuple[CovariateTerm, ...] = ()
    own = point.free_by_output.sum(axis=0)
    if job.design is not None:
        terms, own = job.design.in_units(point.free_by_output)
    found = own + job.intercept_shift
    at = centres(job.family, point.ids)
    if not at.any():
        return terms, found, np.zeros_like(found)
    weights = point.weights_by_output / deviations(job.family, point.ids)[:, None]
    pairs = [folded(b, w, at) for b, w in zip(found.tolist(), weights.T, strict=True)]
    intercepts, rests = np.array(pairs).T
    return terms, intercepts, rests
