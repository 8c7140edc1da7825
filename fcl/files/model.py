"""The model file: one uncompressed zip of ``header.json`` and three members for ids, weights and support.

docs/reference/model_file.md is the specification.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.files import schema
from fcl.files.bundle import HEADER, Bundle, FileKind, Members, open_bundle, to_vector, write_bundle
from fcl.files.columns import COLUMN_KEYS
from fcl.files.compact import ENCODING_TABLE, PACKED, Encoding, pack_arrays, read_packed
from fcl.files.passes import PASS_TABLE
from fcl.objective import find_loss

FORMAT = "fcl-model"
#: member -> dtype, little-endian on every machine
ARRAYS = {"ids": "<i8", "weights": "<f8", "support": "<i8"}

# -- the schema of a header


def _loss(where: str, value: Any) -> str:
    try:
        find_loss(value)
    except InputError as error:
        raise schema.Mismatch(f"{where}: {error}") from error
    return str(value)


def _by_output(where: str, value: Any) -> float | list[float]:
    """A number, or a list of a number for each of several outputs."""
    if not isinstance(value, list):
        return float(schema.finite(where, value))
    if len(value) < 2:
        raise schema.Mismatch(f"{where}: expected a number, or a list of two or more, got {value}")
    return [schema.finite(f"{where}[{k}]", number) for k, number in enumerate(value)]


#: The limits of all features, and of others by id; see :func:`fcl.options.kinds.limits_of`.
_LIMITS = schema.row(
    schema.unknown,
    schema.unknown,
    schema.listing(schema.row(schema.whole(), schema.unknown, schema.unknown)),
)


#: All options are kept, for the user to read; these are used.
_OPTIONS = schema.open_record(
    l1_ratio=schema.Maybe(schema.share),
    limits=schema.Maybe(schema.nullable(_LIMITS)),
    class_weight=schema.Maybe(schema.nullable(schema.class_weight)),
    group=schema.Maybe(schema.flag),
    C_min=schema.Maybe(schema.unknown),
    offset=schema.Maybe(schema.flag),
    covariates=schema.Maybe(schema.nullable(schema.listing(schema.text))),
)
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
    C=schema.positive,
    alpha=schema.positive,
    labels=schema.nullable(schema.listing(schema.label)),
    n_rows=schema.whole(1),
    sum_weights=schema.positive,
    fingerprint=schema.text,
    certificate=schema.record(
        objective=schema.unknown,
        bound=schema.unknown,
        gap=schema.nullable(schema.at_least_0),
        max_violation=schema.nullable(schema.at_least_0),
        n_priced=schema.whole(),
        scope=schema.text,
        passes=schema.whole(),
        violation_resolved=schema.Maybe(schema.flag),
    ),
    options=_OPTIONS,
    history=schema.listing(PASS_TABLE),
    feature_names=schema.Maybe(schema.listing(schema.text)),
    **COLUMN_KEYS,
    encoding=schema.Maybe(ENCODING_TABLE),
    centres=schema.Maybe(schema.listing(schema.row(schema.whole(), schema.finite))),
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


#: The largest version is read; the smallest version that can hold a model is written.
MODEL = FileKind(FORMAT, 4, "model file", _header)


def write_model(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    overwrite: bool = False,
    more: Members | None = None,
) -> None:
    """Write a model's header and arrays to `path`, completely or not at all.

    more : further members, which readers of the model ignore.
    """
    members: Members = {f"{name}.npy": to_vector(arrays[name], ARRAYS[name]) for name in ARRAYS}
    if "encoding" in header:
        members = pack_arrays(arrays, Encoding(**header["encoding"]))
    everything = {HEADER: _encoded(header), **members, **(more or {})}
    write_bundle(path, everything.items(), overwrite)


def check_header(header: Mapping[str, Any]) -> None:
    """Raise InputError if a model with this header could not be saved; called before training."""
    try:
        _encoded(header)
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


def _encoded(header: Mapping[str, Any]) -> bytes:
    version = file_version(header.get("covariates"), header["intercept"], header.get("encoding"))
    return MODEL.encode(header, version)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the header and the arrays of a model file; raises as :func:`fcl.load_model` does.

    Weights of K > 1 outputs are (k, K), others (k,).
    """
    with open_bundle(path, MODEL) as bundle:
        intercept = bundle.header["intercept"]
        width = len(intercept) if isinstance(intercept, list) else 1
        if "encoding" in bundle.header:
            arrays = _read_compact(bundle, width)
        else:
            arrays = {name: bundle.vector(name, dtype) for name, dtype in ARRAYS.items()}
        k, values = len(arrays["ids"]), arrays["weights"]
        if isinstance(intercept, list):
            if len(values) != k * width:
                raise InputError(
                    f"weights.npy: expected {k * width:,} values, of {k:,} features and {width:,} "
                    f"outputs, got {len(values):,}"
                )
            arrays["weights"] = values.reshape(k, width)
        return bundle.header, arrays


def _read_compact(bundle: Bundle, width: int) -> dict[str, np.ndarray]:
    contents = {name: bundle.member(name) for name in PACKED}
    # a compact model has no other features than the active ones
    k, encoding = bundle.header["n_active"], Encoding(**bundle.header["encoding"])
    return read_packed(contents, k, width, encoding)
