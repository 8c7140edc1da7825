"""Files of scores of models with several outputs: classes, numbers and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.errors import InputError
from fcl.features import bind_features
from fcl.model import Certificate, Model
from fcl.model.labels import encoded_target
from fcl.model.outputs import output_names, table_scores
from fcl.model.scores import write_scores
from fcl.scoring.quality import compared

X = np.random.default_rng(5).normal(size=(40, 4))
WEIGHTS = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, 0.0]])


def model_of(loss: str, labels: Any) -> Model:
    family = bind_features(fcl.Columns(), fcl.open_data(X, y=None).rows)
    certificate = Certificate(1.0, 1.0, 0.0, 1.0, 4, passes=1)
    return Model(
        family, np.array([0, 2]), WEIGHTS, np.array([40, 40]), np.array([0.1, 0.2, 0.3]), loss, 1.0, 1.0,
        labels, 40, 40.0, "ab" * 32, certificate,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "labels", "names"),
    [("softmax", ("a", "b\t", 3.0), ["a", "b ", "3"]), ("squared", None, ["0", "1", "2"]),
     ("logistic", ("u", "v", "w"), ["u", "v", "w"])],
)  # fmt: skip
def test_scores_and_comparison(tmp_path: Path, loss: str, labels: Any, names: list[str]) -> None:
    model = model_of(loss, labels)
    margins = X[:, [0, 2]] @ WEIGHTS + [0.1, 0.2, 0.3]
    assert np.allclose(model.margins(X), margins) and output_names(model) == names
    write_scores(model, X, tmp_path / "m.npy")
    assert np.allclose(np.load(tmp_path / "m.npy"), margins)
    write_scores(model, X, tmp_path / "m.tsv", "mean", block_rows=16)
    head, *lines = (tmp_path / "m.tsv").read_text().splitlines()
    assert head.split("\t") == [f"mean_{name}" for name in names] and len(lines) == 40
    means = np.array([line.split("\t") for line in lines], float)
    expected = {
        "softmax": np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True),
        "squared": margins,
        "logistic": 1.0 / (1.0 + np.exp(-margins)),
    }[loss]
    assert np.allclose(means, expected)
    kinds = {"softmax": ["predicted", "margin", "probability"], "squared": ["margin"]}
    assert [s.kind for s in table_scores(model)] == kinds.get(loss, ["margin", "probability"])
    codes = margins.argmax(axis=1)
    target: Any = margins + 1.0 if loss == "squared" else (margins > 0.0).astype(int)
    if loss == "softmax":
        target = np.array(["a", "b\t", "c"])[codes]
        with pytest.raises(InputError, match="expected the labels of the model"):
            encoded_target(model, target, "y")
        model = model_of(loss, ("a", "b\t", "c"))
    collected = compared(model, "y", 1 << 20)
    collected.add(target, margins, None, np.arange(40))
    line = collected.line()
    assert line is not None and line.startswith(
        "MSE 1.0000" if loss == "squared" else "error 0.0000"
    )
    with pytest.raises(InputError, match="y: expected"):
        encoded_target(model, np.zeros((40, 2)), "y")
