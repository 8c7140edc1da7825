"""Weights in ``.npy`` and ``.npz`` files, such as ``coef_`` and ``intercept_`` of scikit-learn."""

from __future__ import annotations

import io
import zipfile

import numpy as np

from fcl.data.npy import NpyReader, read_header
from fcl.errors import InputError
from fcl.files.bundle import open_archive, read_member
from fcl.model.foreign.weights import ForeignWeights
from fcl.store import locate
from fcl.types import Floats

_COEFFICIENTS = ("coef", "coef_", "weights")
_INTERCEPTS = ("intercept", "intercept_")


def read_npy(path: str) -> ForeignWeights:
    """Read the weights of all features, of shape (p,) or (1, p)."""
    reader = NpyReader(locate(path), path)
    return ForeignWeights(path, checked(reader.read(0, reader.shape[0]), path))


def read_npz(path: str) -> ForeignWeights:
    """Read ``coef`` and, if there is one, ``intercept``, as ``numpy.savez`` writes them."""
    try:
        with open_archive(path) as archive:
            members = {n.removesuffix(".npy"): n for n in archive.namelist() if n.endswith(".npy")}
            arrays = {
                name: _array(read_member(archive, members[name], "an .npz of numpy.savez"))
                for name in (*_COEFFICIENTS, *_INTERCEPTS)
                if name in members
            }
    except (ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: {error}") from error
    found = [arrays[name] for name in _COEFFICIENTS if name in arrays]
    if not found:
        raise InputError(
            f"{path}: expected an array called coef, found {', '.join(sorted(members)) or 'none'}; "
            "write it with numpy.savez(path, coef=model.coef_, intercept=model.intercept_)"
        )
    values = checked(found[0], f"{path}:coef")
    own = [arrays[name] for name in _INTERCEPTS if name in arrays]
    if not own:
        return ForeignWeights(path, values)
    intercept = checked(np.atleast_1d(own[0]), f"{path}:intercept")
    if len(intercept) != 1:
        raise InputError(f"{path}:intercept: expected one number, got {len(intercept)}")
    return ForeignWeights(path, values, float(intercept[0]))


def checked(values: np.ndarray, name: str) -> Floats:
    """The weights of one output as a vector; InputError for several outputs, or other values."""
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name}: expected numbers, got {values.dtype}")
    if values.ndim == 2 and len(values) == 1:
        values = values[0]
    if values.ndim != 1:
        raise InputError(
            f"{name}: expected the weights of one output, of shape (p,) or (1, p), got "
            f"{values.shape}; certify the models of several classes one by one"
        )
    found = values.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise InputError(
            f"{name}: expected finite numbers, got {found[wrong[0]]} at position {wrong[0]} (from 0)"
        )
    return found


def _array(content: bytes) -> np.ndarray:
    """An array of an ``.npz``; ValueError unless its declared size is that of the member."""
    buffer = io.BytesIO(content)
    try:
        shape, fortran, dtype = read_header(buffer)
    except ValueError as error:
        raise ValueError(f"an array is damaged ({error})") from error
    if dtype.hasobject or int(np.prod(shape)) * dtype.itemsize != len(content) - buffer.tell():
        raise ValueError(f"an array is damaged: {dtype} of shape {shape} does not fit its size")
    values: np.ndarray = np.frombuffer(content, dtype, offset=buffer.tell())
    return values.reshape(shape, order="F" if fortran else "C")
