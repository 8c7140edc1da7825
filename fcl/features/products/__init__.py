"""Products of up to so many columns.

``numbering``  ids and columns of products
``blocks``     blocks as the kernels take them
``family``     the family: columns and margins
``pricing``    prices: all pairs, or a search in the tree of products
"""

from fcl.features.products.family import Products

__all__ = ["Products"]
