"""Products of up to a given number of columns.

``numbering``  converts between ids and tuples of columns
``family``     the family: columns and margins
``pricing``    prices: all pairs, or a search in the tree of products
"""

from fcl.features.products.family import UNITS, Products

__all__ = ["UNITS", "Products"]
