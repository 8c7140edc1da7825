"""Bit operations that numba does not provide."""

import numba
from numba import types
from numba.extending import intrinsic

if numba.config.DISABLE_JIT:  # kernels are then plain Python

    def trailing_zeros(word):
        """Position of the lowest set bit of a nonzero uint64."""
        word = int(word)
        return (word & -word).bit_length() - 1

    def population(word):
        """Number of set bits of a uint64."""
        return int(word).bit_count()

else:

    @intrinsic
    def trailing_zeros(typingctx, word):
        """Position of the lowest set bit of a nonzero uint64."""

        def codegen(context, builder, signature, args):
            return builder.cttz(args[0], context.get_constant(types.boolean, True))

        return types.uint64(types.uint64), codegen

    @intrinsic
    def population(typingctx, word):
        """Number of set bits of a uint64."""

        def codegen(context, builder, signature, args):
            return builder.ctpop(args[0])

        return types.uint64(types.uint64), codegen
