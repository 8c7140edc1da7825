"""The model file: one uncompressed zip of ``header.json`` and three members for ids, weights and support.

docs/reference/model_file.md is the specification.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.model import schema
from fcl.model.archive import (
    add_array,
    add_member,
    read_array,
    read_json,
    read_member,
    write_json,
)
from fcl.model.atomic import atomic_file
from fcl.model.column_file import COLUMN_KEYS
from fcl.model.compact import ENCODING_TABLE, PACKED, Encoding, pack_arrays, read_packed
from fcl.model.history import PASS_TABLE
from fcl.model.reading import HEADER, KIND, HeaderFormat, open_model, read_header
from fcl.model.tasks import TASKS
from fcl.objective import find_loss

FORMAT = "fcl-model"
#: The largest version that is read; the smallest version that can hold a model is written.
VERSION = 4

#: member -> dtype, little-endian on every machine
ARRAYS = {"ids": "<i8", "weights": "<f8", "support": "<i8"}

# -- the schema of a header

_FINITE = schema.number()
_POSITIVE = schema.number(5e-324)
_UNKNOWN = schema.nullable(_FINITE)


def _loss(where: str, value: Any) -> str:
    if isinstance(value, str) and value in TASKS:  # softmax is a loss of several outputs alone
        return str(value)
    try:
        find_loss(value)
    except InputError as error:
        raise schema.Mismatch(f"{where}: {error}") from error
    return str(value)


def _by_output(where: str, value: Any) -> float | list[float]:
    """A number, or a list of a number for each of several outputs."""
    if not isinstance(value, list):
        return float(_FINITE(where, value))
    if len(value) < 2:
        raise schema.Mismatch(f"{where}: expected a number, or a list of two or more, got {value}")
    return [_FINITE(f"{where}[{k}]", number) for k, number in enumerate(value)]


def _centre(where: str, value: Any) -> tuple[int, float]:
    feature, centre = schema.listing(schema.anything, 2)(where, value)
    return schema.whole()(f"{where}[0]", feature), float(_FINITE(f"{where}[1]", centre))


def _limits(where: str, value: Any) -> Any:
    """Limits of all features, and of others by id; see :func:`fcl.options.limits_of`."""
    low, high, named = schema.listing(schema.anything, 3)(where, value)
    rows = schema.listing(schema.listing(schema.anything, 3))(where, named)
    ends = schema.listing(schema.nullable(_FINITE), 2)
    for feature, *own in rows:
        schema.whole()(where, feature)
        ends(where, own)
    ends(where, [low, high])
    return value


def _options(where: str, value: Any) -> dict[str, Any]:
    """Keep all options for the user to read; validate those that fcl uses."""
    used = schema.record(
        l1_ratio=schema.Maybe(schema.number(5e-324, 1.0)),
        limits=schema.Maybe(schema.nullable(_limits)),
        class_weight=schema.Maybe(schema.nullable(schema.class_weight)),
        group=schema.Maybe(schema.flag),
        C_min=schema.Maybe(_UNKNOWN),
        offset=schema.Maybe(schema.flag),
        covariates=schema.Maybe(schema.nullable(schema.listing(schema.text))),
    )
    return {**schema.table(where, value), **used(where, value)}


_HEADER_TABLE = schema.record(
    family=schema.table,
    n_active=schema.whole(),
    intercept=_by_output,
    covariates=schema.Maybe(
        schema.listing(
            schema.record(
                name=schema.text,
                levels=schema.nullable(schema.listing(schema.text)),
                coefficients=schema.listing(_by_output),
            )
        )
    ),
    loss=_loss,
    C=_POSITIVE,
    alpha=_POSITIVE,
    labels=schema.nullable(schema.listing(schema.label)),
    n_rows=schema.whole(1),
    sum_weights=_POSITIVE,
    fingerprint=schema.text,
    certificate=schema.record(
        objective=_UNKNOWN,
        bound=_UNKNOWN,
        gap=schema.nullable(schema.number(0.0)),
        max_violation=schema.nullable(schema.number(0.0)),
        n_priced=schema.whole(),
        scope=schema.text,
        passes=schema.whole(),
        violation_resolved=schema.Maybe(schema.flag),
    ),
    options=_options,
    history=schema.listing(PASS_TABLE),
    feature_names=schema.Maybe(schema.listing(schema.text)),
    **COLUMN_KEYS,
    encoding=schema.Maybe(ENCODING_TABLE),
    centres=schema.Maybe(schema.listing(_centre)),
    intercept_rest=schema.Maybe(_by_output),
    created=schema.text,
    fcl_version=schema.text,
)


def _header(where: str, value: Any) -> dict[str, Any]:
    """Check for a header, and for as many labels as there are outputs."""
    header: dict[str, Any] = _HEADER_TABLE(where, value)
    if ("centres" in header) != ("intercept_rest" in header):
        raise schema.Mismatch("expected the keys centres and intercept_rest together")
    intercept, labels = header["intercept"], header["labels"]
    expected = len(intercept) if isinstance(intercept, list) else 2
    if labels is not None and len(labels) != expected:
        raise schema.Mismatch(f"labels: expected a list of {expected}, got {shown(labels)}")
    return header


def write_model(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    overwrite: bool = False,
    more: Mapping[str, bytes | np.ndarray] | None = None,
) -> None:
    """Write a model's header and arrays to `path`, completely or not at all.

    more : further members, which readers of the model ignore.

    Raises InputError if `path` exists and `overwrite` is false, or no file can be written there.
    """
    content = _header_bytes(header)
    with atomic_file(path, overwrite) as file, zipfile.ZipFile(file, "w") as archive:
        add_member(archive, HEADER, content)
        if "encoding" in header:
            for name, packed in pack_arrays(arrays, Encoding(**header["encoding"])).items():
                add_member(archive, name, packed)
            return
        for name, dtype in ARRAYS.items():
            values = np.ascontiguousarray(arrays[name]).astype(dtype, copy=False)
            add_array(archive, f"{name}.npy", values.ravel())
        for name, member in (more or {}).items():
            if isinstance(member, bytes):
                add_member(archive, name, member)
            else:
                add_array(archive, name, member)


def check_header(header: Mapping[str, Any]) -> None:
    """Raise InputError if a model with this header could not be saved; called before training."""
    try:
        _header_bytes(header)
    except ValueError as error:
        raise InputError(f"a model of this training could not be saved: {error}") from error


def file_version(covariates: object, intercept: object, encoding: object = None) -> int:
    """The version of the file of a model, which readers of earlier versions cannot predict with.

    4 for compact models; 3 for several outputs, whose intercepts are a list; 2 with covariates; else 1.
    """
    if encoding is not None:
        return 4
    if np.ndim(intercept):  # type: ignore[arg-type]
        return 3
    return 2 if covariates else 1


def _header_bytes(header: Mapping[str, Any]) -> bytes:
    """The header as stored; raises ValueError if a reader would reject it, or lose a part of it."""
    # format and version come first, for people who open the file in a pager
    version = file_version(header.get("covariates"), header["intercept"], header.get("encoding"))
    content = write_json({"format": FORMAT, "version": version, **header})
    stored = read_json(content)
    kept = {"format": FORMAT, "version": version, **_header("", stored)}
    if extra := schema.undeclared(stored, kept):
        raise ValueError(f"undeclared in the header of a model: {', '.join(extra)}")
    return content


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the header and the arrays of a model file; raises as :func:`fcl.load_model` does."""
    with open_model(path) as archive:
        header = read_header(archive, HeaderFormat(FORMAT, VERSION, _header))
        if "encoding" in header:
            return header, _read_compact(archive, header)
        arrays = {
            name: read_array(archive, f"{name}.npy", dtype, KIND) for name, dtype in ARRAYS.items()
        }
    return header, arrays


def _read_compact(archive: zipfile.ZipFile, header: Mapping[str, Any]) -> dict[str, np.ndarray]:
    k, own = header["n_active"], header["intercept"]  # a compact model has no other features
    width = len(own) if isinstance(own, list) else 1
    contents = {name: read_member(archive, name, KIND) for name in PACKED}
    return read_packed(contents, k, width, Encoding(**header["encoding"]))
