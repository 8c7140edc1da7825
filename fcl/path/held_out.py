"""Files of the margins of rows by the models of the folds that held them out."""

from __future__ import annotations

import io
from collections.abc import Callable

from numpy.lib.format import write_array

from fcl.data import DataSet
from fcl.data.open import open_columns
from fcl.model.outputs import scores_of
from fcl.path.result import PathResult


def file_of_margins(
    name: str, path: PathResult, data: DataSet, show: Callable[[str], str]
) -> bytes:
    """The content of a file of a name that ends in .tsv or .npy; ``show`` makes cells of any text."""
    assert path.oof is not None
    if name.endswith(".tsv"):
        return _table(path, data, show)
    file = io.BytesIO()
    write_array(file, path.oof, allow_pickle=False)
    return file.getvalue()


def _table(path: PathResult, data: DataSet, show: Callable[[str], str]) -> bytes:
    """Name, label, fold and margins of each row that a fold held out."""
    assert path.oof is not None and path.folds is not None
    assert data.source is not None and data.target is not None
    reader = open_columns(data.source, {"name": "obs/name"}, data.n_rows).get("name")
    names = range(data.n_rows) if reader is None else reader.read(0, data.n_rows)
    margins = scores_of(path.chosen.model, "margin")
    lines = ["\t".join(["name", "label", "fold", *margins.names])]
    columns = [values.tolist() for values in margins.columns(path.oof)]
    for row, (name, label, fold) in enumerate(zip(names, data.target, path.folds, strict=True)):
        cells = [show(str(name)), show(str(label)), str(fold + 1)]
        if fold >= 0:
            lines.append("\t".join([*cells, *(f"{values[row]:.17g}" for values in columns)]))
    return ("\n".join(lines) + "\n").encode()
