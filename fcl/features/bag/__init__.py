"""k-mers anywhere in the window.

``family``   options and ids
``columns``  columns and margins
``pricing``  prices from a table of residuals by code
``search``   prices of the presence of patterns with wildcards, by a search
"""

from fcl.features.bag.family import Bag, BagFamily

__all__ = ["Bag", "BagFamily"]
