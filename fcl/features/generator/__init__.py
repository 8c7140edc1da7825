"""Families that their users write: the contract, and what makes a family of the solver's of it.

``contract`` what a generator has to do
``forms``    how rows are kept for it
``family``   the family: margins, and who makes columns and prices
``columns``, ``pricing``  from whatever the generator gives
``checked``  validates what it returns before use
``trial``    tries whether it keeps its promises
``binding``  from a generator and a data set to a family
"""

from fcl.features.generator.binding import bind, same_features, without_probes
from fcl.features.generator.family import GeneratedFamily

__all__ = ["GeneratedFamily", "bind", "same_features", "without_probes"]
