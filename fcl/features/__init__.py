"""Families of features.

``base``       the interface between families and the solver
``prices``     pricing as a map-reduce over row blocks
``candidates``  collects the candidates of a pass from sums
``generator``  the interface for families that users write, and its adapter to ``base``
``registry``   looks up families by name
``spec``       families written as text, not yet bound to rows
``concat``     combines several families into one
``hashed``     a family of any size whose features share 2^bits weights
``centred``    dense columns of large mean, minus a constant near it
``standardized``  features divided by their standard deviations
``windows``    base class of the families over windows of letters
``kmers``, ``bag``, ``plain``, ``products``, ``fourier``, ``hinges``  the built-in families
"""

from __future__ import annotations

from fcl.features.bag import Bag, BagFamily
from fcl.features.base import Family
from fcl.features.concat import ConcatFamily
from fcl.features.fourier import Fourier
from fcl.features.generator.contract import Generator
from fcl.features.hinges import Hinges
from fcl.features.kmers import KmerFamily, Kmers
from fcl.features.plain import Columns
from fcl.features.products import Products
from fcl.features.spec import (
    Concat,
    Spec,
    bind_features,
    family_from_config,
    is_spec,
    kept_features,
    like_bound,
    parse_features,
    spell_features,
    undivided,
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
    "Hinges",
    "KmerFamily",
    "Kmers",
    "Products",
    "Spec",
    "bind_features",
    "family_from_config",
    "is_spec",
    "kept_features",
    "like_bound",
    "parse_features",
    "spell_features",
    "undivided",
]
