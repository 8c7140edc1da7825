"""Families of features.

``base``       what a family owes the solver
``generator``  the contract of a family that its user writes
``generated``  what makes the one of the other
``registry``   families by name
``kmers``, ``plain``, ``fourier``  the families that come with fcl
"""

from __future__ import annotations

from fcl.features.base import Family
from fcl.features.fourier import Fourier
from fcl.features.generator import Generator
from fcl.features.kmers import KmerFamily, Kmers
from fcl.features.plain import Columns
from fcl.features.registry import (
    Spec,
    bind_features,
    family_from_config,
    parse_features,
    spell_features,
)

__all__ = [
    "Columns",
    "Family",
    "Fourier",
    "Generator",
    "KmerFamily",
    "Kmers",
    "Spec",
    "bind_features",
    "family_from_config",
    "parse_features",
    "spell_features",
]
