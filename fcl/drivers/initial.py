"""Checks of a model that training or learning starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.base import Family, Floats
from fcl.features.hashed import HashedFamily, refuse_hashed
from fcl.features.standardized import divided_by
from fcl.model.columns import difference
from fcl.model.compact import refuse_compact
from fcl.model.model import Model

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.drivers.online.job import OnlineJob
    from fcl.online.base import Point

__all__ = ["online_start", "refuse_other_features"]


def refuse_other_features(
    model: Model, family: Family, data: DataSet, any_form: bool = False
) -> None:
    """Raise InputError unless a model is one of a family, over columns of the same names.

    any_form : whether the rows may differ in their dtype, and in being sparse or dense.
    """
    from fcl.features.generator import without_scales

    refuse_compact(model.encoding, "initial")
    if not isinstance(family, HashedFamily):
        refuse_hashed(model.family, "initial")
    before, now = (without_scales(one.to_config()) for one in (model.family, family))
    if any_form:
        for config in (before, now):
            config["form"] = {"width": config.get("form", {}).get("width")}
    if before != now:
        raise InputError(
            "initial: expected a model of the same features over rows of the same form, got one of "
            f"{before}, for {now}; leave it out"
        )
    if other := difference(model.column_record, data.column_record):
        raise InputError(
            f"initial: {other}; give the data the columns of the model, or leave it out"
        )


def in_units_of(family: Family, model: Model) -> Floats:
    """The weights of a model, float64 (k,) or (k, K), in the units of a family of the same features.

    Products divide the columns of different rows by different numbers.
    """
    ratio = divided_by(family, model.ids) / divided_by(model.family, model.ids)
    weights: Floats = model.weights * (ratio if model.weights.ndim == 1 else ratio[:, None])
    return weights


def online_start(job: OnlineJob, model: Model) -> Point:
    """The weights and intercept of a model, from which an online learner starts.

    Raises InputError if the model has other features, labels, or several outputs.
    """
    refuse_other_features(model, job.family, job.train.data, any_form=True)
    if model.n_outputs != 1:
        raise InputError(
            f"initial: expected a model of one output, got one of {model.n_outputs}; leave it out"
        )
    mine, others = job.labels, model.labels
    if (mine is None) != (others is None) or (mine and others and tuple(mine) != tuple(others)):
        raise InputError(
            f"initial: expected a model of {_words(mine)}, got one of {_words(others)}; leave it out"
        )
    return model.ids, in_units_of(job.family, model), model.intercept


def _words(labels: object) -> str:
    return "numbers" if labels is None else f"the labels {shown(labels)}"
