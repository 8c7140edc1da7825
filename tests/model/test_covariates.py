"""Covariates in the model file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fcl.errors import ModelFileError
from fcl.model import Model, load_model
from fcl.model.covariates import CovariateTerm

TERMS = (CovariateTerm("obs/sex", ("f", "m"), (0.5,)), CovariateTerm("pc", None, (1.0, -1 / 3)))


def test_a_round_trip_and_the_version(tmp_path: Path, make_model: Callable[..., Model]) -> None:
    """Files of models without covariates stay as they were, and others need a reader that knows them."""
    make_model(covariates=TERMS).save(tmp_path / "m.fcl")
    make_model().save(tmp_path / "plain.fcl")
    assert load_model(tmp_path / "m.fcl").covariates == TERMS
    assert load_model(tmp_path / "plain.fcl").covariates == ()
    assert b'"version":2' in (tmp_path / "m.fcl").read_bytes().replace(b" ", b"")
    plain = (tmp_path / "plain.fcl").read_bytes().replace(b" ", b"")
    assert b'"version":1' in plain and b"covariates" not in plain.replace(b'"covariates":null', b"")


@pytest.mark.parametrize("levels", [("m", "f"), ("f",), ("f", "m", "x"), ("f", "f")])
def test_levels_that_do_not_fit(
    tmp_path: Path, make_model: Callable[..., Model], levels: Any
) -> None:
    make_model(covariates=[CovariateTerm("obs/sex", levels, (0.5,))]).save(tmp_path / "m.fcl")
    with pytest.raises(ModelFileError, match="covariate obs/sex: expected sorted levels"):
        load_model(tmp_path / "m.fcl")
