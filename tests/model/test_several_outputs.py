"""Models of several outputs: their file, margins, predictions and descriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.special import expit
from scipy.special import softmax as scipy_softmax

import fcl
from fcl.cli.inspect import command as inspect_command
from fcl.errors import InputError
from fcl.features import Columns, bind_features
from fcl.model import Model, load_model
from fcl.model.description import feature_sizes
from fcl.model.labels import encoded_target
from fcl.model.outputs import output_names, table_scores
from fcl.model.scores import write_scores
from fcl.scoring.quality import compared
from tests.model.conftest import SEVERAL, make_model

N, P = 5_000, 30
RANDOM = np.random.default_rng(0)
X = np.where(RANDOM.random((N, P)) < 0.3, RANDOM.normal(size=(N, P)), 0.0)
IDS = np.array([1, 4, 5, 20, 29])
WEIGHTS = np.array([[0.5, 0, -2], [0, 0, 1.5], [3, -1, 0], [0, 0.25, 0], [-0.5, -0.5, 1]])
INTERCEPTS = np.array(SEVERAL["intercept"])
MARGINS = X[:, IDS] @ WEIGHTS + INTERCEPTS
KINDS = SEVERAL["labels"]


def several(**changes: Any) -> Model:
    """A model of classes, unless it is changed, over columns of numbers."""
    values: dict[str, Any] = {
        **SEVERAL,
        "family": bind_features(Columns(), fcl.open_data(X, y=None).rows, None),
        "ids": IDS,
        "weights": WEIGHTS,
        "support": (X[:, IDS] != 0).sum(axis=0),
        "n_rows": N,
        "history": [],
    }
    return make_model(**(values | changes))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    several().save(tmp_path / "m.fcl")
    return tmp_path / "m.fcl"


def test_predictions_of_classes() -> None:
    model = several()
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability, scipy_softmax(MARGINS, axis=1), atol=1e-14)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-15 * 8)
    np.testing.assert_array_equal(model.predict(X), np.array(KINDS)[MARGINS.argmax(axis=1)])
    huge = several(intercept=[1e5, -1e5, 0.0]).predict_proba(X[:3])
    np.testing.assert_array_equal(huge, np.tile([1.0, 0.0, 0.0], (3, 1)))


def test_two_classes_have_two_outputs() -> None:
    model = several(weights=WEIGHTS[:, :2], labels=KINDS[:2], intercept=INTERCEPTS[:2])
    np.testing.assert_array_equal(encoded_target(model, np.array(KINDS[:2]), "y"), [0.0, 1.0])
    assert [scores.kind for scores in table_scores(model)] == ["predicted", "margin", "probability"]


def test_predictions_of_labels_and_numbers() -> None:
    labels = several(loss="logistic", labels=None)
    np.testing.assert_array_equal(labels.predict(X), MARGINS > 0)
    np.testing.assert_allclose(labels.predict_proba(X), expit(MARGINS), rtol=1e-12)
    numbers = several(loss="squared", labels=("height", "width", "depth"))
    np.testing.assert_allclose(numbers.predict(X), MARGINS, atol=1e-12)


def test_weights_are_described_by_size() -> None:
    rows = several().describe()
    assert [abs(row.weight) for row in rows] == sorted(np.abs(WEIGHTS[WEIGHTS != 0]))[::-1]
    assert rows[0][:4] == (5, "x5", "apple", 3.0) and rows[0].support == (X[:, 5] != 0).sum()
    figs = several().describe(2, output="fig")
    assert [(row.id, row.weight) for row in figs] == [(5, -1.0), (29, -0.5)]
    unnamed = several(loss="squared", labels=None)
    assert [row.output for row in unnamed.describe(1, output=2)] == [2]
    np.testing.assert_array_equal(feature_sizes(WEIGHTS, False), [2, 1.5, 3, 0.25, 1])
    np.testing.assert_allclose(feature_sizes(WEIGHTS, True)[2], np.sqrt(10))


def test_frames_and_pages() -> None:
    pytest.importorskip("pandas")
    frame = several().to_dataframe()
    assert list(frame.columns) == ["id", "feature", "output", "weight", "support"]
    assert len(frame) == np.count_nonzero(WEIGHTS)
    page = several(labels=("<a>", "b", "c")).to_html()
    assert "&lt;a&gt;" in page and "3 classes" in page


def test_inspection(path: Path, tmp_path: Path) -> None:
    table = tmp_path / "w.tsv"
    done = CliRunner().invoke(inspect_command, [str(path), "--tsv", str(table), "--top", "1"])
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert "labels 3 classes: 'apple', 'fig', 'pear'" in lines and "fcl-model 3" in done.output
    pear = lines.index("class pear:")
    assert lines[pear + 2].split()[:2] == ["-2", "x1"]
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    assert rows[0] == ["feature", "output", "weight", "support"]
    assert rows[1][:3] == ["x5", "apple", "3"]
    assert len(rows) == 1 + np.count_nonzero(WEIGHTS)
    json.dumps(load_model(path).header())


@pytest.mark.parametrize(
    ("loss", "labels", "names", "kinds"),
    [("softmax", ("a", "b\t", 3.0), ["a", "b ", "3"], ["predicted", "margin", "probability"]),
     ("squared", None, ["0", "1", "2"], ["margin"]),
     ("logistic", ("u", "v", "w"), ["u", "v", "w"], ["margin", "probability"])],
)  # fmt: skip
def test_scores_and_comparison(
    tmp_path: Path, loss: str, labels: Any, names: list[str], kinds: list[str]
) -> None:
    model, x, margins = several(loss=loss, labels=labels), X[:40], MARGINS[:40]
    assert output_names(model) == names and [s.kind for s in table_scores(model)] == kinds
    write_scores(model, x, tmp_path / "m.npy")
    assert np.allclose(np.load(tmp_path / "m.npy"), margins)
    write_scores(model, x, tmp_path / "m.tsv", "mean", block_rows=16)
    head, *lines = (tmp_path / "m.tsv").read_text().splitlines()
    assert head.split("\t") == [f"mean_{name}" for name in names] and len(lines) == 40
    mean = {"softmax": lambda m: scipy_softmax(m, axis=1), "squared": np.asarray, "logistic": expit}
    assert np.allclose(np.array([line.split("\t") for line in lines], float), mean[loss](margins))
    target: Any = margins + 1.0 if loss == "squared" else (margins > 0.0).astype(int)
    if loss == "softmax":
        target = np.array(["a", "b\t", "c"])[margins.argmax(axis=1)]
        with pytest.raises(InputError, match=r"y: expected the labels of the model, .* got 'c' in"):
            encoded_target(model, target, "y")
        model = several(labels=("a", "b\t", "c"))
    collected = compared(model, "y", 1 << 20)
    collected.add(target, margins, None, np.arange(40))
    expected = "MSE 1.0000" if loss == "squared" else "error 0.0000"
    assert str(collected.line()).startswith(expected)


@pytest.mark.parametrize("output", range(3))
def test_a_model_of_one_output_is_a_column_of_the_same_model(output: int) -> None:
    """Its numbers have one column inside, and are vectors and floats outside."""
    b = float(INTERCEPTS[output])
    whole = several(loss="squared", labels=None)
    one = several(loss="squared", labels=None, weights=WEIGHTS[:, output], intercept=np.float64(b))
    assert one.weights_by_output.shape == (5, 1) and one.output_labels == [None]
    assert type(one.intercept) is float and one.intercepts.shape == (1,)
    assert one.margins(X).shape == (N,) and one.scorer()(X[:9]).shape == (9, 1)
    np.testing.assert_allclose(one.margins(X), whole.margins(X)[:, output], atol=1e-12)
    np.testing.assert_array_equal(one.predict(X), one.margins(X))
    rows = [(row.id, row.weight, row.support) for row in whole.describe(output=output)]
    assert [(row.id, row.weight, row.support) for row in one.describe()] == rows
    ours, theirs = one.explain(X[:20], top=2), whole.explain(X[:20], top=2, output=output)
    np.testing.assert_array_equal(ours.model.ids, IDS[WEIGHTS[:, output] != 0.0])
    for name in ("margins", "indices", "contributions", "others"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-12)
    with pytest.raises(InputError, match="output: expected one of the 1 outputs"):
        one.explain(X, output=0)
