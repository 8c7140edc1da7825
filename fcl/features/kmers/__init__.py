"""Positional k-mers with wildcards: ids and descriptions (``family``), prices, columns and margins."""

from fcl.features.kmers.family import KmerFamily, Kmers

__all__ = ["KmerFamily", "Kmers"]
