"""Estimators for scikit-learn: :class:`FCLClassifier` and :class:`FCLRegressor`.

:class:`FCLClassifierCV` and :class:`FCLRegressorCV` choose C by cross-validation.

They wrap ``fcl.train`` in the interface of scikit-learn.
"""

from fcl.estimators.base import EstimatorConvergenceWarning
from fcl.estimators.classifier import FCLClassifier
from fcl.estimators.regressor import FCLRegressor
from fcl.estimators.search import FCLClassifierCV, FCLRegressorCV

__all__ = [
    "EstimatorConvergenceWarning",
    "FCLClassifier",
    "FCLClassifierCV",
    "FCLRegressor",
    "FCLRegressorCV",
]
