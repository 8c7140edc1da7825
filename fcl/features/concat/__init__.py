"""Several families over the same rows, combined into one, each with its own penalty factor.

    penalty(w) = sum over members m of f_m penalty_m(weights of m)

The ids of a member follow the ids of the members before it, and so do its parts for pricing. Two members
may contain the same column: of equal columns the optimum uses only the one with the smallest factor (any
of them if the factors are equal). That column is also admitted first, because candidates are ranked by
|g_j| / f_j; the others are then skipped as duplicates.

``family``   ids, rows and margins
``members``  stores the records of several families in one, and makes columns and prices with the members
"""

from fcl.features.concat.family import ConcatFamily

__all__ = ["ConcatFamily"]
