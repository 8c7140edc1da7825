"""Families that users write: the class that they implement, and its adapter to :class:`Family`.

``contract`` the methods that a generator implements
``forms``    stores rows in the form that a generator asks for
``family``   adapts a generator to :class:`fcl.features.base.Family`
``columns``, ``pricing``  make columns and prices from what the generator returns
``checked``  validates the return values of a generator
``trial``    tests whether a generator keeps its contract
``binding``  binds a generator to a data set
"""

from fcl.features.generator.binding import bind, same_features, without_probes, without_scales
from fcl.features.generator.family import GeneratedFamily

__all__ = ["GeneratedFamily", "bind", "same_features", "without_probes", "without_scales"]
