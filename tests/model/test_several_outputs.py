"""Models of several outputs: their file, margins, predictions and descriptions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import npy, rewrite, set_header
from click.testing import CliRunner
from scipy.sparse import csr_array
from scipy.special import expit
from scipy.special import softmax as scipy_softmax

import fcl
from fcl.cli.inspect import command as inspect_command
from fcl.errors import InputError, ModelFileError
from fcl.features import Columns, bind_features
from fcl.model import Certificate, Model, load_model
from fcl.model.file import check_header
from fcl.model.several import feature_sizes

N, P = 5_000, 30
RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((N, P)) < 0.3, RANDOM.normal(size=(N, P)), 0.0)
IDS = np.array([1, 4, 5, 20, 29])
WEIGHTS = np.array([[0.5, 0, -2], [0, 0, 1.5], [3, -1, 0], [0, 0.25, 0], [-0.5, -0.5, 1]])
INTERCEPTS = np.array([0.5, -1.0, 0.25])
MARGINS = X[:, IDS] @ WEIGHTS + INTERCEPTS
KINDS = ("apple", "fig", "pear")


def several(**changes: Any) -> Model:
    family = bind_features(Columns(), fcl.open_data(X, y=None).rows, None)
    values: dict[str, Any] = {
        "family": family,
        "ids": IDS,
        "weights": WEIGHTS,
        "support": (X[:, IDS] != 0).sum(axis=0),
        "intercept": INTERCEPTS,
        "loss": "softmax",
        "C": 0.1,
        "alpha": 0.1,
        "labels": KINDS,
        "n_rows": N,
        "sum_weights": float(N),
        "fingerprint": "ab" * 32,
        "certificate": Certificate(12.5, 12.4, 0.008, 1.01, P, passes=3),
    }
    return Model(**(values | changes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    several().save(tmp_path / "m.fcl")
    return tmp_path / "m.fcl"


def test_round_trip(path: Path) -> None:
    again = load_model(path)
    assert again.weights.tobytes() == WEIGHTS.tobytes() and again.weights.shape == (5, 3)
    np.testing.assert_array_equal(again.intercept, INTERCEPTS)
    assert again.labels == KINDS and again.n_outputs == 3 and again.n_active == 5
    grouped = several(options={"group": True, "class_weight": [["apple", 1.0]] * 3})
    check_header(grouped.header())
    assert grouped.group and not again.group


def test_empty_model(tmp_path: Path) -> None:
    nothing = np.empty(0, np.int64)
    several(ids=nothing, support=nothing, weights=np.empty((0, 3))).save(tmp_path / "e.fcl")
    again = load_model(tmp_path / "e.fcl")
    assert again.weights.shape == (0, 3)
    np.testing.assert_array_equal(again.margins(X[:7]), np.tile(INTERCEPTS, (7, 1)))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("intercept", 0.5, "labels: expected a list of 2"),
        ("intercept", [0.5], "expected a number, or a list of two or more"),
        ("intercept", [0.5, None, 1], r"intercept\[1\]: expected a finite number"),
        ("intercept", [0.5, 1, 2, 3], "labels: expected a list of 4"),
        ("labels", ["a", "b"], "labels: expected a list of 3"),
        ("labels", ["a", "b", "a"], "expected a different label for each class"),
        ("labels", ["a", ["b"], "c"], r"labels\[1\]: expected a number or a string"),
        ("labels", None, "labels: expected 3, one for each class, got none"),
        ("loss", "poisson", "expected one of softmax, squared, logistic"),
        ("loss", ["softmax"], "loss: unknown loss"),
        ("options", {"group": 1}, "options.group: expected true or false"),
        ("options", {"class_weight": [["a", 1]]}, "expected at least two pairs"),
        ("n_active", 6, "says 6 active features"),
    ],
)
def test_bad_header(path: Path, key: str, value: Any, message: str) -> None:
    set_header(path, **{key: value})
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (WEIGHTS, r"must be a vector of <f8, got <f8 of shape \(5, 3\)"),
        (np.ones(14), "expected 15 values, of 5 features and 3 outputs, got 14"),
        (np.ones(5), "got 5"),
        (np.full(15, np.nan), "must be finite"),
    ],
)
def test_bad_weights(path: Path, array: np.ndarray, message: str) -> None:
    rewrite(path, lambda members: members.update({"weights.npy": npy(array)}))
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


def test_intercepts_of_a_damaged_header_allocate_nothing(path: Path) -> None:
    set_header(path, intercept=[0.0] * 100_000, labels=list(range(100_000)))
    with pytest.raises(ModelFileError, match="expected 500,000 values"):
        load_model(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"intercept": 0.5}, r"intercept: expected 3 numbers, one for each output, got shape \(\)"),
        ({"intercept": [1.0, 2.0]}, r"got shape \(2,\)"),
        ({"intercept": [1.0, 2.0, np.nan]}, "must be finite"),
        ({"weights": np.ones((5, 1))}, "need at least two columns"),
        ({"weights": np.ones((4, 3))}, "one length"),
        ({"labels": ("a", "b")}, "labels: expected 3, one for each class, got 2"),
        ({"loss": "huber:delta=1"}, "expected one of softmax, squared, logistic"),
    ],
)
def test_model_checks_its_outputs(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        several(**changes)


@pytest.mark.parametrize("rows", [X, csr_array(X)], ids=["dense", "sparse"])
@pytest.mark.parametrize("block_rows", [65_536, 64])
def test_margins_are_the_product(rows: Any, block_rows: int) -> None:
    some = rows if block_rows > 64 else rows[:200]
    found = several().margins(some, block_rows)
    np.testing.assert_allclose(found, MARGINS[: len(found)], rtol=1e-13, atol=1e-13)


def test_predictions_of_classes() -> None:
    model = several()
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability, scipy_softmax(MARGINS, axis=1), atol=1e-14)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-15 * 8)
    np.testing.assert_array_equal(model.predict(X), np.array(KINDS)[MARGINS.argmax(axis=1)])
    huge = several(intercept=[1e5, -1e5, 0.0]).predict_proba(X[:3])
    np.testing.assert_array_equal(huge, np.tile([1.0, 0.0, 0.0], (3, 1)))


def test_predictions_of_labels_and_numbers() -> None:
    labels = several(loss="logistic", labels=None)
    np.testing.assert_array_equal(labels.predict(X), MARGINS > 0)
    np.testing.assert_allclose(labels.predict_proba(X), expit(MARGINS), rtol=1e-12)
    numbers = several(loss="squared", labels=("height", "width", "depth"))
    np.testing.assert_allclose(numbers.predict(X), MARGINS, atol=1e-12)
    with pytest.raises(InputError, match="logistic or softmax loss, this one has squared"):
        numbers.predict_proba(X)


def test_offsets_have_a_number_for_each_output() -> None:
    model, offset = several(options={"offset": True}), RANDOM.normal(size=(N, 3))
    np.testing.assert_allclose(model.margins(X, offset=offset), MARGINS + offset, atol=1e-12)
    with pytest.raises(InputError, match=r"expected an offset of shape \(5000, 3\)"):
        model.margins(X, offset=offset[:, 0])
    with pytest.raises(InputError, match="got none"):
        model.margins(X)


def test_k_mers_agree_with_one_model_for_each_output(windows: np.ndarray, make_model: Any) -> None:
    weights = RANDOM.normal(size=(3, 2)) * [[1, 0], [1, 1], [0, 1]]
    model = make_model(weights=weights, intercept=[1.0, 2.0], loss="logistic", labels=None)
    for k in range(2):
        one = make_model(weights=weights[:, k], intercept=k + 1.0)
        np.testing.assert_allclose(model.margins(windows)[:, k], one.margins(windows), atol=1e-13)


def test_weights_are_described_by_size() -> None:
    rows = several().describe()
    assert [abs(row.weight) for row in rows] == sorted(np.abs(WEIGHTS[WEIGHTS != 0]))[::-1]
    assert rows[0][:4] == (5, "x5", "apple", 3.0) and rows[0].support == (X[:, 5] != 0).sum()
    figs = several().describe(2, output="fig")
    assert [(row.id, row.weight) for row in figs] == [(5, -1.0), (29, -0.5)]
    unnamed = several(loss="squared", labels=None)
    assert [row.output for row in unnamed.describe(1, output=2)] == [2]
    with pytest.raises(InputError, match=r"one of the 3 outputs .*'apple'.* got 'quince'"):
        several().describe(output="quince")
    np.testing.assert_array_equal(feature_sizes(WEIGHTS, False), [2, 1.5, 3, 0.25, 1])
    np.testing.assert_allclose(feature_sizes(WEIGHTS, True)[2], np.sqrt(10))


def test_contributions_explain_one_output() -> None:
    offset = RANDOM.normal(size=(50, 3))
    why = several().explain(X[:50], top=2, output="pear", offset=offset)
    np.testing.assert_allclose(why.margins, MARGINS[:50, 2] + offset[:, 2], atol=1e-12)
    total = why.intercept + why.offset + why.contributions.sum(axis=1) + why.others
    np.testing.assert_allclose(total, why.margins, atol=1e-12)
    assert {part.feature for part in why.row(0)} <= {"x1", "x4", "x29"}
    with pytest.raises(InputError, match=r"needs a model of one output.*explain\(\.\.\., output="):
        several().explain(X)


def test_frames_and_pages() -> None:
    pytest.importorskip("pandas")
    frame = several().to_dataframe()
    assert list(frame.columns) == ["id", "feature", "output", "weight", "support"]
    assert len(frame) == np.count_nonzero(WEIGHTS)
    page = several(labels=("<a>", "b", "c")).to_html()
    assert "&lt;a&gt;" in page and "3, each a class" in page


def test_inspection(path: Path, tmp_path: Path) -> None:
    table = tmp_path / "w.tsv"
    done = CliRunner().invoke(inspect_command, [str(path), "--tsv", str(table), "--top", "1"])
    assert done.exit_code == 0, done.output
    lines = [line.strip() for line in done.output.splitlines()]
    assert any(
        re.fullmatch(r"labels +3 \(class each\): 'apple', 'fig', 'pear'", li) for li in lines
    )
    assert "fcl-model 3" in done.output
    pear = lines.index("class pear:")
    assert lines[pear + 2].split()[:2] == ["-2", "x1"]
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    assert rows[0] == ["feature", "output", "weight", "support"]
    assert rows[1][:3] == ["x5", "apple", "3"]
    assert len(rows) == 1 + np.count_nonzero(WEIGHTS)
    json.dumps(load_model(path).header())
