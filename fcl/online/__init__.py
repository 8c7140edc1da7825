"""Online learners: they read rows once or a few times, one after another.

:mod:`fcl.online.base` has their contract, and one module each the methods.
"""

from __future__ import annotations

from fcl.online.base import Learner
from fcl.online.methods import METHODS, make_learner
from fcl.online.options import OnlineOptions

__all__ = ["METHODS", "Learner", "OnlineOptions", "make_learner"]
