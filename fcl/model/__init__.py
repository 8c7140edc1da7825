"""The trained model: certificate, file format (docs/reference/model_file.md), prediction, metrics."""

from __future__ import annotations

from fcl.model.certificate import Certificate
from fcl.model.formats import load_model
from fcl.model.frames import FeatureRow
from fcl.model.history import History
from fcl.model.model import Model
from fcl.objective.metrics import average_precision

__all__ = [
    "Certificate",
    "FeatureRow",
    "History",
    "Model",
    "average_precision",
    "load_model",
]
