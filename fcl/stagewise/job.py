"""A stagewise job: the problem, checked options, and the memory plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.data.dataset import DataSet
from fcl.data.outputs import n_target_columns
from fcl.data.targets import check_class_weight
from fcl.drivers.problem import Problem, make_problem
from fcl.drivers.rows import Rows, check_data_set, select_rows, weighted_by_class
from fcl.drivers.targets import EncodedTarget, encode_targets
from fcl.errors import InputError
from fcl.features import Spec
from fcl.features.generator.family import GeneratedFamily
from fcl.features.standardized import say_divided
from fcl.objective import find_loss
from fcl.options.stagewise import UPDATES
from fcl.stagewise.blocks import check_family
from fcl.stagewise.plan import StagewisePlan, make_plan
from fcl.stagewise.settings import Settings
from fcl.stagewise.targets import checked_offset, held_out, refuse_single
from fcl.types import Mask

#: The loss of :mod:`fcl.objective` that encodes each kind of target.
_ENCODED_FOR = {"class": "softmax", "label": "logistic", "target": "squared"}


@dataclass(frozen=True, kw_only=True)
class StagewiseJob(Problem):
    """What is decided before memory is allocated; ``loss`` only encodes the targets."""

    family: GeneratedFamily
    settings: Settings
    noun: str  #: {"class", "label", "target"}, what a column of the targets is
    plan: StagewisePlan

    @property
    def rows(self) -> list[Rows]:
        """The training rows, and the validation rows if there are any."""
        return [self.train] if self.valid is None else [self.train, self.valid]

    @property
    def fingerprint(self) -> str:
        """Of all data of the job."""
        names = dict.fromkeys(rows.data.fingerprint() for rows in self.rows)
        return " ".join(names)


@dataclass(frozen=True)
class _Reading:
    """Options of reading for :func:`fcl.drivers.problem.make_problem`."""

    memory: int
    seed: int
    valid_fraction: None = None  # the job draws the rows itself


def make_job(
    data: DataSet,
    features: Spec | str,
    settings: Settings,
    valid: DataSet | None = None,
    numbers: bool = False,
    cores: int = 1,
    certify: bool = False,
    resumed: Mapping[str, Any] | None = None,
) -> StagewiseJob:
    """Check all that can be checked before rows are read, and plan the memory.

    data, valid : training rows, and validation rows; without ``valid``, ``settings.valid_fraction`` of
        the rows are held out.
    numbers : whether targets are numbers, (n,) or (n, K); False: classes (n,), or labels (n, K) of 0 and
        1.
    cores : number of threads.
    certify : whether the plan has room for a certificate.
    resumed : the configuration of the family of the job that is resumed.

    Raises BudgetError: the memory budget is too small.
    """
    check_data_set("data", data)
    noun, settings, targets = _targets(data, settings, numbers)
    if valid is not None:
        check_data_set("valid", valid)
        _check_columns(valid, settings, targets.n_outputs)
    held = None if valid is not None else _held_out(data, settings, noun, targets)
    reading = _Reading(settings.memory_bytes, settings.seed)
    loss = find_loss(_ENCODED_FOR[noun])
    problem = make_problem(data, features, loss, reading, valid, resumed, targets, held)
    family = check_family(problem.family)
    say_divided(family, data.column_names)
    settings, train = _class_weighted(settings, problem.train, noun, targets)
    rows = [train] if problem.valid is None else [train, problem.valid]
    plan = make_plan(family, settings, rows, problem.n_outputs, cores, certify)
    problem = replace(problem, family=family, train=train)
    return StagewiseJob(**vars(problem), settings=settings, noun=noun, plan=plan)


def _for_targets(settings: Settings, noun: str) -> Settings:
    """The validated settings; raises InputError for an update, loss or class weight that does not fit."""
    settings = settings.checked()
    if settings.loss is None:
        several = noun == "label" and settings.update == "gls"
        settings = replace(settings, loss="logistic" if several else UPDATES[settings.update])
    if noun == "target" and settings.update != "ls":
        raise InputError(
            f"update: {settings.update} is for classes; set update to ls for a numeric target"
        )
    if noun == "label" and settings.link.couples:
        raise InputError(
            f"loss: {settings.loss} is for one class in each row, but rows have several labels; set loss "
            "to logistic"
        )
    if noun == "label" and settings.class_weight is not None:
        raise InputError(
            "class_weight: expected None, since a row with several labels is not of one class; use "
            "sample weights"
        )
    return settings


def training_rows(data: DataSet, settings: Settings, numbers: bool) -> Rows:
    """The training rows of a job without other validation data, with their weights in the objective.

    Raises InputError as :func:`make_job` does.
    """
    noun, settings, targets = _targets(data, settings, numbers)
    held = _held_out(data, settings, noun, targets)
    rows = select_rows(data, targets.y, data.weights, None if held is None else ~held)
    return _class_weighted(settings, rows, noun, targets)[1]


def _targets(
    data: DataSet, settings: Settings, numbers: bool
) -> tuple[str, Settings, EncodedTarget]:
    """What a column of the targets is, the settings for such targets, and the targets."""
    noun = "target" if numbers else "class"
    if noun == "class" and data.target is not None and n_target_columns(data.target) > 1:
        noun = "label"
    settings = _for_targets(settings, noun)
    loss = find_loss(_ENCODED_FOR[noun])
    targets = encode_targets(_with_valid_targets(data), loss, "training")
    _check_columns(data, settings, targets.n_outputs)
    return noun, settings, targets


def _with_valid_targets(data: DataSet) -> DataSet:
    """The same rows, with the target of another row in rows of weight 0, which may hold any value."""
    if data.weights is None or data.target is None or data.weights.all():
        return data
    values = np.array(data.target)
    values[data.weights == 0.0] = values[np.argmax(data.weights > 0.0)]
    return data.with_target(values, data.weights, data.target_name)


def _check_columns(data: DataSet, settings: Settings, n_outputs: int) -> None:
    """Raise InputError for covariates, and for offsets that the update does not take."""
    if data.covariates:
        raise InputError(
            f"{data.name}: stagewise models take no covariates, since a ridge penalises all weights but "
            "the intercepts; leave them out, or train with fcl train"
        )
    checked_offset(data, settings, n_outputs)


def _held_out(data: DataSet, settings: Settings, noun: str, targets: EncodedTarget) -> Mask | None:
    """The rows that the settings hold out for validation, bool (n,); None for none."""
    kept = np.arange(data.n_rows) if data.weights is None else np.flatnonzero(data.weights)
    codes = targets.y[kept] if noun == "class" else np.zeros(len(kept))
    if noun == "class" and settings.valid_fraction:
        refuse_single(codes, data, targets)
    held = np.zeros(data.n_rows, np.bool_)
    held[kept] = held_out(codes, settings.valid_fraction, settings.seed)
    return held if held.any() else None


def _class_weighted(
    settings: Settings, rows: Rows, noun: str, targets: EncodedTarget
) -> tuple[Settings, Rows]:
    """The settings with a weight for each class, and the training rows with their weights multiplied."""
    given = settings.class_weight
    if given is None:
        return settings, rows
    named = dict(given) if isinstance(given, list | tuple) else given  # as files keep it
    by_class = check_class_weight(named, targets.labels if noun == "class" else None)
    assert by_class is not None
    plain_pairs = by_class if isinstance(by_class, str) else [list(pair) for pair in by_class]
    settings = replace(settings, class_weight=plain_pairs)
    return settings, weighted_by_class(rows, by_class, targets.n_outputs)
