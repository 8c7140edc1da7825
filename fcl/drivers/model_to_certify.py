"""What :func:`fcl.certify` is given: a model of fcl, or the weights of another program's model."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from fcl.checks import shown
from fcl.data import DataSet
from fcl.drivers.finished import point_of
from fcl.drivers.job import Job
from fcl.drivers.train import start_point
from fcl.errors import InputError
from fcl.features import undivided
from fcl.features.generator import without_probes
from fcl.features.standardized import plain
from fcl.files.same_job import JobFacts, require_same
from fcl.model.certificate import Scope
from fcl.model.foreign import ForeignWeights, load_weights
from fcl.model.foreign.arrays import checked
from fcl.model.formats import is_model, load_model
from fcl.model.model import Model
from fcl.options import PROBLEM
from fcl.plain import plain as as_json
from fcl.solve.state import Point
from fcl.units import counted

#: The problem of a model of another program, unless the user says otherwise.
DEFAULTS = {"features": "columns", "loss": PROBLEM["loss"]}
#: Options of a model's problem, and what a model without them was trained with.
_PROBLEM = {
    name: default
    for name, default in PROBLEM.items()
    if name not in ("features", "loss", "C", "alpha")
}
#: Options that decide which rows are used, in which blocks.
_ROWS = ("seed", "block_rows", "valid_fraction")


@dataclass(frozen=True)
class ModelToCertify:
    """A model of fcl, or else weights of another program."""

    model: Model | None = None
    weights: ForeignWeights | None = None
    namespace: str = ""

    def with_intercept(self, intercept: float) -> ModelToCertify:
        """The same weights with an intercept; InputError if they have one already."""
        if self.weights is None or self.weights.intercept is not None:
            raise InputError(
                f"intercept: expected a model without one, got {intercept:g} for a model that has one; "
                "leave it out"
            )
        if not math.isfinite(intercept):
            raise InputError(f"intercept: expected a finite number, got {intercept}")
        return replace(self, weights=replace(self.weights, intercept=float(intercept)))

    @property
    def radius(self) -> float | None:
        """The radius of the ball in which the model was learnt; None for other methods."""
        options = {} if self.model is None else self.model.options
        return float(options["radius"]) if options.get("method") == "ball" else None

    @property
    def has_intercept(self) -> bool:
        """Whether the intercept is known."""
        return self.weights is None or self.weights.intercept is not None

    def is_of(self, fingerprint: str) -> bool | None:
        """Whether the model was trained on the data of a fingerprint; None if that is not known."""
        return None if self.model is None else self.model.fingerprint == fingerprint

    def claims_less_than(self, gap: float) -> bool:
        """Whether the file of the model claims a smaller gap, so that a better bound may exist."""
        return self.model is not None and self.model.certificate.gap < gap

    def opened(self, data: DataSet, offset: Any, covariates: Any) -> DataSet:
        """The data with the columns that the model reads at their places."""
        if self.model is None:
            return data.with_added(offset, covariates)
        found = self.model.opened(data, offset, covariates)
        width, expected = data.rows.shape[1:], found.rows.shape[1:]
        if found.ignored_columns or (data.column_names is not None and width != expected):
            # the certificate is about all features of the family, which read all columns
            raise InputError(
                f"{data.name}: expected all columns of the training data and no others, since the "
                f"certificate is about the whole family of features; got {width[0]:,} columns, and "
                f"{found.ignored_columns:,} of them are not among the {expected[0]:,} of the model; give "
                "the training data, or rows with their columns (fcl convert --like TRAIN.zarr)"
            )
        self.model.require_offset(found)
        if found.offset is not None and not self.model.has_offset:
            raise InputError(
                f"{data.name}: expected no offset, since the model was trained without one, got one; "
                "leave it out"
            )
        names = [array.name for array in found.covariates or ()]
        if names != self.model.covariate_names:
            raise InputError(
                f"{data.name}: expected the covariates of the model, "
                f"{', '.join(self.model.covariate_names) or 'none'}, got {', '.join(names) or 'none'}"
            )
        return found

    def problem(self, data: DataSet, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of the model's problem, as :func:`fcl.drivers.job.make_job` takes them.

        given : what the user says, by name; InputError for a model that has these options itself.
        """
        model = self.model
        if model is None:
            problem = {**DEFAULTS, **given}
            # another program's weights belong to the undivided columns
            return {**problem, "features": undivided(problem["features"])}
        if given:
            raise InputError(
                f"{next(iter(given))}: a model of fcl has the problem in its file; leave this option out"
            )
        if model.certificate.scope is Scope.SUPPORT:
            raise InputError(
                "model: expected one that was chosen from its whole family, got a refit of chosen "
                "features, whose penalty is another one; certify the model from which it was refitted"
            )
        options = {**_PROBLEM, **{k: v for k, v in model.options.items() if k in _PROBLEM}}
        # the rows that the training set aside are left out again
        if self.is_of(data.fingerprint()):
            options |= {k: model.options[k] for k in _ROWS if model.options.get(k) is not None}
        if not isinstance(options["class_weight"], str | None):
            options["class_weight"] = dict(options["class_weight"])
        return {**options, "features": model.family, "loss": model.loss}

    def check(self, job: Job) -> None:
        """Raise InputError if the targets of the rows are not those of the model."""
        model = self.model
        if model is None:
            if job.n_outputs > 1:
                raise InputError(
                    f"{job.train.data.target_name}: expected a target of one output for the weights of "
                    f"another program, got {counted(job.n_outputs, 'output')}; name one column, or "
                    "another --loss"
                )
            return
        if model.n_outputs != job.n_outputs or _labels(model.labels) != _labels(job.labels):
            raise InputError(
                f"{job.train.data.target_name}: expected the target of the model, "
                f"{_in_words(model.n_outputs, model.labels)}, got {_in_words(job.n_outputs, job.labels)}"
            )

    def point(self, job: Job) -> Point:
        """The weights as a point of the job, in the units of the user."""
        if self.weights is None:
            assert self.model is not None
            return start_point(job, self.model)
        ids, values = self.weights.of(
            plain(job.family), job.train.data.column_names, self.namespace
        )
        known = self.weights.intercept or 0.0
        if known and not job.options.intercept:
            raise InputError(
                f"intercept: {self.weights.source} has the intercept {known:g}, and the problem has "
                "none; leave --no-intercept out"
            )
        return point_of(job, ids, values[:, None], np.array([known]))


def linear_model(model: Any, trusted: Collection[str] = (), namespace: str = "") -> ModelToCertify:
    """What the user gave as a model; InputError for anything that is not linear.

    model : as for :func:`fcl.certify`.
    """
    if isinstance(model, tuple) and len(model) in (2, 3):
        return ModelToCertify(weights=_of_arrays(*model))
    if isinstance(model, str | os.PathLike):
        if not is_model(model):
            return ModelToCertify(weights=load_weights(model), namespace=namespace)
        model = load_model(model, trusted)
    if isinstance(model, ModelToCertify):
        return model
    if isinstance(model, Model):
        return ModelToCertify(model)
    if getattr(model, "format", None) == "fcl-stagewise":
        raise InputError(
            "model: expected a model of fcl train or of another program, got a stagewise one, whose "
            "problem is another: fcl stagewise --certify computes its gap while it trains"
        )
    advice = ""
    if isinstance(model, np.ndarray) or issparse(model):
        advice = "; for an estimator of scikit-learn give (model.coef_, model.intercept_)"
    raise InputError(
        "model: expected a Model, the path of a model, (weights, intercept) or (ids, weights, "
        f"intercept), got {type(model).__name__}{advice}"
    )


def _of_arrays(*given: Any) -> ForeignWeights:
    """The weights of all features in order, or of those with some ids, and the intercept."""
    *ids, weights, intercept = given
    # coef_ of estimators after sparsify()
    dense = weights.toarray() if issparse(weights) else np.asarray(weights)
    values = checked(dense, "model: weights")
    own = checked(np.atleast_1d(intercept), "model: intercept")
    if len(own) != 1:
        raise InputError(f"model: expected one intercept, got {len(own)}")
    found = ForeignWeights("model", values, float(own[0]))
    if not ids:
        return found
    numbers = np.asarray(ids[0])
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
        raise InputError(
            f"model: ids: expected whole numbers of shape (k,), got {numbers.dtype} of shape "
            f"{numbers.shape}"
        )
    return replace(found, ids=numbers.astype(np.int64))


def _labels(labels: Sequence[Any] | None) -> list[Any] | None:
    return None if labels is None else list(as_json(list(labels)))


def _in_words(n_outputs: int, labels: Sequence[Any] | None) -> str:
    words = "" if labels is None else f" of the labels {shown(_labels(labels))}"
    return f"{counted(n_outputs, 'output')}{words or ' of numbers'}"


def bound_of(bound: Model | float, job: Job) -> float:
    """The lower bound that a model of the same problem proves, or a number.

    Raises InputError if there is no bound, or if the model is of other data or of another problem.
    """
    if not isinstance(bound, Model):
        value = math.nan if isinstance(bound, bool) else float(bound)
        if not math.isfinite(value):
            raise InputError(f"bound: expected a finite number, got {shown(bound)}")
        return value
    advice = "A bound holds for one problem only"
    require_same("bound: the model", _facts_of_model(bound), _facts_of_job(job, bound.C), advice)
    certificate = bound.certificate
    if certificate.scope is not Scope.FAMILY or not math.isfinite(certificate.bound):
        raise InputError(
            "bound: expected a model with a bound over all features of the family, got one over "
            f"{certificate.scope_text}"
        )
    return certificate.bound


def _facts_of_model(model: Model) -> JobFacts:
    problem = {
        "family of features": without_probes(model.family.to_config()),
        "loss": model.loss,
        "C": model.C,
        "number of training rows": model.n_rows,
        "sum of weights": model.sum_weights,
    }
    options = {**_PROBLEM, **model.options}
    return JobFacts(
        as_json(problem | {name: options[name] for name in _PROBLEM}), model.fingerprint
    )


def _facts_of_job(job: Job, C: float) -> JobFacts:
    """The facts of a job; its C is the given one if only rounding lies between them."""
    problem = {
        "family of features": without_probes(plain(job.family).to_config()),
        "loss": job.loss.text,
        "C": C if math.isclose(C, job.options.C, rel_tol=1e-12) else job.options.C,
        "number of training rows": job.train.n,
        "sum of weights": job.sum_weights,
    }
    options = {name: getattr(job.options, name) for name in _PROBLEM}
    return JobFacts(problem | options, job.train.data.fingerprint())
