"""Values of no use, as sequences, numbers, sparse rows, targets or weights: each with its row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
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
    number_columns,
    refuse_absent_classes,
    refuse_rare_classes,
)
from fcl.data.sparse import from_matrix
from fcl.data.targets import check_class_weight, encode_classes
from fcl.drivers.targets import EncodedTarget, encode_targets, select_valid_rows
from fcl.objective import find_loss
from tests.data.conftest import Chunked, csr, short

KINDS = np.array(["pear", "fig", "apple", "fig", "apple", "pear"])


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


def outputs(y: Any, loss: str, offset: Any = None) -> object:
    data = open_data(np.arange(12.0).reshape(6, 2), y=y, offset=offset)
    return encode_targets(data, find_loss(loss), "training")


def valid(y: Any, loss: str, labels: Any, n_outputs: int) -> object:
    data = open_data(np.arange(12.0).reshape(6, 2), y=y)
    return select_valid_rows(data, find_loss(loss), EncodedTarget(np.empty(0), labels, n_outputs))


class Narrow(Chunked):
    """Text whose chunks are as wide as their longest rows."""

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.array(super().read(start, stop).tolist())


def narrow_chunk(array: Any) -> object:
    return list(SequenceReader(Narrow(array, 3)).iter_codes(10))


def sequences_of(matrix: Any) -> object:
    return SequenceReader(from_matrix(matrix, "X"))


def with_values(dtype: str, sparse: bool, rows: int, *places: tuple[int, int, float]) -> Any:
    x = np.eye(rows, 4, dtype=dtype)
    for row, column, value in places:
        x[row, column] = value
    return scipy.sparse.csr_matrix(x.astype("f8") if dtype == "f2" else x) if sparse else x


KEEP = np.array([1, 1, 0, 1, 1, 1, 1, 0, 1], bool)
GAP = with_values("f4", False, 3, (1, 1, np.nan))
SPARSE_GAP = from_matrix(scipy.sparse.csr_matrix(GAP), "d:X").read(0, 3)
FORMS = r"expected \(n, L\) integers 0-4 \(A C G T, unknown\) or ASCII letters"
BY_COLUMNS = SimpleNamespace(**vars(csr([0, 1], [0], [1.0], (1, 1))), format="csc")

#: door -> name of a case -> argument (or a tuple of arguments), and the message
DOORS: dict[Callable[..., object], dict[str, tuple[Any, str]]] = {
    # sequences
    decode: {
        **{f"letter {letter}": (np.array(["ACGT", f"AC{letter}T"]),
            rf"^test\.zarr:X: row 1, column 2 is {re.escape(repr(letter))}, not a nucleotide.*"
            "N R Y S W K M B D H V") for letter in "X~. xé\u4e00E"},
        **{f"number {rows[1][0]} as {dtype}": (np.array(rows, dtype),
            rf"^test\.zarr:X: row 1, column 0 is {says}, not a nucleotide") for dtype in ("u1", "i4")
            for rows, says in (([[65, 67], [88, 65], [7, 65]], "'X'"), ([[65, 67], [7, 65]], "7"))},
        **{f"code {rows[row][column]}": (rows,
            rf"^test\.zarr:X: row {row}, column {column} is {rows[row][column]}; expected the codes 0-3")
            for row, column, rows in ((2, 1, [[0, 1], [2, 3], [0, 5]]), (1, 0, [[0, 1], [-1, 3]]),
                                      (0, 0, [[-7, 1]]), (1, 1, [[0, 1], [1, 256]]))},
        "number -191": ([[65, 65], [65, 65 - 256]], "row 1, column 1 is -191"),
        "letter among codes": ([[0, 1], [2, 65]],
            r"row 1, column 1 is the letter 'A' \(65\), but row 0 holds codes"),
        "code among letters": ([[65, 67], [2, 65]],
            "row 1, column 0 is the code 2, but row 0 holds letters"),
        "kept row": ((np.array(["AC", "XX", "GT", "AZ", "TT"]), np.array([1, 0, 1, 1, 1], bool)),
            "row 3, column 1 is 'Z'"),
        **{f"length {len(text[row])} as {kind}": (np.array(text, kind),
            rf"^test\.zarr:X: row {row} has {len(text[row])} letters, row 0 has 3; all sequences must "
            "have") for kind in "SU" for row, text in (
                (2, ["ACG", "ACG", "AC"]), (1, ["ACG", "ACGTA", "ACG"]), (1, ["ACG", "", "ACG"]))},
        "empty first sequence": (["", "A"], "row 0 is an empty sequence"),
        "NUL": (np.array([b"ACG", b"A\0G"]), r"row 1, column 1 is '\\x00', not a nucleotide"),
        "bool": (np.zeros((3, 4), bool), rf"^test\.zarr:X has dtype bool; {FORMS}"),
        "one dimension": (np.zeros(3, int), rf"^test\.zarr:X has shape \(3,\).*; {FORMS}"),
        **{f"two letters as {kind}": (np.full((3, 4), "AC").astype(kind),
            rf"^test\.zarr:X has .*more than one letter per element; {FORMS}") for kind in "US"},
        "float32": (np.zeros((3, 4), np.float32),
            rf"^test\.zarr:X has .*float32.*{FORMS}.*\.astype\('uint8'\)"),
    },
    narrow_chunk: {"text": (np.array(["ACGT"] * 3 + ["AC"] * 3), "row 3 has 2 letters, row 0 has 4")},
    sequences_of: {"sparse rows": (scipy.sparse.eye_array(3, dtype=np.int8),
        r"^X is a sparse matrix; expected \(n, L\) integers")},
    # numbers
    numbers: {
        **{f"{value} in {dtype}, sparse {sparse}, blocks of {rows}": (
            (with_values(dtype, sparse, 9, (6, 2, value), (7, 1, value)), None, rows),
            rf"^X: row 6, column 2 is {value}; values must be finite \(.*Replace them, or drop their "
            "rows or columns$")
            for value in (np.nan, np.inf, -np.inf) for dtype in ("f2", "f4", "f8")
            for sparse in (False, True) for rows in (1, 3, 100)},
        **{f"kept row, sparse {sparse}": (
            (with_values("f8", sparse, 9, (2, 0, np.nan), (5, 1, np.nan)), KEEP, 3),
            r"^X: row 5, column 1 is nan; values must be finite \(1 such values in rows .*4-6\)")
            for sparse in (False, True)},
        "text": (np.array(["AC"]), "^X holds text; expected numbers$"),
        "letters": (np.array([["A"]], "S1"), "^X holds text; expected numbers$"),
        "one dimension": (np.zeros(3),
            r"^X has shape \(3,\); expected \(rows, columns\)\. Store a single column as \(3, 1\)$"),
    },
    check_finite: {
        "from row 10": ((GAP, 10, "d:X"),
            r"^d:X: row 11, column 1 is nan; .* \(1 such values in rows 10-12"),
        "given rows": ((GAP, np.array([4, 40, 41]), "d:X"),
            r"^d:X: row 40, column 1 is nan; .* \(1 such values in rows 4-41"),
        "sparse": ((SPARSE_GAP, 10, "d:X"), "^d:X: row 11, column 1 is nan"),
    },
    columns: {
        kind: (rows, "^t:X has 3 columns, but the model was trained on 4; give") for kind, rows in (
            ("dense", MemoryReader(np.zeros((2, 3)), "t:X")),
            ("sparse", from_matrix(scipy.sparse.csr_matrix((2, 3)), "t:X")))},
    # sparse rows
    sparse_rows: {
        "csc": (BY_COLUMNS, "^X is a sparse matrix stored as csc; expected CSR$"),
        **{f"column {column}": ((csr([0, 1, 1, 3], indices, [1.0, 2, 3], (3, 3)), start),
            rf"^X: row 2 has an entry in column {column}; expected columns from 0 to 2, as its shape is "
            r"\(3, 3\)$") for column, start, indices in (
                (3, 0, [0, 1, 3]), (-1, 1, [0, -1, 3]), (2**63, 2, np.array([0, 1, 2**63], np.uint64)))},
        "entry twice": ((csr([0, 2, 2, 5], [0, 1, 2, 0, 2], [1.0, 2, 3, 0, 3], (3, 3)), 1),
            r"^X: row 2, column 2 has more than one entry; expected at most one\. Add them up first "
            r"\(scipy: X\.sum_duplicates\(\)\)$"),
        **{f"indptr {indptr}": (csr(indptr, [0, 1], [1.0, 2], (2, 3)), rf"^X{message}")
            for indptr, message in (([1, 1, 2], r"\.indptr begins with 1; expected 0"),
                ([0, 2, 1],
                    r"\.indptr decreases to 1 at position 2; expected values that never decrease"),
                ([0, 3, 3], r"\.indptr says that row 0 ends at entry 3, but there are only 2"),
                ([0, 2],
                    r" has shape \(2, 3\), but its indptr has 2 values; expected 3, one more than rows"),
                ([0.0, 1, 2], r"\.indptr has dtype float64; expected integers"),
                ([[0, 1, 2]], r"\.indptr has shape \(1, 3\); expected one dimension"))},
        "few values": (csr([0, 1, 2], [0, 1], [1.0], (2, 3)),
            "^X has 2 indices and 1 data; expected equal numbers"),
        "fractions": (csr([0, 1], [0.0], [1.0], (1, 1)),
            r"^X\.indices has dtype float64; expected integers"),
        "text": (csr([0, 1], [0], ["a"], (1, 1)), r"^X\.data has dtype <U1; expected real numbers"),
        "complex": (csr([0, 1], [0], [1j], (1, 1)), r"^X\.data has dtype complex128"),
        "no rows": (csr([0], [], [], (0, 3)), r"^X is empty, shape \(0, 3\); expected at least"),
        "one dimension": (scipy.sparse.coo_array(np.ones(4)),
            r"^X has 1 dimensions, shape \(4,\); a sparse matrix has two"),
    },
    # targets and weights
    labels: {
        "one class": ([2, 2, 2],
            r"^train\.zarr:y holds only one class, 2, in all 3 rows; two are needed"),
        "one row": (["a"], "only one class, 'a', in all 1 rows"),
        "three classes": ([0, 1, 2],
            r"3 distinct labels \(0, 1, 2\); expected two\. For numbers choose the loss squared"),
        "nine classes": (range(9), r"holds 9 distinct labels \(0, 1, 2, 3, 4 and 4 more\); expected two"),
        "nan": ([0.0, 1.0, np.nan, np.nan],
            r"^train\.zarr:y: row 2 is nan; labels must be finite \(2 such rows of 4\)"),
        "inf": ([0.0, np.inf, 0.0], "y: row 1 is inf; labels must be finite"),
        "columns": ([[0, 1], [1, 0]], r"has shape \(2, 2\); expected one value per row"),
        "none": ([], r"^train\.zarr:y is empty"),
        "objects": (np.array(["a", {}], object), r"y holds Python objects \(dict, str\)"),
        "None": (np.array(["a", None], object), r"y: row 1 is missing \(NA\), as are 1 of 2 values"),
    },
    target: {
        "inf": ([0.0, np.inf], r"^train\.h5:y: row 1 is inf; a regression target must be finite"),
        "nan": ([np.nan, 1.0], r"^train\.h5:y: row 0 is nan; a regression target must be finite"),
        "text": (["a", "b"], r"^train\.h5:y has dtype <U1; a regression target must be numeric"),
    },
    weights: {
        "negative": ([1.0, -0.5, -1.0],
            r"^w: row 1 is -0\.5; weights must not be negative \(2 such rows of 3\)"),
        "inf": ([1.0, 1.0, np.inf], "^w: row 2 is inf; weights must be finite"),
        "nan": ([np.nan, 1.0, 1.0], "^w: row 0 is nan; weights must be finite"),
        "zeros": ([0.0, 0.0, 0.0], "^w: all weights are zero"),
        "few": ([1.0, 1.0], "^w has 2 weights for 3 rows"),
        "text": (["1", "2", "3"], "^w has dtype <U1; weights must be numeric"),
    },
    # several outputs
    encode_classes: {
        "one class": ((np.zeros(3), "y"), r"at least two classes, got only one class, 0\.0"),
        "nan": ((np.array([1.0, np.nan]), "y"), "row 1 is nan"),
        "unknown class": ((np.array([1, 7]), "v:y", (1, 2)), "got 7 in row 1"),
        "columns": ((np.ones((3, 2)), "y"), r"^y has shape \(3, 2\); expected one value per row"),
    },
    number_columns: {
        "two of four": ((np.ones((6, 2)), "y", 4), r"expected 4 columns of numbers, got shape \(6, 2\)"),
        "inf": (([[1, 2], [3, np.inf]], "y"), "y, column 1: row 1 is inf"),
    },
    encode_multilabel: {
        "2": (([[0, 1], [2, 0]], "y"), "got 2 in row 1, column 0"),
        "nan": (([[0.0, np.nan]], "y"), "got nan in row 0, column 1"),
        "text": (([["a", "b"]], "y"), "expected 0 or 1 in each column.* got a in row 0, column 0"),
        "three dimensions": ((np.ones((3, 2, 2)), "y"), r"got shape \(3, 2, 2\)"),
    },
    refuse_rare_classes: {
        "one row": ((np.array([0.0, 0, 1, 1, 2]), np.ones(5), tuple("abcd"), "y"),
            r"got 1 row of class 'c' \(classes with fewer than two rows: 'c', 'd'\)"),
        "little weight": ((np.array([0.0, 0, 1]), np.array([5.0, 5, 1.5]), ("a", "b"), "y"),
            "got 1 row of class 'b'"),
    },
    refuse_absent_classes: {"b": ((np.array([0.0, 2]), ("a", "b", "c"), "v:y"),
        "v:y: expected validation rows of all 3 classes trained on, got no row of 'b'")},
    check_class_weight: {"no class": (({"e": 2}, tuple("abcdfgh")),
        r"the labels are 'a', 'b', 'c', 'd', 'f' and 2 more")},
    outputs: {
        "poisson": ((np.ones((6, 2)), "poisson"), "expected one column for poisson loss"),
        "offset": ((KINDS, "softmax", np.ones(6)),
            r"expected an offset .* shape \(6, 3\), got shape \(6,\)"),
    },
    valid: {
        "no class": ((KINDS, "softmax", ("apple", "fig", "pear", "quince"), 4), "got no row of 'quince'"),
        "two columns": ((np.ones((6, 2)), "squared", None, 3), "expected 3 columns of numbers"),
    },
}  # fmt: skip
CASES = {
    f"{door.__name__}, {name}": (door, given if isinstance(given, tuple) else (given,), message)
    for door, cases in DOORS.items()
    for name, (given, message) in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
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
