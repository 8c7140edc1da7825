"""Check certificates by brute force, on the explicit matrix of a small problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import fcl
from fcl.model.certificate import Scope
from tests.bag_matrix import matrix as bag_matrix
from tests.judge import Problem, kmer_matrix
from tests.product_matrix import product_matrix

#: The size of the largest problem that is checked; for a larger one, only the gap is checked.
MOST_FEATURES, MOST_ROWS = 300, 400
#: How much the order of summation may change sums of a few hundred float64, relative to the terms.
ROUNDING = 1e-9
#: Rounding explains a gap of this size in any case.
ROUNDING_GAP = 1e-6
#: Rounding explains a gap of up to this many times the rounding of its sums.
ROUNDINGS = 10.0


def rounding_of(problem: Problem, w: np.ndarray, b: Any) -> tuple[float, float]:
    """How much rounding of float64 margins may change objective (relative) and violation.

    The error of a margin is eps times the sum of the absolute values of its terms, in any order of
    summation. A function of the margin has this error times its derivative. A gradient also has an error
    of eps times the absolute values of its own terms.
    """
    eps = float(np.finfo(np.float64).eps)
    m = problem.margins(w, b)
    off = np.abs(problem.phi) @ np.abs(w) + abs(b) + np.abs(problem.y) + np.abs(problem.offset)
    off = eps * off
    slopes = np.abs(problem.slopes(m))
    value = problem.objective(w, b)
    objective = float(problem.C * (problem.s @ (slopes * off + off**2)))
    sizes = problem.s * (problem.bends(m) * off + eps * slopes)
    price = problem.C * (sizes @ np.abs(problem.phi)) / (problem.rho * problem.f)
    return float(objective / value) if value else 0.0, float(price.max(initial=0.0))


def false_claims(
    claimed: Any,
    value: float,
    largest: float,
    least: float,
    slack: float,
    off_value: float,
    off_price: float,
    off_bound: float,
) -> list[str]:
    """Describe the false numbers in a certificate.

    value, largest : the objective of the model, and its largest violation.
    least : an objective that some point has.
    slack : a relative error that is allowed in any case; ``off_...`` : errors that rounding explains, of
        value and bound relative to the objective.
    """
    size = value or 1.0
    gap = max(0.0, claimed.objective - claimed.bound) / (claimed.objective or 1.0)
    found = []
    if not abs(claimed.gap - gap) <= 1e-12:
        found.append(f"gap {claimed.gap:.3e} does not follow from objective and bound: {gap:.3e}")
    if abs(claimed.objective - value) > (slack + off_value) * size:
        found.append(f"objective {claimed.objective!r} is claimed, but it is {value!r}")
    if claimed.scope is not Scope.FAMILY:
        return found  # only the last pass knows which features it sampled
    if largest > claimed.max_violation * (1.0 + 1e-9) + off_price:
        found.append(f"violation {claimed.max_violation!r} is claimed, but it is {largest!r}")
    if not claimed.bound <= least + (slack + off_bound) * size:
        found.append(f"bound {claimed.bound!r} is above the objective {least!r} of a known point")
    return found


def wrong(model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]) -> list[str]:
    """Describe the false claims in the certificate of a model.

    options : the effective options of the training; ``valid_fraction`` and ``seed`` determine which rows
        were set aside. The model contains all other options that are needed.
    """
    claimed = model.certificate
    only_gap = false_claims(claimed, claimed.objective, 0.0, np.inf, 0.0, 0.0, 0.0, 0.0)
    found = _problem(model, data, options)
    if found is None:
        return only_gap
    problem, w, b = found
    with np.errstate(all="ignore"):
        value = problem.objective(w, b)
        if not np.isfinite(value):
            return only_gap
        off_value, off_price = (2.0 * off for off in rounding_of(problem, w, b))
        largest = problem.largest(w, b)
        terms = np.abs(problem.residuals(w, b)) @ np.abs(problem.phi) * problem.C
        off_price += ROUNDING * (largest + (terms / (problem.rho * problem.f)).max(initial=0.0))
        try:
            best = min(value, problem.objective(*problem.polish(w, b)))
        except np.linalg.LinAlgError:
            return only_gap  # the judge itself cannot solve the problem
        # a violation below 1 is claimed by an upper bound
        largest = largest if largest > 1.0 else 0.0
        offs = off_value, off_price, off_value
        return false_claims(claimed, value, largest, best, ROUNDING, *offs)


def explained_gap(model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]) -> float:
    """The largest relative gap that rounding of the margins may leave."""
    found = _problem(model, data, options)
    if found is None:
        return ROUNDING_GAP
    with np.errstate(all="ignore"):
        return max(ROUNDING_GAP, ROUNDINGS * sum(rounding_of(*found)))


def _problem(
    model: fcl.Model, data: fcl.DataSet, options: Mapping[str, Any]
) -> tuple[Problem, np.ndarray, float] | None:
    """The problem of a model on the explicit matrix, and its point; None if it is too large."""
    if model.n_outputs > 1 or model.covariates:
        return None  # the kind "problem" judges these
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
        **limits_of(model, phi.shape[1]),
    )
    return problem, w, float(model.intercept)


def limits_of(model: fcl.Model, n_features: int) -> dict[str, Any]:
    """The limits of all weights, as the judge takes them."""
    low, high = np.full(n_features, -np.inf), np.full(n_features, np.inf)
    below, above, named = model.options.get("limits") or (None, None, ())
    for some, *ends in ((slice(None), below, above), *named):
        low[some] = -np.inf if ends[0] is None else ends[0]
        high[some] = np.inf if ends[1] is None else ends[1]
    return {"low": low, "high": high}


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
        from fcl.options import TrainOptions

        names = ("loss", "C", "alpha", "valid_fraction", "seed", "class_weight")
        job = make_job(
            data,
            options["features"],
            TrainOptions.checked(**{n: options[n] for n in names if n in options}),
        )
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


def plain_matrix(name: str, family: Any, X: np.ndarray) -> np.ndarray | None:
    """All features of a family by plain numpy, float64 (n, p); None if the family is another one."""
    if name == "columns":
        return X.astype(np.float64)
    if name == "kmers":
        return kmer_matrix(X, family.d)
    if name == "bag":
        return bag_matrix(family, X)
    if name == "products":
        generator = family.generator
        divisors = 1.0 if generator.divisors is None else generator.divisors
        return product_matrix(X / divisors, generator.degree, not generator.binary)
    return None


def _matrix(model: fcl.Model, data: fcl.DataSet, keep: np.ndarray) -> np.ndarray | None:
    """All features of the rows, float64 (n, p); None if they are too many."""
    family = model.family
    if family.n_features > MOST_FEATURES:
        return None
    blocks = [block for _, _, block in family.read_rows(data.rows, 65_536)]
    phi: np.ndarray | None = None
    if all(isinstance(block, np.ndarray) for block in blocks):
        phi = plain_matrix(family.to_config()["family"], family, np.concatenate(blocks))
    if phi is None or phi.shape[1] != family.n_features:
        # Predict with one feature at a time, which uses no prices, cached columns or solver.
        one, ids = np.ones(1), np.arange(family.n_features)
        scorers = [family.scorer(ids[j : j + 1], one) for j in ids]
        phi = np.concatenate(
            [np.column_stack([scorer.margins(b) for scorer in scorers]) for b in blocks]
        )
    return phi[keep]
