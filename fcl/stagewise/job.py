"""A stagewise job: the validated rows, targets, family and memory plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.data.dataset import DataSet
from fcl.data.outputs import refuse_absent_classes
from fcl.data.targets import check_class_weight
from fcl.drivers.problem import bound_family, checked_spec, matched_valid
from fcl.drivers.rows import Rows, check_data_set, weighted_by_class
from fcl.errors import InputError
from fcl.features import Spec
from fcl.features.generator.family import GeneratedFamily
from fcl.features.standardized import say_divided
from fcl.options.stagewise import UPDATES
from fcl.stagewise.blocks import check_family
from fcl.stagewise.plan import StagewisePlan, make_plan
from fcl.stagewise.settings import Settings
from fcl.stagewise.targets import (
    Targets,
    checked_offset,
    encoded_targets,
    held_out,
    refuse_single,
)
from fcl.types import Mask


@dataclass(frozen=True)
class StagewiseJob:
    """What is decided before memory is allocated.

    rows : the training rows, and the validation rows if there are any.
    targets : of the same rows.
    """

    family: GeneratedFamily
    settings: Settings
    rows: list[Rows]
    targets: list[Targets]
    plan: StagewisePlan

    @property
    def fingerprint(self) -> str:
        """Of all data of the job."""
        names = dict.fromkeys(rows.data.fingerprint() for rows in self.rows)
        return " ".join(names)


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
    keep, targets = _targets(data, numbers)
    settings = _for_targets(settings, targets)
    if valid is None:
        parts, found = _split(data, keep, targets, settings)
    else:
        parts, found = [_rows(data, keep, targets, settings)], [targets]
    keep, memory = parts[0].keep, settings.memory_bytes
    family = check_family(bound_family(checked_spec(features), data, keep, memory, resumed))
    say_divided(family, data.column_names)
    if valid is not None:
        valid = matched_valid(valid, data, family)
        valid_keep, valid_targets = _targets(valid, numbers, targets)
        if valid_targets.labels is not None:
            refuse_absent_classes(valid_targets.values, valid_targets.labels, valid.target_name)
        parts.append(_rows(valid, valid_keep, valid_targets, settings))
        found.append(valid_targets)
    settings, parts[0] = _class_weighted(settings, parts[0], targets)
    plan = make_plan(family, settings, parts, targets.width, cores, certify)
    return StagewiseJob(family, settings, parts, found, plan)


def _for_targets(settings: Settings, targets: Targets) -> Settings:
    """The validated settings; raises InputError for an update, loss or class weight that does not fit."""
    settings = settings.checked()
    if settings.loss is None:
        several = targets.noun == "label" and settings.update == "gls"
        settings = replace(settings, loss="logistic" if several else UPDATES[settings.update])
    if targets.noun == "target" and settings.update != "ls":
        raise InputError(
            f"update: {settings.update} is for classes; set update to ls for a numeric target"
        )
    if targets.noun == "label" and settings.link.couples:
        raise InputError(
            f"loss: {settings.loss} is for one class in each row, but rows have several labels; set loss "
            "to logistic"
        )
    if targets.noun == "label" and settings.class_weight is not None:
        raise InputError(
            "class_weight: expected None, since a row with several labels is not of one class; use "
            "sample weights"
        )
    return settings


def training_rows(data: DataSet, settings: Settings, numbers: bool) -> Rows:
    """The training rows of a job without other validation data, with their weights in the objective.

    Raises InputError as :func:`make_job` does.
    """
    keep, targets = _targets(data, numbers)
    parts, _ = _split(data, keep, targets, settings)
    return _class_weighted(settings, parts[0], targets)[1]


def _targets(
    data: DataSet, numbers: bool, like: Targets | None = None
) -> tuple[Mask | None, Targets]:
    """The rows of weight above 0 (None: all), and their targets.

    like : targets of the training rows, for validation rows.
    """
    if data.target is None:
        raise InputError(f"{data.name}: expected a target, and none was opened; name it with y")
    if data.covariates:
        raise InputError(
            f"{data.name}: stagewise models take no covariates, since a ridge penalises all weights but "
            "the intercepts; leave them out, or train with fcl train"
        )
    keep = None if data.weights is None or data.weights.all() else data.weights > 0.0
    values = data.target if keep is None else np.asarray(data.target)[keep]
    return keep, encoded_targets(values, data.target_name, numbers, like)


def _rows(data: DataSet, keep: Mask | None, targets: Targets, settings: Settings) -> Rows:
    n = len(targets.values)
    weights, offset = data.weights, checked_offset(data, settings, targets.width)
    s = np.ones(n) if weights is None else weights if keep is None else weights[keep]
    if offset is not None and keep is not None:
        offset = offset[keep]
    return Rows(data, keep, targets.values, s, offset)


def _class_weighted(settings: Settings, rows: Rows, targets: Targets) -> tuple[Settings, Rows]:
    """The settings with a weight for each class, and the training rows with their weights multiplied."""
    given = settings.class_weight
    if given is None:
        return settings, rows
    named = dict(given) if isinstance(given, list | tuple) else given  # as files keep it
    by_class = check_class_weight(named, targets.labels)
    assert by_class is not None
    plain_pairs = by_class if isinstance(by_class, str) else [list(pair) for pair in by_class]
    settings = replace(settings, class_weight=plain_pairs)
    return settings, weighted_by_class(rows, by_class, targets.width)


def _split(
    data: DataSet, keep: Mask | None, targets: Targets, settings: Settings
) -> tuple[list[Rows], list[Targets]]:
    """Hold out the validation rows of the settings; without any, only the training rows."""
    if settings.valid_fraction:
        refuse_single(targets, data.target_name)
    held = held_out(targets, settings.valid_fraction, settings.seed)
    if not held.any():
        return [_rows(data, keep, targets, settings)], [targets]
    parts, found = [], []
    for chosen in (~held, held):
        mask = chosen
        if keep is not None:
            mask = keep.copy()
            mask[keep] = chosen
        found.append(targets.select(chosen))
        parts.append(_rows(data, mask, found[-1], settings))
    return parts, found
