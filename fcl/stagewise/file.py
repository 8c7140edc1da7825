"""The file of a stagewise model: a zip of ``header.json`` and three ``.npy`` members.

docs/reference/stagewise_file.md is the specification.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features import family_from_config
from fcl.features.generator.family import GeneratedFamily
from fcl.model import schema
from fcl.model.archive import add_array, add_member, read_array, read_member, write_json
from fcl.model.atomic import atomic_file
from fcl.model.column_file import COLUMN_KEYS, record_from_header
from fcl.model.compact import ENCODING_TABLE, Encoding, packed_weights, unpacked_weights
from fcl.model.reading import HEADER, KIND, HeaderFormat, open_model, read_header
from fcl.plain import plain
from fcl.stagewise.certify import JointGap
from fcl.stagewise.learner import RoundWeights, block_count, rounds_of
from fcl.stagewise.settings import CALIBRATIONS, ORDERS, UPDATES, Settings
from fcl.types import Floats
from fcl.units import counted

#: The largest version that is read: 3 for models of cls, 2 for other compact models; else 1 is written.
VERSION = 3
#: Members: vectors of little-endian float64.
ARRAYS = ("features", "intercepts", "calibration")
#: Member of a compact model in place of ``features.npy``.
COMPACT = "features.q"
#: Of the header.
FORMAT = "fcl-stagewise"


#: What a header says of the settings; shared with checkpoints.
SETTINGS_TABLE = schema.record(
    update=schema.one_of(*UPDATES),
    loss=schema.text,  # Settings reads it
    block=schema.whole(1),
    order=schema.Maybe(schema.one_of(*ORDERS)),
    visits=schema.whole(1),
    inner=schema.whole(1),
    alpha=schema.number(0.0),
    calibration=schema.Maybe(schema.one_of(*CALIBRATIONS)),
    clip=schema.Maybe(schema.flag),  # of earlier versions
    rounds=schema.Maybe(schema.whole(1)),
    class_weight=schema.nullable(schema.class_weight),
    valid_fraction=schema.number(0.0, 1.0),
    patience=schema.whole(1),
    seed=schema.whole(),
)
#: A row of the history.
DONE_TABLE = schema.record(
    number=schema.whole(1),
    loss=schema.number(),
    error=schema.nullable(schema.number(0.0, 1.0)),
    valid_loss=schema.nullable(schema.number()),
    valid_error=schema.nullable(schema.number(0.0, 1.0)),
    seconds=schema.number(0.0),
)
_HEADER_TABLE = schema.record(
    family=schema.table,
    settings=SETTINGS_TABLE,
    labels=schema.nullable(schema.listing(schema.label)),
    classifies=schema.flag,
    noun=schema.Maybe(schema.one_of("class", "label", "target")),
    n_outputs=schema.whole(1),
    best_number=schema.whole(0),
    n_rows=schema.whole(1),
    fingerprint=schema.text,
    has_offset=schema.flag,
    **COLUMN_KEYS | {"column_names": COLUMN_KEYS["column_names"].check},
    certificate=schema.nullable(
        schema.record(objective=schema.number(), bound=schema.number(), n_features=schema.whole(1))
    ),
    history=schema.listing(DONE_TABLE),
    encoding=schema.Maybe(ENCODING_TABLE),
    created=schema.text,
    fcl_version=schema.text,
)


def check_best(best_number: int, history: list[dict[str, Any]]) -> None:
    """Raise Mismatch unless the blocks are numbered from 1, and the best one is among them."""
    for at, row in enumerate(history):
        if row["number"] != at + 1:
            raise schema.Mismatch(f"history[{at}].number: expected {at + 1}, got {row['number']}")
    if not min(1, len(history)) <= best_number <= len(history):
        raise schema.Mismatch(
            f"best_number: expected one of the {len(history)} blocks of the history, got {best_number}"
        )


def _header(where: str, value: Any) -> dict[str, Any]:
    """Check for a header whose history has the best block."""
    header: dict[str, Any] = _HEADER_TABLE(where, value)
    check_best(header["best_number"], header["history"])
    return header


def write_stagewise(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    weights: RoundWeights,
    overwrite: bool = False,
) -> None:
    """Write a model's header and weights, completely or not at all.

    Raises InputError if the path exists and ``overwrite`` is false, or cannot be written to.
    """
    encoding = header.get("encoding")
    version = file_version(header["settings"]["update"], encoding)
    content = write_json({"format": FORMAT, "version": version, **plain(header)})
    with atomic_file(path, overwrite) as file, zipfile.ZipFile(file, "w") as archive:
        add_member(archive, HEADER, content)
        for name in ARRAYS:
            if name == "features" and encoding is not None:
                packed = packed_weights(weights.features, encoding.m, encoding.codec)
                add_member(archive, COMPACT, packed)
            else:
                add_array(archive, f"{name}.npy", vector(getattr(weights, name)))


def file_version(update: str, encoding: Encoding | None) -> int:
    """The version of the file of a model."""
    if update == "cls":
        return 3
    return 1 if encoding is None else 2


def read_settings(found: Mapping[str, Any]) -> Settings:
    """The settings in a header; raises InputError for calibrations of earlier versions."""
    if found["update"] == "cls" and "rounds" not in found:
        raise InputError(
            "update: this job of cls is of fcl 0.1, which added predictions to the blocks as features; "
            "train again"
        )
    values = {name: value for name, value in found.items() if name != "clip"}
    if found["update"] != "cls":
        values.pop("calibration", None)
    return Settings(**values).checked()


def vector(array: np.ndarray) -> np.ndarray:
    """An array as a vector of little-endian float64, row by row."""
    return np.ascontiguousarray(array).ravel().astype("<f8", copy=False)


def read_stagewise(path: str | os.PathLike[str], trusted: Collection[str] = ()) -> dict[str, Any]:
    """The fields of the model in a file; parameters and errors are as of :func:`fcl.load_model`."""
    trusted = (trusted,) if isinstance(trusted, str) else trusted
    with open_model(path) as archive:
        header = read_header(archive, HeaderFormat(FORMAT, VERSION, _header))
        packed = {"features"} if "encoding" in header else set()
        names = [name for name in ARRAYS if name not in packed]
        arrays = {name: read_array(archive, f"{name}.npy", "<f8", KIND) for name in names}
        content = read_member(archive, COMPACT, KIND) if packed else b""
        return _fields(header, arrays, content, trusted)


def _fields(
    header: Mapping[str, Any],
    arrays: dict[str, Floats],
    packed: bytes,
    trusted: Collection[str],
) -> dict[str, Any]:
    """The fields of a model; raises ValueError for a header and arrays that do not agree."""
    family = family_from_config(header["family"], trusted)
    found = {
        name: value for name, value in header.items() if name not in ("n_outputs", "classifies")
    }
    settings, number = read_settings(header["settings"]), header["best_number"]
    if "encoding" in header:
        found["encoding"] = encoding = Encoding(**header["encoding"])
        rounds = rounds_of(number, block_count(family.n_features, settings.block), settings)
        n_weights = family.n_features * header["n_outputs"] * max(1, rounds)
        arrays["features"] = unpacked_weights(packed, n_weights, encoding, COMPACT)
    if not isinstance(family, GeneratedFamily):
        raise InputError(f"expected a family of generated columns, got {family.name}")
    K, labels, is_classes = header["n_outputs"], header["labels"], header["classifies"]
    found["noun"] = header.get("noun", "class" if is_classes else "target")
    if is_classes != (found["noun"] == "class"):
        raise InputError(f"classifies: expected {not is_classes} for noun {shown(found['noun'])}")
    if (labels is None and is_classes) or (labels is not None and len(set(labels)) != K):
        raise InputError(f"labels: expected {counted(K, 'different label')}, got {shown(labels)}")
    certificate, record = header["certificate"], record_from_header(found)
    record.check(family.row_width)
    return found | {
        "family": family,
        "weights": shaped(arrays, family.n_features, K, settings, number),
        "settings": settings,
        "labels": None if labels is None else tuple(labels),
        "column_record": record,
        "certificate": None if certificate is None else JointGap(**certificate),
    }


def shaped(
    arrays: Mapping[str, Floats], D: int, K: int, settings: Settings, number: int
) -> RoundWeights:
    """The weights from vectors of a file; raises ValueError for other lengths or infinite values.

    number : visits of blocks that the weights come from.
    """
    blocks = block_count(D, settings.block)
    columns = max(1, rounds_of(number, blocks, settings)) * K
    ended = number // (blocks * settings.n_visits) if settings.calibrates else 0
    shapes = {
        "features": (D, columns),
        "intercepts": (blocks + 1, columns),
        "calibration": (ended, 1 + settings.degree * K, K),
    }
    found = {}
    for name, shape in shapes.items():
        values = arrays[name]
        if len(values) != int(np.prod(shape, dtype=object)) or not np.isfinite(values).all():
            raise ValueError(f"{name}.npy: expected finite values of shape {shape}")
        found[name] = values.reshape(shape)
    return RoundWeights(**found)
