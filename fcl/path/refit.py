"""Refit the chosen features without shrinkage."""

from __future__ import annotations

from collections.abc import Callable

from fcl.drivers.job import Job
from fcl.model.model import Model
from fcl.path.result import PathPoint


def refit_chosen(point: PathPoint, make_job: Callable[[], Job]) -> Model:
    """To be written."""
    raise NotImplementedError
