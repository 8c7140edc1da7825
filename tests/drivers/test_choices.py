"""Each pass says what the trainer chose since the one before: a sample of rows, and models."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jobs import JOBS

MODELS = re.compile(r"(raised )?(local problem itself|whole Hessian|sampled Hessian) [1-9]\d*")


def history(name: str, **options: Any) -> list[dict[str, Any]]:
    return list(JOBS[name].train(**options).model.history)


@pytest.mark.parametrize("options", [{}, {"driver": "processes", "writers": 2}])
def test_samples_and_models(options: dict[str, Any]) -> None:
    first, *passes = history("kmers-sample", **options)
    assert first["sample"] == first["models"] == ""
    assert [entry["sample"] for entry in passes[:2]] == ["first", "larger"]  # then it has all rows
    told = [one for entry in passes for one in entry["models"].split("; ") if one]
    assert all(map(MODELS.fullmatch, told))
    assert told[0].startswith("sampled Hessian") and told[-1].startswith("whole Hessian")


def test_a_small_clipped_problem_is_minimised_itself() -> None:
    for entry in history("columns-hinge")[1:]:
        assert (entry["sample"], entry["models"]) == ("", "local problem itself 1")


def test_raised_curvatures() -> None:
    """Steps are cut where the curvature of the squared hinge jumps."""
    models = [entry["models"] for entry in history("sparse-strong", max_passes=4)]
    assert any("raised sampled Hessian" in text for text in models)
