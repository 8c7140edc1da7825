"""What makes a family of the solver's out of any generator.

``forms``    how rows are kept for it
``family``   the family: margins, and who makes columns and prices
``columns``, ``pricing``  from whatever the generator gives
``checked``  which is looked at before it is used
``binding``  from a generator and a data set to a family
"""

from fcl.features.generated.binding import bind, same_features, without_probes
from fcl.features.generated.family import GeneratedFamily

__all__ = ["GeneratedFamily", "bind", "same_features", "without_probes"]
