"""Families of features.

``base``       what a family owes the solver
``generator``  the contract of a family that its user writes, and what makes a family of it
``check``      tests a user's class against the contract
``registry``   families by name
``concat``     several families as one
``kmers``, ``bag``, ``plain``, ``products``, ``fourier``  the families that come with fcl
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fcl.features.bag import Bag, BagFamily
from fcl.features.base import Family
from fcl.features.concat import Concat, ConcatFamily
from fcl.features.fourier import Fourier
from fcl.features.generator.contract import Generator
from fcl.features.kmers import KmerFamily, Kmers
from fcl.features.plain import Columns
from fcl.features.products import Products
from fcl.features.registry import (
    Spec,
    bind_features,
    family_from_config,
    is_spec,
    parse_features,
    spell_features,
)

if TYPE_CHECKING:
    from fcl.features.check import check_generator

__all__ = [
    "Bag",
    "BagFamily",
    "Columns",
    "Concat",
    "ConcatFamily",
    "Family",
    "Fourier",
    "Generator",
    "KmerFamily",
    "Kmers",
    "Products",
    "Spec",
    "bind_features",
    "check_generator",
    "family_from_config",
    "is_spec",
    "parse_features",
    "spell_features",
]


def __getattr__(name: str) -> Any:
    """What authors of a class call: nobody else is to wait for its imports."""
    if name == "check_generator":
        from fcl.features.check import check_generator

        return check_generator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
