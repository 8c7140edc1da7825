"""The one door to the drivers: ``train`` and ``plan_training``, whichever driver does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fcl.drivers import inline
from fcl.drivers.plan import Plan

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.features import Kmers
    from fcl.model.checkpoint import Checkpoint

__all__ = ["TrainResult", "plan_training", "train"]


@dataclass(frozen=True)
class TrainResult(inline.TrainResult):
    """A model, and how training ended."""

    checkpoint_failed: bool = False  #: whether the last checkpoint could not be written


def plan_training(
    data: DataSet,
    features: Kmers | str,
    *,
    driver: str = "inline",
    writers: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 300.0,
    resume: Checkpoint | None = None,
    share_cores: bool = True,
    shared_files: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Plan:
    """The memory plan of :func:`train` with the same arguments; reads no rows."""
    _only_inline(driver)
    return inline.plan_training(data, features, **options)


def train(
    data: DataSet,
    features: Kmers | str,
    *,
    driver: str = "inline",
    writers: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 300.0,
    resume: Checkpoint | None = None,
    should_checkpoint: Callable[[], bool] | None = None,
    share_cores: bool = True,
    shared_files: str | os.PathLike[str] | None = None,
    command: Mapping[str, Any] | None = None,
    **options: Any,
) -> TrainResult:
    """As :func:`fcl.drivers.inline.train`."""
    _only_inline(driver)
    if checkpoint is not None or resume is not None:
        raise NotImplementedError("checkpoints are not written yet; switch them off")
    return TrainResult(**vars(inline.train(data, features, **options)))


def _only_inline(driver: str) -> None:
    if driver != "inline":
        raise NotImplementedError(f"driver {driver!r} is not there yet; choose 'inline'")
