"""The model file: one uncompressed zip of ``header.json`` and three ``.npy`` members.

README.md beside this module is the specification; the constants here are its names.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fcl.checks import file_kind, shortened, shown
from fcl.errors import InputError, ModelFileError
from fcl.model import schema
from fcl.model.archive import (
    add_array,
    add_member,
    open_archive,
    read_array,
    read_json,
    read_member,
    write_json,
)
from fcl.model.atomic import atomic_file
from fcl.model.certificate import Certificate
from fcl.model.model import Model
from fcl.objective import find_loss
from fcl.plain import plain

__all__ = ["FORMAT", "VERSION", "check_savable", "load_model", "save_model"]

FORMAT = "fcl-model"
VERSION = 1

_HEADER = "header.json"
#: member -> dtype; little-endian whatever the machine
_ARRAYS = {"ids": "<i8", "weights": "<f8", "support": "<i8"}
_KIND = "a model file"

# -- the table of a header

_FINITE = schema.number()
_POSITIVE = schema.number(5e-324)
_UNKNOWN = schema.nullable(_FINITE)


def _label(where: str, value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise schema.Mismatch(f"{where}: expected a number or a text, got {shown(value)}")
    return value


def _loss(where: str, value: Any) -> str:
    try:
        find_loss(value)
    except InputError as error:
        raise schema.Mismatch(f"{where}: {error}") from error
    return str(value)


def _class_weight(where: str, value: Any) -> Any:
    if isinstance(value, str):
        return schema.one_of("balanced")(where, value)
    pairs = schema.listing(schema.listing(schema.anything, 2), 2)(where, value)
    return [[_label(where, label), _POSITIVE(where, weight)] for label, weight in pairs]


def _options(where: str, value: Any) -> dict[str, Any]:
    """Options are for people, apart from these."""
    used = schema.record(
        l1_ratio=schema.Maybe(schema.number(5e-324, 1.0)),
        class_weight=schema.Maybe(schema.nullable(_class_weight)),
        C_min=schema.Maybe(_UNKNOWN),
        offset=schema.Maybe(schema.flag),
    )
    return {**schema.table(where, value), **used(where, value)}


_HEADER_TABLE = schema.record(
    family=schema.table,
    n_active=schema.whole(),
    intercept=_FINITE,
    loss=_loss,
    C=_POSITIVE,
    alpha=_POSITIVE,
    labels=schema.nullable(schema.listing(_label, 2)),
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
    ),
    options=_options,
    history=schema.listing(schema.table),
    created=schema.text,
    fcl_version=schema.text,
)
#: keys of a header that a Model has unchanged
_UNCHANGED = (
    "intercept",
    "loss",
    "C",
    "alpha",
    "n_rows",
    "sum_weights",
    "fingerprint",
    "options",
    "history",
    "created",
    "fcl_version",
)


def save_model(model: Model, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write `model` to `path`, all at once or not at all.

    Raises InputError if `path` exists and `overwrite` is false, or cannot be a file.
    """
    header = _header_bytes(model)
    with atomic_file(path, overwrite) as file, zipfile.ZipFile(file, "w") as archive:
        add_member(archive, _HEADER, header)
        for name, dtype in _ARRAYS.items():
            array = np.ascontiguousarray(getattr(model, name)).astype(dtype)
            add_array(archive, f"{name}.npy", array)


def check_savable(model: Model) -> None:
    """Raise InputError if a model like this cannot be saved; called before the training."""
    try:
        _header_bytes(model)
    except ValueError as error:
        raise InputError(f"a model of this training could not be saved: {error}") from error


def _header_bytes(model: Model) -> bytes:
    """The header as it is stored; ValueError if a reader would refuse it."""
    content = write_json(_header(model))
    _HEADER_TABLE("", read_json(content))
    return content


def load_model(path: str | os.PathLike[str], trusted: Collection[str] = ()) -> Model:
    """Read a model file.

    Nothing in the file is executed. Features of a user's class (``module:Class``) need its module, which
    this process must have imported, an installed package must name as an entry point of the group
    ``fcl.generators``, or `trusted` must name.

    Parameters
    ----------
    path : path
        The model file.
    trusted : collection of str
        Names of modules that the file may import.

    Raises
    ------
    InputError
        The path leads to a FIFO, a socket or a device.
    ModelFileError
        The file is missing, damaged, not a model file, of a newer version, or names a family that is
        unknown or not trusted.
    """
    shown_path = os.fspath(path)
    if isinstance(trusted, str):
        trusted = (trusted,)
    file_kind(path)
    try:
        with open_archive(path) as archive:
            header = _read_header(archive, shown_path)
            arrays = {
                name: read_array(archive, f"{name}.npy", dtype, _KIND)
                for name, dtype in _ARRAYS.items()
            }
    except ModelFileError:
        raise
    except FileNotFoundError:
        raise ModelFileError(f"{shown_path}: no such model file") from None
    except IsADirectoryError:
        raise ModelFileError(f"{shown_path}: is a folder, not a model file") from None
    except PermissionError:
        raise ModelFileError(f"{shown_path}: no permission to read it") from None
    # a damaged zip raises errors of many kinds; RuntimeError: it seems to be encrypted
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        what = "damaged" if zipfile.is_zipfile(path) else "not a model file"
        raise ModelFileError(f"{shown_path}: {what} ({shortened(str(error))})") from error
    except (ValueError, LookupError, struct.error) as error:
        raise ModelFileError(f"{shown_path}: {shortened(str(error), 400)}") from error
    return _model(header, arrays, shown_path, trusted)


def _header(model: Model) -> dict[str, Any]:
    # format and version first, for people who open the file in a pager
    return {
        "format": FORMAT,
        "version": VERSION,
        "family": plain(model.family.to_config()),
        "n_active": model.n_active,
        "intercept": float(model.intercept),
        "loss": model.loss,
        "C": float(model.C),
        "alpha": float(model.alpha),
        "labels": None if model.labels is None else plain(list(model.labels)),
        "n_rows": int(model.n_rows),
        "sum_weights": float(model.sum_weights),
        "fingerprint": model.fingerprint,
        "certificate": model.certificate.to_dict(),
        "options": plain(model.options),
        "history": plain(list(model.history)),
        "created": model.created,
        "fcl_version": model.fcl_version,
    }


def _read_header(archive: zipfile.ZipFile, shown_path: str) -> dict[str, Any]:
    content = read_member(archive, _HEADER, _KIND)
    try:
        header = read_json(content)
    except ValueError as error:
        raise ModelFileError(f"{shown_path}: {_HEADER} is not usable JSON: {error}") from error
    if header.get("format") != FORMAT:
        found = shown(header.get("format"))
        raise ModelFileError(
            f"{shown_path}: not a model file: format is {found}, expected {FORMAT!r}"
        )
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(
            f"{shown_path}: version must be an integer from 1, got {shown(version)}"
        )
    if version > VERSION:
        raise ModelFileError(
            f"{shown_path}: format version {shown(version)}, this fcl reads up to {VERSION}: "
            f"made by a newer fcl? (it says {shown(header.get('fcl_version'))}); upgrade fcl to read it"
        )
    try:
        checked: dict[str, Any] = _HEADER_TABLE("", header)
    except schema.Mismatch as error:
        raise ModelFileError(f"{shown_path}: {_HEADER}: {error}") from error
    return checked


def _model(
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    shown_path: str,
    trusted: Collection[str],
) -> Model:
    from fcl.features import family_from_config  # late: families bring their kernels

    labels = header["labels"]
    try:
        model = Model(
            family=family_from_config(header["family"], trusted),
            ids=arrays["ids"],
            weights=arrays["weights"],
            support=arrays["support"],
            labels=None if labels is None else (labels[0], labels[1]),
            certificate=Certificate.from_dict(header["certificate"]),
            **{name: header[name] for name in _UNCHANGED},
        )
    except InputError as error:
        raise ModelFileError(f"{shown_path}: {error}") from error
    if header["n_active"] != model.n_active:
        raise ModelFileError(
            f"{shown_path}: {_HEADER} says {header['n_active']} active features, "
            f"weights.npy has {model.n_active}"
        )
    return model
