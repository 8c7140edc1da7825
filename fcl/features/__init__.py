"""Families of features.

``base``       what a family owes the solver
``generator``  the contract of a family that its user writes, and what makes a family of it
``registry``   families by name
``spec``       families by their text, not yet bound to rows
``concat``     several families as one
``windows``    what families over windows of letters share
``kmers``, ``bag``, ``plain``, ``products``, ``fourier``  the families that come with fcl
"""

from __future__ import annotations

from fcl.features.bag import Bag, BagFamily
from fcl.features.base import Family
from fcl.features.concat import ConcatFamily
from fcl.features.fourier import Fourier
from fcl.features.generator.contract import Generator
from fcl.features.kmers import KmerFamily, Kmers
from fcl.features.plain import Columns
from fcl.features.products import Products
from fcl.features.spec import (
    Concat,
    Spec,
    bind_features,
    family_from_config,
    is_spec,
    parse_features,
    spell_features,
)

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
    "family_from_config",
    "is_spec",
    "parse_features",
    "spell_features",
]
