"""fcl: L1-regularised learning over feature families far too large to store.

The public names are loaded on first use (PEP 562): ``import fcl`` imports neither numpy nor
numba nor any file format, so that commands and scripts start at once.

    data = fcl.open_data("train.zarr")
    result = fcl.train(data, "kmers:d=8", C=0.1)
    result.model.save("model.fcl")
    margins = fcl.load_model("model.fcl").margins(fcl.open_data("test.zarr", y=None))

In the manner of scikit-learn: ``FCLClassifier`` and ``FCLRegressor``.
"""

from __future__ import annotations

from fcl import run_as_module as _first  # noqa: F401  (before other modules are looked up)

# isort: split
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fcl.config import get_config as get_config
    from fcl.config import set_config as set_config
    from fcl.data import DataSet as DataSet
    from fcl.data import open_data as open_data
    from fcl.drivers.certify import certify as certify
    from fcl.drivers.online.train import OnlineResult as OnlineResult
    from fcl.drivers.online.train import train_online as train_online
    from fcl.drivers.optimality import Optimality as Optimality
    from fcl.drivers.result import TrainResult as TrainResult
    from fcl.drivers.train import plan_training as plan_training
    from fcl.drivers.train import train as train
    from fcl.errors import BudgetError as BudgetError
    from fcl.errors import ConvergenceWarning as ConvergenceWarning
    from fcl.errors import FclError as FclError
    from fcl.errors import GeneratorError as GeneratorError
    from fcl.errors import InputError as InputError
    from fcl.errors import ModelFileError as ModelFileError
    from fcl.errors import ScaleWarning as ScaleWarning
    from fcl.errors import StopTraining as StopTraining
    from fcl.errors import StoreError as StoreError
    from fcl.estimators import FCLClassifier as FCLClassifier
    from fcl.estimators import FCLClassifierCV as FCLClassifierCV
    from fcl.estimators import FCLOnlineClassifier as FCLOnlineClassifier
    from fcl.estimators import FCLOnlineRegressor as FCLOnlineRegressor
    from fcl.estimators import FCLRegressor as FCLRegressor
    from fcl.estimators import FCLRegressorCV as FCLRegressorCV
    from fcl.estimators import StagewiseClassifier as StagewiseClassifier
    from fcl.estimators import StagewiseRegressor as StagewiseRegressor
    from fcl.features import Bag as Bag
    from fcl.features import Columns as Columns
    from fcl.features import Concat as Concat
    from fcl.features import Fourier as Fourier
    from fcl.features import Generator as Generator
    from fcl.features import Hinges as Hinges
    from fcl.features import Kmers as Kmers
    from fcl.features import Products as Products
    from fcl.features import parse_features as parse_features
    from fcl.model import Certificate as Certificate
    from fcl.model import Model as Model
    from fcl.model import load_model as load_model
    from fcl.objective.metrics import average_precision as average_precision
    from fcl.options.choices import Dask as Dask
    from fcl.options.choices import ElasticNet as ElasticNet
    from fcl.options.choices import GroupNorm as GroupNorm
    from fcl.options.choices import Processes as Processes
    from fcl.path.result import PathResult as PathResult
    from fcl.path.train import train_path as train_path
    from fcl.report.make import Report as Report
    from fcl.report.make import make_report as make_report
    from fcl.store import locate as locate
    from fcl.version import __version__ as __version__

# module -> the public names that it offers
_NAMES = {
    "fcl.version": ("__version__",),
    "fcl.config": ("get_config", "set_config"),
    "fcl.data": ("DataSet", "open_data"),
    "fcl.features": (
        "Bag",
        "Columns",
        "Concat",
        "Fourier",
        "Generator",
        "Hinges",
        "Kmers",
        "Products",
        "parse_features",
    ),
    "fcl.drivers.certify": ("Optimality", "certify"),
    "fcl.drivers.online.train": ("OnlineResult", "train_online"),
    "fcl.drivers.train": ("TrainResult", "plan_training", "train"),
    "fcl.model": ("Certificate", "Model", "load_model"),
    "fcl.options.choices": ("Dask", "ElasticNet", "GroupNorm", "Processes"),
    "fcl.path.result": ("PathResult",),
    "fcl.path.train": ("train_path",),
    "fcl.objective.metrics": ("average_precision",),
    "fcl.estimators": (
        "FCLClassifier",
        "FCLClassifierCV",
        "FCLOnlineClassifier",
        "FCLOnlineRegressor",
        "FCLRegressor",
        "FCLRegressorCV",
        "StagewiseClassifier",
        "StagewiseRegressor",
    ),
    "fcl.errors": (
        "BudgetError",
        "ConvergenceWarning",
        "FclError",
        "GeneratorError",
        "InputError",
        "ModelFileError",
        "ScaleWarning",
        "StopTraining",
        "StoreError",
    ),
    "fcl.report.make": ("Report", "make_report"),
    "fcl.store": ("locate",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605


class _Package(ModuleType):
    """This module; a class of its own keeps ``__getattr__`` out of ``help(fcl)``."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'fcl' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value

    def __dir__(self) -> list[str]:
        return sorted(set(globals()) | set(_HOME))


sys.modules[__name__].__class__ = _Package
