"""The model file: one uncompressed zip of ``header.json`` and three ``.npy`` members.

README.md beside this module is the specification; the constants here are its names.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.checks import file_kind
from fcl.errors import InputError, ModelFileError
from fcl.model.archive import add_array, add_member, read_member, read_npy_header
from fcl.model.atomic import atomic_file
from fcl.model.certificate import Certificate
from fcl.model.model import Model
from fcl.plain import plain

if TYPE_CHECKING:
    from fcl.features.base import Family

__all__ = ["FORMAT", "VERSION", "load_model", "save_model"]

FORMAT = "fcl-model"
VERSION = 1

_HEADER = "header.json"
#: member -> dtype; little-endian whatever the machine
_ARRAYS = {"ids": "<i8", "weights": "<f8", "support": "<i8"}


def save_model(model: Model, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write `model` to `path`, all at once or not at all.

    Raises InputError if `path` exists and `overwrite` is false, or cannot be a file.
    """
    header = json.dumps(_header(model), indent=1, allow_nan=False)
    with atomic_file(path, overwrite) as file, zipfile.ZipFile(file, "w") as archive:
        add_member(archive, _HEADER, header.encode() + b"\n")
        for name, dtype in _ARRAYS.items():
            array = np.ascontiguousarray(getattr(model, name)).astype(dtype)
            add_array(archive, f"{name}.npy", array)


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model file.

    Raises InputError if it is no regular file; ModelFileError if it is missing, damaged, no model file,
    of a newer version, or names a family that is not known here.
    """
    shown = os.fspath(path)
    file_kind(path)
    try:
        with zipfile.ZipFile(path) as archive:
            header = _read_header(archive, shown)
            arrays = {name: _read_array(archive, name, shown) for name in _ARRAYS}
    except FileNotFoundError:
        raise ModelFileError(f"{shown}: no such model file") from None
    except IsADirectoryError:
        raise ModelFileError(f"{shown}: is a folder, not a model file") from None
    except PermissionError:
        raise ModelFileError(f"{shown}: no permission to read it") from None
    # a damaged zip shows itself in many ways, among them RuntimeError (encrypted flag set)
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        what = "damaged" if zipfile.is_zipfile(path) else "not a model file"
        raise ModelFileError(f"{shown}: {what} ({error})") from error
    return _model(header, arrays, shown)


def build_family(config: Mapping[str, Any]) -> Family:
    """The family that a header names; imported late because families bring their kernels."""
    from fcl.features import family_from_config

    return family_from_config(dict(config))


def _header(model: Model) -> dict[str, Any]:
    # format and version first: whoever opens the file with a pager sees at once what it is
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


def _read_member(archive: zipfile.ZipFile, name: str, shown: str) -> bytes:
    try:
        return read_member(archive, name, "a model file")
    except ValueError as error:
        raise ModelFileError(f"{shown}: {error}") from None


def _read_header(archive: zipfile.ZipFile, shown: str) -> dict[str, Any]:
    content = _read_member(archive, _HEADER, shown)
    try:
        header = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{shown}: {_HEADER} is not JSON ({error})") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        name = header.get("format") if isinstance(header, dict) else None
        raise ModelFileError(f"{shown}: not a model file: format is {name!r}, expected {FORMAT!r}")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise ModelFileError(f"{shown}: version must be an integer from 1, got {version!r}")
    if version > VERSION:
        raise ModelFileError(
            f"{shown}: format version {version}, this fcl reads up to {VERSION}: "
            f"made by a newer fcl? (it says {header.get('fcl_version')!r}); upgrade fcl to read it"
        )
    return header


def _read_array(archive: zipfile.ZipFile, name: str, shown: str) -> np.ndarray:
    member, dtype = f"{name}.npy", _ARRAYS[name]
    content = _read_member(archive, member, shown)
    try:
        shape, fortran, found, start = read_npy_header(content)
    except ValueError as error:
        raise ModelFileError(f"{shown}: {member} is damaged ({error})") from error
    if found.str != dtype or len(shape) != 1 or fortran:
        raise ModelFileError(
            f"{shown}: {member} must be a vector of {dtype}, got {found.str} of shape {shape}"
        )
    # the header's word for the shape is checked against what is there before anything is allocated
    if shape[0] * found.itemsize != len(content) - start:
        raise ModelFileError(
            f"{shown}: {member} is damaged: {shape[0]} values of {found.itemsize} bytes announced, "
            f"{len(content) - start} bytes there"
        )
    return np.frombuffer(content, dtype=dtype, offset=start)


def _model(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], shown: str) -> Model:
    try:
        config = header["family"]
        labels = header["labels"]
        if not isinstance(config, dict):
            raise TypeError(f"family must be an object, got {config!r}")
        if labels is not None and len(labels) != 2:
            raise ValueError(f"labels must be null or a pair, got {labels!r}")
        model = Model(
            family=build_family(config),
            ids=arrays["ids"],
            weights=arrays["weights"],
            support=arrays["support"],
            intercept=float(header["intercept"]),
            loss=header["loss"],
            C=float(header["C"]),
            alpha=float(header["alpha"]),
            labels=None if labels is None else (labels[0], labels[1]),
            n_rows=int(header["n_rows"]),
            sum_weights=float(header["sum_weights"]),
            fingerprint=str(header["fingerprint"]),
            certificate=Certificate.from_dict(header["certificate"]),
            options=dict(header["options"]),
            history=list(header["history"]),
            created=str(header["created"]),
            fcl_version=str(header["fcl_version"]),
        )
    except KeyError as error:
        raise ModelFileError(f"{shown}: {_HEADER} lacks {error}") from error
    except InputError as error:
        raise ModelFileError(f"{shown}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{shown}: {_HEADER} is damaged ({error})") from error
    if header.get("n_active") != model.n_active:
        raise ModelFileError(
            f"{shown}: {_HEADER} says {header.get('n_active')} active features, "
            f"weights.npy has {model.n_active}"
        )
    return model
