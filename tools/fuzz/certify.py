"""Check a model's certificate by brute force, on the explicit matrix of a small problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import fcl
from fcl.model.certificate import Scope
from tests.judge import Problem, kmer_matrix
from tests.product_matrix import product_matrix

#: The size of the largest problem that is checked; for a larger one, only the gap is checked.
MOST_FEATURES, MOST_ROWS = 300, 400
#: How much the order of summation may change sums of a few hundred float64, relative to the terms.
ROUNDING = 1e-9


def wrong(model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]) -> list[str]:
    """Describe the false claims in the certificate of a model.

    options : the effective options of the training; ``valid_fraction`` and ``seed`` determine which rows
        were set aside. The model contains all other options that are needed.
    """
    with np.errstate(all="ignore"):
        try:
            return _wrong(model, data, options)
        except np.linalg.LinAlgError:
            return []  # the judge itself cannot solve the problem


def rounding_gap(model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]) -> float:
    """The relative gap that rounding of the margins may leave; 0 if unknown.

    Rounding changes the slopes, and the dual point must be scaled by that change.
    """
    found = _problem(model, data, options)
    if found is None:
        return 0.0
    problem, w, b = found
    with np.errstate(all="ignore"):
        slope = _rounded(problem, w, b)[1] * problem.rho
        value = problem.objective(w, b)
        return (slope * problem.penalty(w) + slope * slope * value) / value


def _rounded(problem: Problem, w: np.ndarray, b: float) -> tuple[float, float]:
    """How much rounding of the margins may change the objective and the largest violation."""
    sizes = np.abs(problem.phi) @ np.abs(w) + abs(b) + np.abs(problem.y)
    moved = 2.0 * sizes * np.finfo(float).eps
    slopes = np.abs(problem.slopes(problem.margins(w, b)))
    value = problem.C * float(problem.s @ (slopes * moved + moved**2))
    prices = problem.C * (problem.s * moved) @ np.abs(problem.phi) / (problem.rho * problem.f)
    return value, float(prices.max(initial=0.0))


def _problem(
    model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]
) -> tuple[Problem, np.ndarray, float] | None:
    """The problem of a model on the explicit matrix, and its point; None if it is too large."""
    if model.n_outputs > 1 or model.covariates:
        return None  # problems.py judges these
    y, s, keep = _targets(model, data, options)
    if len(y) > MOST_ROWS:
        return None
    phi = _matrix(model, data, keep)
    if phi is None or not np.isfinite(phi).all():
        return None
    factors = model.family.penalty_factors(np.arange(phi.shape[1]))
    if not np.isfinite(factors).all():
        return None
    w = np.zeros(phi.shape[1])
    w[model.ids] = model.weights
    if model.options.get("standardize"):
        scales = np.sqrt(np.average((phi - np.average(phi, 0, s)) ** 2, 0, s))
        scales[phi.min(0) == phi.max(0)] = np.inf  # left out
        phi, w = phi / scales, np.where(w != 0.0, w * scales, 0.0)
    problem = Problem(
        *(phi, y, s, model.loss, model.C, bool(model.options.get("intercept", True))),
        rho=float(model.options.get("l1_ratio", 1.0)),
        factors=factors,
        offset=0.0 if data.offset is None else data.offset[keep],
    )
    return problem, w, float(model.intercept)


def _wrong(model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]) -> list[str]:
    claimed = model.certificate
    out = []
    expected = max(0.0, claimed.objective - claimed.bound) / (claimed.objective or 1.0)
    if not abs(claimed.gap - expected) <= 1e-12:
        out.append(
            f"gap {claimed.gap:.3e} does not follow from objective and bound: {expected:.3e}"
        )
    found = _problem(model, data, options)
    if found is None:
        return out
    problem, w, b = found
    phi, factors = problem.phi, problem.f
    value = problem.objective(w, b)
    if not np.isfinite(value):
        return out
    value_off, slope_off = _rounded(problem, w, b)
    if abs(claimed.objective - value) > ROUNDING * value + value_off:
        out.append(f"the model claims objective {claimed.objective!r}, but it is {value!r}")
    if claimed.scope is not Scope.FAMILY:
        return out  # only the last pass knows which features it sampled
    largest = float(np.abs(problem.pulls(w, b)).max(initial=0.0))
    terms = np.abs(problem.residuals(w, b)) @ np.abs(phi) * problem.C / (problem.rho * factors)
    # exact where it exceeds 1, an upper bound elsewhere
    slope_off += ROUNDING * (largest + terms.max(initial=0.0))
    if largest > 1.0 and claimed.max_violation < largest - slope_off:
        out.append(f"the model claims violation {claimed.max_violation!r}, but it is {largest!r}")
    best = min(value, problem.objective(*problem.polish(w, b)))
    if claimed.bound > best + ROUNDING * abs(best) + value_off:
        out.append(f"bound {claimed.bound!r} is above the objective {best!r} of a known point")
    return out


def _targets(
    model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Targets and weights of the training rows, and the mask of these rows in the data."""
    target = np.asarray(data.target).reshape(-1)
    if model.labels is None:
        y = target.astype(np.float64)
    else:
        y = np.where(np.unique(target, return_inverse=True)[1].reshape(-1) == 1, 1.0, -1.0)
    s = np.ones(len(y)) if data.weights is None else np.asarray(data.weights, np.float64)
    keep = s > 0.0
    if options.get("valid_fraction"):
        from fcl.drivers.job import make_job

        names = ("loss", "C", "alpha", "valid_fraction", "seed", "class_weight")
        job = make_job(data, options["features"], **{n: options[n] for n in names if n in options})
        if job.train.keep is not None:
            keep = job.train.keep
    y, s = y[keep], s[keep]
    by_class = model.options.get("class_weight")
    if by_class == "balanced":
        s = np.where(
            y > 0, s * (0.5 * s.sum() / s[y > 0].sum()), s * (0.5 * s.sum() / s[y < 0].sum())
        )
    elif by_class is not None:
        (_, low), (_, high) = by_class
        s = s * np.where(y > 0, high, low)
    return y, s, keep


def _matrix(model: fcl.Model, data: fcl.DataSet, keep: np.ndarray) -> np.ndarray | None:
    """All features of the rows, float64 (n, p); None if they are too many."""
    family = model.family
    if family.n_features > MOST_FEATURES:
        return None
    config = family.to_config()
    blocks = [block for _, _, block in family.read_rows(data.rows, 65_536)]
    phi: np.ndarray | None = None
    if all(isinstance(block, np.ndarray) for block in blocks):
        raw = np.concatenate(blocks)
        if config["family"] == "columns":
            phi = raw.astype(np.float64)
        elif config["family"] == "kmers":
            phi = kmer_matrix(raw, config["d"])
        elif config["family"] == "products" and raw.dtype.kind == "f":
            binary = bool(config["options"].get("binary"))
            divisors = family.generator.divisors  # type: ignore[attr-defined]
            divided = raw if divisors is None else raw / divisors
            phi = product_matrix(divided, config["options"]["degree"], not binary)
    if phi is None or phi.shape[1] != family.n_features:
        # Predict with one feature at a time, which uses no prices, cached columns or solver.
        one, ids = np.ones(1), np.arange(family.n_features)
        scorers = [family.scorer(ids[j : j + 1], one) for j in ids]
        phi = np.concatenate(
            [np.column_stack([scorer.margins(b) for scorer in scorers]) for b in blocks]
        )
    return phi[keep]
