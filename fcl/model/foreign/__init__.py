"""Linear models of other programs: their weights by name, by place or by hash.

:func:`load_weights` recognises a file by its first bytes: readable models of Vowpal Wabbit, ``.npy`` and
``.npz`` arrays such as ``coef_`` of scikit-learn, and tables of names and weights.
"""

from __future__ import annotations

import os

from fcl.errors import InputError, reason
from fcl.model.foreign.arrays import read_npy, read_npz
from fcl.model.foreign.table import read_table
from fcl.model.foreign.vw import read_vw
from fcl.model.foreign.weights import ForeignWeights
from fcl.store import kind_of, locate, open_file

__all__ = ["ForeignWeights", "load_weights"]

#: First bytes -> the reader; other files are read as a table.
_READERS = {b"\x93NUMPY": read_npy, b"PK\x03\x04": read_npz, b"Version ": read_vw}


def load_weights(path: str | os.PathLike[str]) -> ForeignWeights:
    """Read the weights of a linear model of one output.

    path : Vowpal Wabbit's ``--readable_model`` or ``--invert_hash``; an ``.npy`` of weights; an ``.npz``
        of ``coef`` and ``intercept``; or a table of names and weights, separated by tabs.

    Raises InputError: the file cannot be read, or is not a linear model of one output; the message names
        the line.
    """
    name = os.fspath(path)
    if kind_of(locate(path)) != "file":
        raise InputError(f"{name}: expected the file of a model, found none; check the name")
    try:
        with open_file(path) as file:
            head = file.read(8)
        read = next((read for magic, read in _READERS.items() if head.startswith(magic)), None)
        return (read or read_table)(name)
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({reason(error)})") from error
