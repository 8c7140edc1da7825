"""What every learner is given: rows with targets and weights, a family and a loss, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fcl.data import DataSet
from fcl.data.outputs import check_class_count, refuse_rare_classes
from fcl.data.sequences import SequenceReader
from fcl.drivers.rows import Rows, check_data_set, held_out_rows, select_rows
from fcl.drivers.targets import EncodedTarget, encode_targets, select_valid_rows
from fcl.errors import InputError
from fcl.features import (
    Family,
    Spec,
    bind_features,
    is_spec,
    kept_features,
    parse_features,
    spell_features,
)
from fcl.memory.allowance import within
from fcl.model.columns import matched
from fcl.objective import Loss
from fcl.types import Mask


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is learnt from which rows, whatever the learner."""

    family: Family  #: bound to the training rows
    loss: Loss
    train: Rows
    valid: Rows | None
    #: (negative, positive), or of each output; None for regression
    labels: tuple[Any, ...] | None
    n_outputs: int  #: classes or targets whose models share rows and features
    sum_weights: float  #: of the training rows, before class weights
    features: str  #: the text of the family


class ProblemOptions(Protocol):
    """The options of a learner that decide which rows it gets, and the memory for reading them."""

    @property
    def valid_fraction(self) -> float | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def memory(self) -> int: ...


def make_problem(
    data: DataSet,
    features: Spec | str | Family,
    loss: Loss,
    options: ProblemOptions,
    valid: DataSet | None = None,
    resumed: Mapping[str, Any] | None = None,
    targets: EncodedTarget | None = None,
    held: Mask | None = None,
) -> Problem:
    """Check rows, targets and features, and bind the family to the training rows.

    resumed : as for :func:`fcl.drivers.job.make_job`.
    targets : of ``data``, if it need not have enough rows of each class, as a part of a stream.
    held : rows to validate on, in place of those that ``options.valid_fraction`` draws.
    """
    spec = features if isinstance(features, Family) else checked_spec(features)
    if valid is not None and options.valid_fraction is not None:
        raise InputError("give either valid or valid_fraction, not both")
    y = encode_targets(data, loss, "training") if targets is None else targets
    if loss.couples and targets is None:
        group = getattr(options, "group", False)
        check_class_count(y.n_outputs, data.n_rows, options.memory, group, data.target_name)
    if options.valid_fraction is not None:
        held = held_out_rows(data.n_rows, options.valid_fraction, options.seed)
    train = select_rows(data, y.y, data.weights, None if held is None else ~held)
    if targets is None and loss.couples and y.labels is not None:
        refuse_rare_classes(train.y, train.s, y.labels, data.target_name)
    elif targets is None and y.n_outputs == 1:
        loss.check_training(train.y, data.target_name)
    family = bound_family(spec, data, train.keep, options.memory, resumed)
    if isinstance(valid, DataSet):
        family = _long_enough(family, valid)
    valid_rows = None
    if held is not None:
        valid_rows = select_rows(data, y.y, data.weights, held, "validate on: raise valid_fraction")
    elif valid is not None:
        valid_rows = select_valid_rows(matched_valid(valid, data, family), loss, y)
    return Problem(
        family=family,
        loss=loss,
        train=train,
        valid=valid_rows,
        labels=y.labels,
        n_outputs=y.n_outputs,
        sum_weights=float(train.s.sum()),
        features=spec.name if isinstance(spec, Family) else spell_features(spec),
    )


def checked_spec(features: Any) -> Spec:
    """The family that the user gave; InputError for anything else."""
    spec = parse_features(features) if isinstance(features, str) else features
    if isinstance(spec, type):
        raise InputError(
            f"features must be an instance, got the class {spec.__name__}; give "
            f"{spec.__name__}(...) with its options"
        )
    if not is_spec(spec):
        raise InputError(
            "features must be a family such as Kmers(d=8), a Generator, a Concat, or their text, got "
            f"{features!r}"
        )
    found: Spec = spec
    return found


def bound_family(
    spec: Spec | Family,
    data: DataSet,
    keep: Mask | None,
    memory: int,
    resumed: Mapping[str, Any] | None = None,
) -> Family:
    """The family for the training rows; InputError if a family of a model has other rows."""
    if isinstance(spec, Family):
        spec.check_rows(data.rows)
        return spec
    own = spec if resumed is None else kept_features(spec, resumed)
    with within(memory):  # rows are read before the plan
        return bind_features(own, data.rows, keep)


def _long_enough(family: Family, data: DataSet) -> Family:
    """The family; bags, which take sequences of any length, for the length of these rows, too."""
    if family.row_kind != "sequences" or not family.any_width:
        return family
    return family.resized(max(family.row_width, SequenceReader(data.rows).length))


def matched_valid(valid: Any, data: DataSet, family: Family) -> DataSet:
    """The validation data with the columns of the training data; InputError if they do not fit."""
    check_data_set("valid", valid)
    if (data.offset is None) != (valid.offset is None):
        with_one, without = (valid, data) if data.offset is None else (data, valid)
        raise InputError(
            f"{without.name}: expected an offset as {with_one.name} has one, got none; give zeros "
            "where there is nothing to add"
        )
    found = matched(valid, data.column_record, family.row_width)
    family.check_rows(found.rows)
    return found
