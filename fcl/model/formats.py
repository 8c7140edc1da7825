"""Loads the models of all formats."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

from fcl.errors import StoreError
from fcl.files.bundle import HEADER, open_archive, read_json, read_member
from fcl.files.model import FORMAT
from fcl.model.predictor import Predictor
from fcl.store import kind_of, locate

#: Format in the header -> module and function that reads it, as ``load_model`` of this module. They are
#: named, not imported, since rooms of other models are above this one.
_READERS = {
    FORMAT: ("fcl.model.model", "load_model"),
    "fcl-stagewise": ("fcl.stagewise.model", "load_stagewise"),
}


def load_model(
    path: str | os.PathLike[str],
    trusted: Collection[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Predictor:
    """Read a model file of any format: of ``fcl train`` or of ``fcl stagewise``.

    Nothing in the file is executed. Features of a user's class (``module:Class``) are loaded only if its
    module is trusted: imported already in this process, named by an installed package as an entry point
    of the group ``fcl.generators``, or named in `trusted`.

    Parameters
    ----------
    path : path
        The model file, or its URL.
    trusted : collection of str
        Names of modules that the file may import.
    storage_options : mapping, optional
        Of the object store, as for :func:`fcl.locate`.

    Returns
    -------
    Model or StagewiseModel
        Both have ``margins``, ``predict``, ``predict_proba`` and ``save``.

    Raises
    ------
    InputError
        The path leads to a FIFO, a socket or a device.
    ModelFileError
        The file is missing, damaged, not a model file, or of a newer version, or its family is unknown or
        not trusted.
    StoreError
        An object store failed, or cannot be reached.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> fcl.train(data, "columns", C=1.0).model.save("model.fcl")
    >>> fcl.load_model("model.fcl").predict(X[1:4])
    array([ True, False, False])
    """
    path = locate(path, storage_options)
    module, reader = _READERS.get(_format(path), _READERS[FORMAT])
    model: Predictor = getattr(import_module(module), reader)(path, trusted)
    return model


def is_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a model of fcl, or claims to be one by its header or its suffix."""
    return bool(_format(path)) or os.fspath(path).endswith(".fcl")


def _format(path: str | os.PathLike[str]) -> str:
    """The format that a file claims to have; empty if there is none, which a reader explains."""
    if kind_of(locate(path)) != "file":
        return ""
    try:
        with open_archive(path) as archive:
            return str(read_json(read_member(archive, HEADER, "a model file")).get("format"))
    except StoreError:
        raise
    except Exception:  # a damaged zip raises many kinds of errors
        return ""
