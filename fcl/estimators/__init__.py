"""Estimators for scikit-learn: :class:`FCLClassifier` and :class:`FCLRegressor`.

:class:`FCLClassifierCV` and :class:`FCLRegressorCV` choose C by cross-validation.
:class:`FCLOnlineClassifier` and :class:`FCLOnlineRegressor` learn row by row.
:class:`StagewiseClassifier` and :class:`StagewiseRegressor` fit ridge models over blocks of features.

They wrap ``fcl.train`` in the interface of scikit-learn.
"""

from fcl.estimators.base import EstimatorConvergenceWarning
from fcl.estimators.classifier import FCLClassifier
from fcl.estimators.online import FCLOnlineClassifier, FCLOnlineRegressor
from fcl.estimators.regressor import FCLRegressor
from fcl.estimators.search import FCLClassifierCV, FCLRegressorCV
from fcl.estimators.stagewise import StagewiseClassifier, StagewiseRegressor

__all__ = [
    "EstimatorConvergenceWarning",
    "FCLClassifier",
    "FCLClassifierCV",
    "FCLOnlineClassifier",
    "FCLOnlineRegressor",
    "FCLRegressor",
    "FCLRegressorCV",
    "StagewiseClassifier",
    "StagewiseRegressor",
]
