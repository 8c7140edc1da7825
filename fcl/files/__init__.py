"""Files that fcl writes and reads again: models, checkpoints, states of learners, and tables of paths."""
