"""Tests that authors run on their extensions.

``generator``  tests a feature class against the contract of :class:`fcl.features.Generator`
"""

from fcl.testing.generator import Check, GeneratorReport, check_generator

__all__ = ["Check", "GeneratorReport", "check_generator"]
