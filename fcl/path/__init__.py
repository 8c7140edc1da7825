"""Models at many values of C, and the choice of one of them by held-out rows."""

from fcl.path.result import PathPoint, PathResult, Scores
from fcl.path.rules import PathStop
from fcl.path.train import train_path

__all__ = ["PathPoint", "PathResult", "PathStop", "Scores", "train_path"]
