"""Arrays that are stored as groups: sparse matrices and columns of tables, in the layout of anndata.

    csr_matrix                   group with indptr, indices, data and the attribute shape
    categorical                  group with codes and categories, -1 = no value
    nullable-integer and others  group with values and mask, true = no value

Before anndata 0.8, a categorical is an array of codes whose attribute ``categories`` refers to the array
of categories; before 0.7, the attributes of sparse matrices have other names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.data.base import Container, RowReader
from fcl.data.sparse import SparseRowReader
from fcl.errors import InputError

# Supported versions of the layout, by encoding-type, without the last number.
SPARSE_VERSIONS = ("0.1",)
CATEGORICAL_VERSIONS = ("0.2",)
NULLABLE_VERSIONS = ("0.1",)

OLD_CATEGORIES = "__categories"  # group of categories beside the columns, before anndata 0.8


def open_rows(container: Container, path: str) -> RowReader[Any]:
    """Open the rows at a path: an array, or a group that is a sparse matrix."""
    if not container.is_group(path):
        return container.open_rows(path)
    kind = _encoding(container, path)
    where = f'"{path}" in {container.name}'
    if kind == "csr_matrix":
        _check_version(container, path, SPARSE_VERSIONS)
        shape = container.attribute(path, "shape") or container.attribute(path, "h5sparse_shape")
        if not isinstance(shape, list | tuple) or not all(isinstance(n, int) for n in shape):
            raise InputError(
                f"{where} is a {kind} whose attribute shape is {shape}; expected two integers"
            )
        indptr, indices, data = (
            container.open_array(f"{path}/{part}", may_be_empty=True)
            for part in ("indptr", "indices", "data")
        )
        return SparseRowReader(indptr.name.rpartition("/")[0], shape, indptr, indices, data)
    if kind == "csc_matrix":
        raise InputError(
            f"{where} is stored by columns (csc_matrix), but fcl reads ranges of rows; store it by "
            "rows, as a csr_matrix (anndata: adata.X = adata.X.tocsr(), then write it again)"
        )
    raise _not_an_array(container, path, kind)


def open_column(container: Container, path: str) -> RowReader[np.ndarray]:
    """Open a target or weights at a path: an array, or a group that is a column of a table."""
    if not container.is_group(path):
        column = container.open_array(path)
        categories = container.attribute(path, "categories")
        if isinstance(categories, str) and OLD_CATEGORIES in categories.split("/"):
            folder = path.rpartition("/")[0]
            target = categories if categories.startswith("/") else f"{folder}/{categories}"
            return CategoricalReader(column.name, column, container.open_array(target))
        return column
    kind = _encoding(container, path)
    if kind == "categorical":
        _check_version(container, path, CATEGORICAL_VERSIONS)
        codes = container.open_array(f"{path}/codes")
        categories = container.open_array(f"{path}/categories", may_be_empty=True)
        return CategoricalReader(codes.name.rpartition("/")[0], codes, categories)
    if kind.startswith("nullable-"):
        _check_version(container, path, NULLABLE_VERSIONS)
        values, mask = (container.open_array(f"{path}/{part}") for part in ("values", "mask"))
        return MaskedReader(values.name.rpartition("/")[0], values, mask)
    raise _not_an_array(container, path, kind)


def read_column_names(container: Container, n_columns: int) -> list[str] | None:
    """Names of the columns of X: the index of the table ``var``, in the layout of anndata.

    None if there is no such index of text, or if it belongs to an array of another width.
    """
    index = container.attribute("var", "_index") if container.is_group("var") else None
    if not isinstance(index, str) or container.is_group(f"var/{index}"):
        return None
    try:
        names = container.open_array(f"var/{index}", may_be_empty=True)
    except InputError:  # the rows are complete without names
        return None
    if names.shape != (n_columns,) or names.dtype.kind not in "SU":
        return None
    return [
        n.decode("utf-8", "replace") if isinstance(n, bytes) else n
        for n in names.read_all().tolist()
    ]


class CategoricalReader(RowReader[np.ndarray]):
    """Values of a categorical column, which is stored as codes (indices of categories)."""

    def __init__(
        self, name: str, codes: RowReader[np.ndarray], categories: RowReader[np.ndarray]
    ) -> None:
        self.name = name
        self.shape = codes.shape
        self.dtype = categories.dtype
        self.chunk_rows = codes.chunk_rows
        self._codes = codes
        if codes.dtype.kind not in "iu":
            raise InputError(
                f"{codes.name} has dtype {codes.dtype}; expected integers, the codes of categories"
            )
        if len(categories.shape) != 1:
            raise InputError(f"{categories.name} has shape {categories.shape}; expected (number,)")
        self._categories = categories.read_all()

    def read(self, start: int, stop: int) -> np.ndarray:
        codes = self._codes.read(start, stop)
        _refuse_missing(self.name, start, codes == -1)
        n = len(self._categories)
        if codes.size and (codes.max() >= n or codes.min() < 0):
            row = int(((codes >= n) | (codes < 0)).argmax())
            raise InputError(
                f"{self.name}: row {start + row} has the code {codes[row]}, but there are "
                f"{n} categories; the file is damaged or was changed by hand"
            )
        return self._categories[codes]


class MaskedReader(RowReader[np.ndarray]):
    """Values of a nullable column, whose mask must not mark any as missing."""

    def __init__(
        self, name: str, values: RowReader[np.ndarray], mask: RowReader[np.ndarray]
    ) -> None:
        self.name = name
        self.shape, self.dtype, self.chunk_rows = values.shape, values.dtype, values.chunk_rows
        self._values, self._mask = values, mask
        if mask.shape != values.shape:
            raise InputError(
                f"{mask.name} has shape {mask.shape}; expected {values.shape}, like the values"
            )

    def read(self, start: int, stop: int) -> np.ndarray:
        _refuse_missing(self.name, start, self._mask.read(start, stop).astype(bool))
        return self._values.read(start, stop)


def _refuse_missing(name: str, start: int, missing: np.ndarray) -> None:
    if missing.any():
        raise InputError(
            f"{name}: row {start + int(missing.argmax())} has no value ({int(missing.sum())} such "
            f"rows of {len(missing)}); drop these rows, or fill in their values"
        )


def _encoding(container: Container, path: str) -> str:
    """The encoding-type of a group, or an empty text."""
    kind = container.attribute(path, "encoding-type")
    if kind is None and (old := container.attribute(path, "h5sparse_format")):
        return f"{old}_matrix"
    return str(kind or "")


def _check_version(container: Container, path: str, known: tuple[str, ...]) -> None:
    version = container.attribute(path, "encoding-version")
    if version is not None and str(version).rpartition(".")[0] not in known:
        expected = " or ".join(f"{number}.*" for number in known)
        raise InputError(
            f'"{path}" in {container.name} has encoding-version {version}; expected {expected}. It '
            "was written by a newer program: try to upgrade fcl"
        )


def _not_an_array(container: Container, path: str, kind: str) -> InputError:
    advice = {
        "dataframe": f"; a column of it is named {path}/NAME",
        "csr_matrix": ", one value per row",
    }
    what = f"is a {kind or 'group'}, expected an array{advice.get(kind, '')}"
    return InputError(f'"{path}" in {container.name} {what}')
