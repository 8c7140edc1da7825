"""``fcl predict`` with models of several outputs: contributions to the margins of one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import fcl
from fcl import open_data
from tests.cli.conftest import ok

Run = Callable[..., Result]
X = np.round(64.0 * np.random.default_rng(5).normal(size=(90, 4))) / 64.0  # exact as float32
NUMBERS = X[:, :3] + 0.5 * X[:, [1, 2, 0]]


def table(path: Path) -> tuple[list[str], list[list[str]]]:
    head, *lines = (line.split("\t") for line in path.read_text().splitlines())
    return head, lines


def trained(path: Path, loss: str, target: Any, **options: Any) -> fcl.Model:
    data = open_data(X, y=target)
    model = fcl.train(data, "columns", C=1.0, loss=loss, tol=1e-4, **options).model
    model.save(path)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d" / "X.npy", X)
    lines = [",".join(f"c{j}" for j in range(4)), *(",".join(map(str, row)) for row in X.tolist())]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize(
    ("loss", "target", "options", "output", "label"),
    [
        ("softmax", np.array(["a", "b", "c"])[NUMBERS.argmax(axis=1)], {}, "c", "c"),
        ("softmax", 10 * NUMBERS.argmax(axis=1), {"group": True}, "20", 20),
        ("squared", NUMBERS, {"group": True}, "2", 2),
        ("logistic", (NUMBERS > 0.2).astype(int), {}, "2", 2),
    ],
    ids=["softmax", "group", "targets", "labels"],
)
def test_contributions_add_up_to_the_margins_of_one_output(
    folder: Path, run: Run, loss: str, target: Any, options: Any, output: str, label: Any
) -> None:
    model = trained(folder / "m.fcl", loss, target, **options)
    whole = np.zeros((4, 3))
    whole[model.ids] = model.weights
    margins = X @ whole[:, 2] + model.intercepts[2]
    for data in ("d", "t.csv"):
        out = folder / "e.tsv"
        given = ("--explain", 2, "--explain-output", output, "--out", out, "--overwrite")
        ok(run("predict", folder / "m.fcl", folder / data, *given))
        head, lines = table(out)
        margin = head.index("margin" if data == "d" else f"margin_{output}")
        at = head.index("intercept")
        assert head[at:] == [
            "intercept", "feature_1", "contribution_1", "feature_2", "contribution_2", "others",
        ]  # fmt: skip
        numbers = np.array(
            [[float(line[i]) for i in (margin, at, at + 2, at + 4, at + 5)] for line in lines]
        )
        np.testing.assert_allclose(numbers[:, 0], margins, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(numbers[:, 1:].sum(axis=1), margins, atol=1e-12)
        parts = np.abs(X * whole[:, 2])
        np.testing.assert_allclose(np.abs(numbers[:, 2]), parts.max(axis=1), rtol=1e-12)
    explained = model.explain(X, top=2, output=label)
    np.testing.assert_allclose(explained.margins, margins, rtol=1e-12, atol=1e-12)
