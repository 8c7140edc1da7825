"""Online learners: they read rows once or a few times, one after another.

:mod:`fcl.online.base` has their contract, and one module each the methods; :mod:`fcl.online.project` has
the projections onto the simplex and the L1 ball, which are useful alone.
"""

from __future__ import annotations

from fcl.online.base import Learner
from fcl.online.methods import METHODS, make_learner
from fcl.online.project import project_l1_ball, project_simplex
from fcl.options import OnlineOptions

__all__ = [
    "METHODS",
    "Learner",
    "OnlineOptions",
    "make_learner",
    "project_l1_ball",
    "project_simplex",
]
