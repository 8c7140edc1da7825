"""What makes a family of the solver's out of any generator.

``forms``    how rows are kept for it
``family``   the family: columns, margins and prices of whatever the generator gives
``checked``  its columns, looked at
"""

from fcl.features.generated.family import GeneratedFamily, bind

__all__ = ["GeneratedFamily", "bind"]
