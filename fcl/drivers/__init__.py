"""Drivers run the steps of fcl.solve: inline, in one process and in lock-step."""
