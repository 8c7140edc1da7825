"""Tables of names and weights, as ``fcl inspect --tsv`` writes them, or of two columns."""

from __future__ import annotations

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.model.foreign.weights import ForeignWeights, lines_of, number
from fcl.numerals import read_number

#: Names of the row of the intercept.
INTERCEPTS = ("(intercept)", "intercept", "(Intercept)")
#: Names of the column of features.
_FEATURES = ("feature", "name")


def read_table(path: str) -> ForeignWeights:
    """Read a table separated by tabs: a header with ``feature`` and ``weight``, or two columns.

    Raises InputError for any other table; the message names the line.
    """
    names, values, numbers = [], [], []
    intercept: float | None = None
    at_name, at_weight, width = 0, 1, 0
    for at, line in lines_of(path):
        cells = line.split("\t")
        if not width:
            width = len(cells)
            if _is_header(cells):
                at_name, at_weight = _columns(cells, path)
                continue
            if width != 2:
                raise InputError(
                    f"{path}, line {at}: expected a name and a weight, separated by a tab, got "
                    f"{width} cells; more columns need a header with feature and weight"
                )
        if len(cells) != width:
            raise InputError(f"{path}, line {at}: expected {width} cells, got {len(cells)}")
        name, value = cells[at_name].strip(), number(cells[at_weight], path, at)
        if name in INTERCEPTS:
            if intercept is not None:
                raise InputError(f"{path}, line {at}: expected one intercept, got another")
            intercept = value
            continue
        names.append(name)
        values.append(value)
        numbers.append(at)
    if not width:
        raise InputError(f"{path}: expected a table of names and weights, got an empty file")
    return ForeignWeights(path, np.array(values, np.float64), intercept, names, numbers)


def _is_header(cells: list[str]) -> bool:
    if len(cells) < 2:
        return False
    return "weight" in cells and (len(cells) > 2 or read_number(cells[1]) is None)


def _columns(cells: list[str], path: str) -> tuple[int, int]:
    """The columns of names and of weights in a header."""
    if "output" in cells:
        raise InputError(
            f"{path}, line 1: expected the weights of one output, got a column of outputs; certify the "
            "model file itself, or write one table for each output"
        )
    found = [cells.index(name) for name in _FEATURES if name in cells]
    if not found:
        raise InputError(
            f"{path}, line 1: expected a column called feature beside weight, got {shown(cells)}"
        )
    return found[0], cells.index("weight")
