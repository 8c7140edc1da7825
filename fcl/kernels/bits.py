"""Bit operations that numba does not provide, and a hash."""

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from fcl.kernels.compilation import kernel

if numba.config.DISABLE_JIT:  # kernels are then plain Python

    def trailing_zeros(word):
        """Position of the lowest set bit of a uint64; 64 for 0."""
        word = int(word)
        return (word & -word).bit_length() - 1 if word else 64

    def without_lowest(word):
        """A uint64 without its lowest set bit; 0 for 0."""
        word = int(word)
        return np.uint64(word & (word - 1) if word else 0)

    def population(word):
        """Number of set bits of a uint64."""
        return int(word).bit_count()

else:

    @intrinsic
    def trailing_zeros(typingctx, word):
        """Position of the lowest set bit of a uint64; 64 for 0."""

        def codegen(context, builder, signature, args):
            return builder.cttz(args[0], context.get_constant(types.boolean, False))

        return types.uint64(types.uint64), codegen

    @intrinsic
    def population(typingctx, word):
        """Number of set bits of a uint64."""

        def codegen(context, builder, signature, args):
            return builder.ctpop(args[0])

        return types.uint64(types.uint64), codegen

    @kernel
    def without_lowest(word):
        """A uint64 without its lowest set bit; 0 for 0."""
        return word & (word - np.uint64(1))


@kernel
def splitmix(x, place):
    """SplitMix64: the hash of a uint64 and its place, a whole number above 0."""
    x += np.uint64(0x9E3779B97F4A7C15) * np.uint64(place)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
