"""The section of the path: its points, its choices, and folders of strangers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fcl.files.path import TABLE_NAME, write_table
from fcl.report.contract import Context, Figure, Table
from fcl.report.sections import path as section_of_path
from tests.report.conftest import Case

GRID = [0.01, 0.1, 1.0]
RESULT: dict[str, Any] = {
    "metric": "auprc",
    "score": [0.5, 0.8, 0.9],
    "se": [None, 0.15, 0.02],
    "error_from": "3 folds",
    "best": 2,
    "one_se": 1,
    "select": "1se",
    "chosen": 1,
    "outer": {"metric": "auprc", "mean": 0.75, "se": 0.025, "folds": []},
}


def points(**more: Any) -> list[dict[str, Any]]:
    rows = [{"C": C, "active": 3 * i, "objective": 9.0 - i} for i, C in enumerate(GRID)]
    same = {"gap": 1e-4, "seconds": 0.5, "passes": 3, "reason": "tolerance"}
    return [row | same | {"score": None, "se": None} | more for row in rows]


@pytest.fixture
def context(kmers: Case, tmp_path: Path) -> Context:
    (tmp_path / "m.fcl.path").mkdir()
    return Context(replace(kmers.model, C=0.1), tmp_path / "m.fcl", "0" * 64)


def write(context: Context, rows: list[dict[str, Any]], **more: Any) -> None:
    write_table(Path(f"{context.path}.path", TABLE_NAME), {"points": rows, "grid": GRID, **more})


def shown(
    context: Context, rows: list[dict[str, Any]] | None = None, **changes: Any
) -> tuple[str, Figure, Table]:
    """The lead, the figure and the table of a path with a result."""
    write(context, rows or points(), result=RESULT | changes)
    section = section_of_path.section(context)
    assert section is not None
    figure, table = section.blocks
    assert isinstance(figure, Figure) and isinstance(table, Table)
    return section.lead, figure, table


POINT = "The model is point 2 of 3, by increasing C."


@pytest.mark.slow
def test_points_and_choices(context: Context) -> None:
    lead, figure, table = shown(context)
    assert lead == (
        f"{POINT} It has the smallest C within one standard error of the best score. Standard errors "
        "come from 3 folds. Nested cross-validation of the whole procedure: AUPRC 0.75, standard error "
        "0.025."
    )
    assert table.head[2:4] == ["AUPRC", "se"] and table.marked == 1
    assert list(table.rows[1]) == [2, 0.1, 0.8, 0.15, 3.0, 1e-4, 8.0, 0.5]
    assert math.isnan(table.rows[0][3])
    assert "one standard error" in figure.panels[0] and "AUPRC" in figure.panels[0]
    assert "best," not in figure.panels[0]
    assert "best," in shown(context, best=1)[1].panels[0]  # both rules choose one point


@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_points_far_below_any_absolute_tolerance(context: Context, chosen: int) -> None:
    """Columns of large values have paths of tiny C, such as 1e-13, where points must not be confused."""
    rows = [row | {"C": row["C"] * 1e-12} for row in points()]
    one = replace(context, predictor=replace(context.model, C=GRID[chosen] * 1e-12 * (1.0 + 1e-15)))
    lead, *_ = shown(one, rows, chosen=chosen, select="best")
    assert lead.startswith(
        f"The model is point {chosen + 1} of 3, by increasing C. It has the best score."
    )


def test_names_of_scores_have_no_underscores(context: Context) -> None:
    outer = {"metric": "log_loss", "mean": 0.25, "se": None, "folds": []}
    lead, figure, table = shown(context, metric="log_loss", outer=outer)
    assert lead.endswith("whole procedure: LOG LOSS 0.25.")
    assert table.head[2] == "LOG LOSS" and "LOG LOSS" in figure.panels[0]


def test_a_path_without_scores(context: Context) -> None:
    write(context, points())
    section = section_of_path.section(context)
    assert section is not None and section.lead == POINT
    unknown: dict[str, Any] = {"score": [None] * 3, "se": [None] * 3, "error_from": ""}
    lead, figure, table = shown(context, **unknown, chosen=1, select="best", outer=None)
    assert lead == POINT
    assert figure.caption == "Number of features with a weight." and "AUPRC" not in figure.panels[0]
    assert table.head == ["point", "C", "features", "gap", "objective", "seconds"]
    assert list(table.rows[1]) == [2, 0.1, 3.0, 1e-4, 8.0, 0.5]


def test_a_path_without_standard_errors(context: Context) -> None:
    _, figure, table = shown(context, se=[None] * 3, error_from="")
    assert "standard error" not in figure.caption and "se" not in table.head
    assert table.head[2] == "AUPRC" and table.rows[1][2] == 0.8


def test_folders_that_do_not_belong_to_the_model(context: Context) -> None:
    folder = Path(f"{context.path}.path")
    assert section_of_path.section(context) is None
    write(context, points(), result=RESULT)
    other = replace(context, predictor=replace(context.model, C=0.3))
    assert section_of_path.section(other) is None
    (folder / TABLE_NAME).write_text("{")
    section = section_of_path.section(context)
    assert section is not None and "cannot be read" in section.lead and not section.blocks


@pytest.mark.parametrize("value", [None, "<b>", [1], {"a": 1}, 1e300, -1, True, float("nan")])
def test_values_of_strangers(context: Context, value: Any) -> None:
    damaged = dict.fromkeys(RESULT, value)
    write(context, points(active=value, objective=value, gap=value), result=damaged)
    assert section_of_path.section(context) is not None
    write(context, points(), result=RESULT | {"score": [value] * 3, "se": [value] * 3})
    assert section_of_path.section(context) is not None
    write(context, points(), result=value)
    assert section_of_path.section(context) is not None
