"""Several families over the same rows, one behind the other, each with a factor in the penalty.

    penalty(w) = sum over members m of f_m penalty_m(w of m)

The ids of a member follow those of the members before it, and so do its parts for pricing. A column that
two members have is legal: of equal columns the optimum uses the one of the smallest factor alone (any of
them where factors are equal). It is also the first to be admitted, since candidates are ranked by
|g_j| / f_j, and the dearer one is then left out as an equal column that could do no more.

``family``   the family: ids, margins, and who makes columns and prices
``rows``     records side by side
``columns``, ``pricing``  each by its member
"""

from fcl.features.concat.family import ConcatFamily

__all__ = ["ConcatFamily"]
