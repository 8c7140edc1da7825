"""Values of no use, as sequences, numbers, sparse rows, targets or weights: each with its row."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fcl
from fcl.data import (
    NumericReader,
    SequenceReader,
    check_columns,
    check_weights,
    encode_labels,
    open_data,
    regression_target,
)
from fcl.data.memory import MemoryReader
from fcl.data.numeric import check_finite
from fcl.data.outputs import (
    encode_multilabel,
    encode_softmax,
    number_columns,
    refuse_absent_classes,
    refuse_rare_classes,
)
from fcl.data.sparse import from_matrix
from fcl.data.targets import check_class_weight
from fcl.drivers.rows import encode_outputs, select_valid_outputs
from fcl.objective import find_loss
from tests.data.conftest import Chunked, csr, short

SOFTMAX = SimpleNamespace(name="softmax")
KINDS = np.array(["pear", "fig", "apple", "fig", "apple", "pear"])
Case = tuple[Callable[..., object], tuple[Any, ...], str]


def decode(array: Any, keep: Any = None) -> object:
    return list(
        SequenceReader(MemoryReader(np.asarray(array), "test.zarr:X"), keep).iter_codes(1000)
    )


def numbers(array: Any, keep: Any = None, block_rows: int = 100) -> object:
    rows = from_matrix(array, "X") if scipy.sparse.issparse(array) else MemoryReader(array, "X")
    return list(NumericReader(rows, keep).iter_blocks(block_rows))


def sparse_rows(matrix: Any, start: int = 0) -> object:
    return from_matrix(matrix, "X").read(start, matrix.shape[0])


def labels(values: Any) -> object:
    return encode_labels(np.array(values), "train.zarr:y")


def target(values: Any) -> object:
    return regression_target(np.array(values), "train.h5:y")


def weights(values: Any) -> object:
    return check_weights(np.array(values), 3, "w")


def columns(rows: Any) -> object:
    return check_columns(rows, 4)


def outputs(y: Any, loss: str, **more: Any) -> object:
    data = open_data(np.arange(12.0).reshape(6, 2), y=y, **more)
    return encode_outputs(data, SOFTMAX if loss == "softmax" else find_loss(loss), "training")


def valid(y: Any, loss: str, *more: Any) -> object:
    data = open_data(np.arange(12.0).reshape(6, 2), y=y)
    return select_valid_outputs(data, SOFTMAX if loss == "softmax" else find_loss(loss), *more)


class Narrow(Chunked):
    """Text whose chunks are as wide as their longest rows."""

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.array(super().read(start, stop).tolist())


# -- sequences -------------------------------------------------------------------------------------

FORMS = "expected \\(n, L\\) integers 0-4 \\(A C G T, unknown\\) or ASCII letters"
SEQUENCES: dict[str, Case] = {
    **{f"letter {letter}": (decode, (np.array(["ACGT", f"AC{letter}T"]),),
        rf"^test\.zarr:X: row 1, column 2 is {re.escape(repr(letter))}, not a nucleotide.*"
        "N R Y S W K M B D H V") for letter in "X~. xé\u4e00E"},
    **{f"{name} as {dtype}": (decode, (np.array(rows, dtype),),
        rf"^test\.zarr:X: row 1, column 0 is {says}, not a nucleotide") for dtype in ("u1", "i4")
        for name, rows, says in (("number 88", [[65, 67], [88, 65], [7, 65]], "'X'"),
                                 ("number 7", [[65, 67], [7, 65]], "7"))},
    **{f"code {rows[row][column]} in row {row}": (decode, (rows,),
        rf"^test\.zarr:X: row {row}, column {column} is {rows[row][column]}; expected the codes 0-3")
        for row, column, rows in ((2, 1, [[0, 1], [2, 3], [0, 5]]), (1, 0, [[0, 1], [-1, 3]]),
                                  (0, 0, [[-7, 1]]), (1, 1, [[0, 1], [1, 256]]))},
    "number -191": (decode, ([[65, 65], [65, 65 - 256]],), "row 1, column 1 is -191"),
    "letter among codes": (decode, ([[0, 1], [2, 65]],),
        r"row 1, column 1 is the letter 'A' \(65\), but row 0 holds codes"),
    "code among letters": (decode, ([[65, 67], [2, 65]],),
        "row 1, column 0 is the code 2, but row 0 holds letters"),
    "kept row": (decode, (np.array(["AC", "XX", "GT", "AZ", "TT"]), np.array([1, 0, 1, 1, 1], bool)),
        "row 3, column 1 is 'Z'"),
    **{f"length {len(text[row])}, {kind}": (decode, (np.array(text, kind),),
        rf"^test\.zarr:X: row {row} has {len(text[row])} letters, row 0 has 3; all sequences must have")
        for kind in "SU" for row, text in (
            (2, ["ACG", "ACG", "AC"]), (1, ["ACG", "ACGTA", "ACG"]), (1, ["ACG", "", "ACG"]))},
    "narrow chunk": (
        lambda: list(SequenceReader(Narrow(np.array(["ACGT"] * 3 + ["AC"] * 3), 3)).iter_codes(10)), (),
        "row 3 has 2 letters, row 0 has 4"),
    "empty first sequence": (decode, (["", "A"],), "row 0 is an empty sequence"),
    "NUL": (decode, (np.array([b"ACG", b"A\0G"]),), r"row 1, column 1 is '\\x00', not a nucleotide"),
    **{f"{array.dtype} {array.shape}": (decode, (array,), rf"^test\.zarr:X has .*{FORMS}") for array in (
        np.zeros((3, 4), bool), np.zeros(3, int), np.full((3, 4), "AC"), np.full((3, 4), b"AC"))},
    "float32": (decode, (np.zeros((3, 4), np.float32),),
        rf"^test\.zarr:X has .*float32.*{FORMS}.*\.astype\('uint8'\)"),
    "sparse rows": (
        lambda: SequenceReader(from_matrix(scipy.sparse.eye_array(3, dtype=np.int8), "X")), (),
        r"^X is a sparse matrix; expected \(n, L\) integers"),
}  # fmt: skip

# -- numbers ---------------------------------------------------------------------------------------


def with_values(dtype: str, sparse: bool, rows: int, *places: tuple[int, int, float]) -> Any:
    x = np.eye(rows, 4, dtype=dtype)
    for row, column, value in places:
        x[row, column] = value
    return scipy.sparse.csr_matrix(x.astype("f8") if dtype == "f2" else x) if sparse else x


KEEP = np.array([1, 1, 0, 1, 1, 1, 1, 0, 1], bool)
GAP = with_values("f4", False, 3, (1, 1, np.nan))
NUMBERS: dict[str, Case] = {
    **{f"{value} in {dtype}, sparse {sparse}, blocks of {rows}": (
        numbers, (with_values(dtype, sparse, 9, (6, 2, value), (7, 1, value)), None, rows),
        rf"^X: row 6, column 2 is {value}; values must be finite \(.*Replace them, or drop their rows or "
        "columns$")
        for value in (np.nan, np.inf, -np.inf) for dtype in ("f2", "f4", "f8")
        for sparse in (False, True) for rows in (1, 3, 100)},
    **{f"kept row, sparse {sparse}": (
        numbers, (with_values("f8", sparse, 9, (2, 0, np.nan), (5, 1, np.nan)), KEEP, 3),
        r"^X: row 5, column 1 is nan; values must be finite \(1 such values in rows .*4-6\)")
        for sparse in (False, True)},
    "block from row 10": (check_finite, (GAP, 10, "d:X"),
        r"^d:X: row 11, column 1 is nan; .* \(1 such values in rows 10-12"),
    "block of given rows": (check_finite, (GAP, np.array([4, 40, 41]), "d:X"),
        r"^d:X: row 40, column 1 is nan; .* \(1 such values in rows 4-41"),
    "sparse block": (
        check_finite, (from_matrix(scipy.sparse.csr_matrix(GAP), "d:X").read(0, 3), 10, "d:X"),
        "^d:X: row 11, column 1 is nan"),
    "text": (numbers, (np.array(["AC"]),), "^X holds text; expected numbers$"),
    "letters": (numbers, (np.array([["A"]], "S1"),), "^X holds text; expected numbers$"),
    "one dimension": (numbers, (np.zeros(3),),
        r"^X has shape \(3,\); expected \(rows, columns\)\. Store a single column as \(3, 1\)$"),
    "other columns": (columns, (MemoryReader(np.zeros((2, 3)), "t:X"),),
        "^t:X has 3 columns, but the model was trained on 4; give"),
    "other sparse columns": (columns, (from_matrix(scipy.sparse.csr_matrix((2, 3)), "t:X"),),
        "^t:X has 3 columns, but the model was trained on 4; give"),
}  # fmt: skip

# -- sparse rows -----------------------------------------------------------------------------------

SPARSE: dict[str, Case] = {
    "csc": (sparse_rows, (SimpleNamespace(**vars(csr([0, 1], [0], [1.0], (1, 1))), format="csc"),),
        "^X is a sparse matrix stored as csc; expected CSR$"),
    **{f"column {column}": (sparse_rows, (csr([0, 1, 1, 3], indices, [1.0, 2, 3], (3, 3)), start),
        rf"^X: row 2 has an entry in column {column}; expected columns from 0 to 2, as its shape is "
        r"\(3, 3\)$") for column, start, indices in (
            (3, 0, [0, 1, 3]), (-1, 1, [0, -1, 3]), (2**63, 2, np.array([0, 1, 2**63], np.uint64)))},
    "entry twice": (sparse_rows, (csr([0, 2, 2, 5], [0, 1, 2, 0, 2], [1.0, 2, 3, 0, 3], (3, 3)), 1),
        r"^X: row 2, column 2 has more than one entry; expected at most one\. Add them up first "
        r"\(scipy: X\.sum_duplicates\(\)\)$"),
    **{f"indptr {indptr}": (sparse_rows, (csr(indptr, [0, 1], [1.0, 2], (2, 3)),), message)
        for indptr, message in (
            ([1, 1, 2], r"^X\.indptr begins with 1; expected 0"),
            ([0, 2, 1], r"^X\.indptr decreases to 1 at position 2; expected values that never decrease"),
            ([0, 3, 3], r"^X\.indptr says that row 0 ends at entry 3, but there are only 2"),
            ([0, 2], r"^X has shape \(2, 3\), but its indptr has 2 values; expected 3, one more "),
            ([0.0, 1, 2], r"^X\.indptr has dtype float64; expected integers"),
            ([[0, 1, 2]], r"^X\.indptr has shape \(1, 3\); expected one dimension"))},
    "few values": (sparse_rows, (csr([0, 1, 2], [0, 1], [1.0], (2, 3)),),
        "^X has 2 indices and 1 data; expected equal numbers"),
    "fractions as indices": (sparse_rows, (csr([0, 1], [0.0], [1.0], (1, 1)),),
        r"^X\.indices has dtype float64; expected integers"),
    "text as values": (sparse_rows, (csr([0, 1], [0], ["a"], (1, 1)),),
        r"^X\.data has dtype <U1; expected real numbers"),
    "complex values": (sparse_rows, (csr([0, 1], [0], [1j], (1, 1)),), r"^X\.data has dtype complex128"),
    "no rows": (sparse_rows, (csr([0], [], [], (0, 3)),), r"^X is empty, shape \(0, 3\); expected"),
    "one dimension": (sparse_rows, (scipy.sparse.coo_array(np.ones(4)),),
        r"^X has 1 dimensions, shape \(4,\); a sparse matrix has two"),
}  # fmt: skip

# -- targets and weights ---------------------------------------------------------------------------

TARGETS: dict[str, Case] = {
    "one class": (labels, ([2, 2, 2],),
        r"^train\.zarr:y holds only one class, 2, in all 3 rows; two are needed"),
    "one row": (labels, (["a"],), "only one class, 'a', in all 1 rows"),
    "three classes": (labels, ([0, 1, 2],),
        r'3 distinct labels \(0, 1, 2\); expected two\. For more classes choose loss="softmax"'),
    "nine classes": (labels, (range(9),),
        r"holds 9 distinct labels \(0, 1, 2, 3, 4, \.\.\.\); expected two"),
    "nan as label": (labels, ([0.0, 1.0, np.nan, np.nan],),
        r"^train\.zarr:y: row 2 is nan; labels must be finite \(2 such rows of 4\)"),
    "inf as label": (labels, ([0.0, np.inf, 0.0],), r"y: row 1 is inf; labels must be finite"),
    "labels with columns": (labels, ([[0, 1], [1, 0]],),
        r"has shape \(2, 2\); expected one value per row"),
    "no labels": (labels, ([],), r"^train\.zarr:y is empty"),
    "objects as labels": (labels, (np.array(["a", {}], object),),
        r"y holds Python objects \(dict, str\)"),
    "None as label": (labels, (np.array(["a", None], object),),
        r"y: row 1 is missing \(NA\), as are 1 of 2 values"),
    "inf as target": (target, ([0.0, np.inf],),
        r"^train\.h5:y: row 1 is inf; a regression target must be finite"),
    "nan as target": (target, ([np.nan, 1.0],),
        r"^train\.h5:y: row 0 is nan; a regression target must be finite"),
    "text as target": (target, (["a", "b"],),
        r"^train\.h5:y has dtype <U1; a regression target must be numeric"),
    "negative weight": (weights, ([1.0, -0.5, -1.0],),
        r"^w: row 1 is -0\.5; weights must not be negative \(2 such rows of 3\)"),
    "inf as weight": (weights, ([1.0, 1.0, np.inf],), "^w: row 2 is inf; weights must be finite"),
    "nan as weight": (weights, ([np.nan, 1.0, 1.0],), "^w: row 0 is nan; weights must be finite"),
    "weights of zero": (weights, ([0.0, 0.0, 0.0],), "^w: all weights are zero"),
    "few weights": (weights, ([1.0, 1.0],), "^w has 2 weights for 3 rows"),
    "text as weights": (weights, (["1", "2", "3"],), "^w has dtype <U1; weights must be numeric"),
}  # fmt: skip

# -- several outputs -------------------------------------------------------------------------------

OUTPUTS: dict[str, Case] = {
    "softmax, one class": (encode_softmax, (np.zeros(3), "y"),
        r"at least two classes, got only one class, 0\.0"),
    "softmax, nan": (encode_softmax, (np.array([1.0, np.nan]), "y"), "row 1 is nan"),
    "softmax, unknown class": (encode_softmax, (np.array([1, 7]), "v:y", (1, 2)), "got 7 in row 1"),
    "softmax, columns": (encode_softmax, (np.ones((3, 2)), "y"), "expected one value per row"),
    "two columns of four": (number_columns, (np.ones((6, 2)), "y", 4),
        r"expected 4 columns of numbers, got shape \(6, 2\)"),
    "inf in a column": (number_columns, ([[1, 2], [3, np.inf]], "y"), "y, column 1: row 1 is inf"),
    "label 2": (encode_multilabel, ([[0, 1], [2, 0]], "y"), "got 2 in row 1, column 0"),
    "label nan": (encode_multilabel, ([[0.0, np.nan]], "y"), "got nan in row 0, column 1"),
    "label of text": (encode_multilabel, ([["a", "b"]], "y"), "expected 0 or 1"),
    "labels of three dimensions": (encode_multilabel, (np.ones((3, 2, 2)), "y"),
        r"got shape \(3, 2, 2\)"),
    "rare class": (
        refuse_rare_classes, (np.array([0.0, 0, 1, 1, 2]), np.ones(5), tuple("abcd"), "y"),
        r"got 1 row of class 'c' \(classes with fewer than two rows: 'c', 'd'\)"),
    "class of little weight": (
        refuse_rare_classes, (np.array([0.0, 0, 1]), np.array([5.0, 5, 1.5]), ("a", "b"), "y"),
        "got 1 row of class 'b'"),
    "absent class": (refuse_absent_classes, (np.array([0.0, 2]), ("a", "b", "c"), "v:y"),
        "v:y: expected validation rows of all 3 classes trained on, got no row of 'b'"),
    "weight of no class": (check_class_weight, ({"e": 2}, tuple("abcdfgh")),
        r"the labels are 'a', 'b', 'c', 'd', 'f', \.\.\."),
    "poisson with columns": (outputs, (np.ones((6, 2)), "poisson"),
        "expected one column for poisson loss"),
    "offset with one column": (lambda: outputs(KINDS, "softmax", offset=np.ones(6)), (),
        r"expected an offset .* shape \(6, 3\), got shape \(6,\)"),
    "validation without a class": (
        valid, (KINDS, "softmax", ("apple", "fig", "pear", "quince"), 4), "got no row of 'quince'"),
    "validation with two columns": (valid, (np.ones((6, 2)), "squared", None, 3),
        "expected 3 columns of numbers"),
}  # fmt: skip

CASES = {
    f"{kind}, {name}": case
    for kind, cases in {
        "sequences": SEQUENCES,
        "numbers": NUMBERS,
        "sparse": SPARSE,
        "targets": TARGETS,
        "outputs": OUTPUTS,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Any) -> None:
    door, given, message = CASES[name]
    with pytest.raises(fcl.InputError) as caught:
        door(*given)
    found = short(caught.value, tmp_path)
    assert re.search(message, found), found


def test_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and positions are counted over all pieces of an array."""
    monkeypatch.setattr("fcl.data.sequences._PIECE_LETTERS", 10)
    with pytest.raises(fcl.InputError, match="row 17, column 1 is 'X'"):
        decode(["ACT"] * 17 + ["AXC"] + ["GGT"] * 22)
    monkeypatch.setattr("fcl.data.sparse._PIECE_ROWS", 2)
    with pytest.raises(fcl.InputError, match="decreases to 1 at position 3"):
        sparse_rows(csr([0, 1, 2, 1, 2], [0, 1], [1.0, 2], (4, 3)))


@pytest.mark.parametrize("reader", [SequenceReader, NumericReader])
def test_keep_of_another_length(reader: Any) -> None:
    """A fault of the caller."""
    with pytest.raises(ValueError, match="keep must be bool"):
        reader(MemoryReader(np.zeros((3, 2), int), "X"), np.ones(2, bool))
