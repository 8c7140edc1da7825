"""Tests that authors run against what they have written.

``generator``  a class of features against the contract of :class:`fcl.features.Generator`
"""

from fcl.testing.generator import Check, Report, check_generator

__all__ = ["Check", "Report", "check_generator"]
