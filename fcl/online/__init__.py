"""Online learners, and the projections that they need."""

from fcl.online.project import project_l1_ball, project_simplex

__all__ = ["project_l1_ball", "project_simplex"]
