"""``fcl predict`` with models of several outputs: contributions to the margins of one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import fcl
from tests.cli.conftest import ok, save

X = np.round(64.0 * np.random.default_rng(5).normal(size=(90, 4))) / 64.0  # exact as float32
NUMBERS = X[:, :3] + 0.5 * X[:, [1, 2, 0]]
CASES: dict[str, tuple[Any, str]] = {
    "softmax": (np.array(["a", "b", "c"])[NUMBERS.argmax(axis=1)], "c"),
    "squared": (NUMBERS, "2"),
    "logistic": ((NUMBERS > 0.2).astype(int), "2"),
}


@pytest.mark.parametrize("loss", CASES)
@pytest.mark.parametrize("form", ["arrays", "table"])
def test_contributions_add_up_to_the_margins_of_one_output(
    tmp_path: Path, run: Callable[..., Result], loss: str, form: str
) -> None:
    target, output = CASES[loss]
    path, out, rows = tmp_path / "m.fcl", tmp_path / "e.tsv", save(tmp_path / "d", X=X)
    model = fcl.train(fcl.open_data(X, y=target), "columns", C=1.0, loss=loss, tol=1e-2).model
    model.save(path)
    if form == "table":
        rows = tmp_path / "t.csv"
        np.savetxt(rows, X, "%.12g", ",", header="c0,c1,c2,c3", comments="")
    ok(run("predict", path, rows, "--explain", 2, "--explain-output", output, "--out", out))
    head, *lines = (line.split("\t") for line in out.read_text().splitlines())
    margin = head.index("margin" if form == "arrays" else f"margin_{output}")
    at = head.index("intercept")
    assert head[at:] == [
        "intercept", "feature_1", "contribution_1", "feature_2", "contribution_2", "others",
    ]  # fmt: skip
    found = np.array(
        [[float(line[i]) for i in (margin, at, at + 2, at + 4, at + 5)] for line in lines]
    )
    expected = model.explain(X, top=2, output=model.labels[2] if model.labels else 2)
    np.testing.assert_allclose(found[:, 0], model.margins(X)[:, 2], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[:, 1:].sum(axis=1), found[:, 0], atol=1e-12)
    np.testing.assert_allclose(found[:, 2:4], expected.contributions, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_predicted_labels(
    tmp_path: Path, run: Callable[..., Result], labels: tuple[str, ...]
) -> None:
    y = np.array(labels)[NUMBERS[:, : len(labels)].argmax(axis=1)]
    loss = "logistic" if len(labels) == 2 else "softmax"
    model = fcl.train(fcl.open_data(X, y=y), "columns", C=1.0, loss=loss, tol=1e-2).model
    path, out, rows = tmp_path / "m.fcl", tmp_path / "p.tsv", save(tmp_path / "d", X=X)
    model.save(path)
    ok(run("predict", path, rows, "--predicted", "--out", out))
    assert out.read_text().split() == ["predicted", *model.predict(X).tolist()]
    table = tmp_path / "t.csv"
    np.savetxt(table, X, "%.12g", ",", header="c0,c1,c2,c3", comments="")
    ok(run("predict", path, table, "--predicted", "--out", out, "--overwrite"))
    head, *lines = (line.split("\t") for line in out.read_text().splitlines())
    assert [line[head.index("predicted")] for line in lines] == model.predict(X).tolist()
    refused = run("predict", path, rows, "--predicted", "--out", tmp_path / "p.npy")
    assert refused.exit_code == 2 and "labels are text" in refused.stderr
    assert not (tmp_path / "p.npy").exists()


def test_numbers_have_no_labels(tmp_path: Path, run: Callable[..., Result]) -> None:
    path, rows = tmp_path / "m.fcl", save(tmp_path / "d", X=X)
    data = fcl.open_data(X, y=NUMBERS[:, 0])
    fcl.train(data, "columns", C=1.0, loss="squared", tol=1e-2).model.save(path)
    refused = run("predict", path, rows, "--predicted", "--out", tmp_path / "p.tsv")
    assert refused.exit_code == 2 and "expected a model of classes" in refused.stderr
