"""The learners with all options by name, as jobs, models and judges have them.

The public functions take drivers, penalties and methods as texts or objects; commands call these.
"""

from __future__ import annotations

from typing import Any

from fcl.drivers.certify import run_certify
from fcl.drivers.online.train import OnlineResult, run_online
from fcl.drivers.optimality import Optimality
from fcl.drivers.plan import Plan
from fcl.drivers.result import TrainResult
from fcl.drivers.train import planned_job, run_training
from fcl.path.result import PathResult
from fcl.path.train import run_path


def train(data: Any, features: Any, **options: Any) -> TrainResult:
    """fcl.train; also without its warnings (warn=False)."""
    return run_training(data=data, features=features, **options)


def plan_training(data: Any, features: Any, **options: Any) -> Plan:
    """fcl.plan_training."""
    return planned_job(data, features, **options).plan


def train_path(data: Any, features: Any, **options: Any) -> PathResult:
    """fcl.train_path; also without its warnings (warn=False)."""
    return run_path(data=data, features=features, **options)


def train_online(data: Any, features: Any = None, **options: Any) -> OnlineResult:
    """fcl.train_online."""
    return run_online(data=data, features=features, **options)


def certify(model: Any, data: Any, C: Any = None, **options: Any) -> Optimality:
    """fcl.certify."""
    return run_certify(model=model, data=data, C=C, **options)
