"""Checks of a model that training or learning starts from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.features.generator import without_scales
from fcl.features.hashed import HashedFamily, refuse_hashed
from fcl.features.standardized import divided_by
from fcl.files.compact import refuse_compact
from fcl.model.columns import difference, match, record_of
from fcl.model.model import Model
from fcl.types import Floats
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.drivers.online.job import OnlineJob
    from fcl.online.base import Point

_log = logging.getLogger("fcl")


def fitting(model: Model, family: Family, data: DataSet) -> Model:
    """The model as one of a family over the columns of the data.

    Unchanged columns are matched as in ``predict``, by name or id; weights move to the places of their
    columns, and to the alleles that the data count. Rows may be sparse or dense, and of any dtype.

    Raises InputError if the model has other features, or columns that the data lack.
    """
    refuse_compact(model.encoding, "initial")
    if not isinstance(family, HashedFamily):
        refuse_hashed(model.family, "initial")
    if _are_columns(model.family) and _are_columns(family):
        model = _moved(model, family, data)
    before, now = (without_scales(one.to_config()) for one in (model.family, family))
    if other := _difference(before, now):
        raise InputError(f"initial: expected a model of the same features; {other}; leave it out")
    if other := difference(model.column_record, data.column_record):
        raise InputError(
            f"initial: {other}; give the data the columns of the model, or leave it out"
        )
    return model


def _are_columns(family: Family) -> bool:
    """Whether feature j is column j, with the same penalty for all."""
    config = family.to_config()
    return config.get("family") == "columns" and not config["options"]


def _moved(model: Model, family: Family, data: DataSet) -> Model:
    """A model of columns with its weights at the places of these columns in the data."""
    record, width = data.column_record, data.rows.shape[1]
    n_before = model.family.row_width
    if not difference(model.column_record, record) and n_before == width:
        return model
    try:
        columns = match(model.column_record, record, n_before, width)
    except InputError as error:
        raise InputError(f"initial: {data.name}: {error}") from None
    if columns.source is None or columns.target is None:
        if None in (model.column_record.first_id, record.first_id):
            return model
        places = dict(zip(range(columns.shift, n_before), range(width), strict=False))
    else:
        places = dict(zip(columns.target.tolist(), columns.source.tolist(), strict=True))
    kept = np.array([feature in places for feature in model.ids.tolist()], bool)
    ids = np.array([places[feature] for feature in model.ids[kept].tolist()], np.int64)
    turned = np.isin(model.ids[kept], columns.turned)
    weights = model.weights[kept]
    # copies of the other allele: w x = w scale - w (scale - x)
    intercept = model.intercept + columns.scale * weights[turned].sum(axis=0)
    weights[turned] *= -1.0
    order = np.argsort(ids)
    _log.info(
        "initial: %s of the model moved to the columns of %s, by %s%s",
        counted(len(ids), "weight"),
        data.name,
        "id" if columns.source is None else "name",
        f"; {turned.sum():,} with A1 and A2 exchanged, turned" if turned.any() else "",
    )
    return replace(
        model,
        family=family,
        ids=ids[order],
        weights=weights[order],
        support=model.support[kept][order],
        intercept=intercept,
        feature_names=None,
        column_record=record_of(family, ids[order], record),
        centres={},
    )


def _difference(before: Any, now: Any, name: str = "") -> str:
    """The first setting in which two configurations of a family differ, in words; empty if none does."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = {"width"} if name == "form" else before.keys() | now.keys()
        # form and state are the last to be named, as they follow from other settings
        parts = sorted(keys, key=lambda key: (key in ("form", "state"), key))
        found = (_difference(before.get(key), now.get(key), key) for key in parts)
        return next(filter(None, found), "")
    return "" if before == now else f"{name} is {shown(now)} here, {shown(before)} in the model"


def in_units_of(family: Family, model: Model) -> Floats:
    """The weights of a model, float64 (k, K), in the units of a family of the same features.

    Products divide the columns of different rows by different numbers.
    """
    ratio = divided_by(family, model.ids) / divided_by(model.family, model.ids)
    return model.weights_by_output * ratio[:, None]


def online_start(job: OnlineJob, model: Model) -> Point:
    """The weights and intercept of a model, from which an online learner starts.

    Raises InputError if the model has other features, labels, or several outputs.
    """
    model = fitting(model, job.family, job.train.data)
    if model.n_outputs > 1:
        raise InputError(
            f"initial: expected a model of one output, got one of {model.n_outputs}; leave it out"
        )
    mine, others = job.labels, model.labels
    if (mine is None) != (others is None) or (mine and others and tuple(mine) != tuple(others)):
        raise InputError(
            f"initial: expected a model of {_words(mine)}, got one of {_words(others)}; leave it out"
        )
    return model.ids, in_units_of(job.family, model)[:, 0], model.intercept


def _words(labels: object) -> str:
    return "numbers" if labels is None else f"the labels {shown(labels)}"
