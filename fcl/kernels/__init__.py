"""Kernels: numba functions over arrays, scalars and named tuples.

A kernel does no I/O and no logging, and uses no classes of fcl except the named tuples of this folder,
which are defined here because compiled code refers to their fields by position. Each kernel is declared
by a decorator of :mod:`fcl.kernels.compilation`. Functions without a decorator choose kernels by the
data, so that a job compiles only those that it needs.

So that each kernel is compiled only once, arrays are C-contiguous and writeable, except blocks of sparse
rows, which are read-only; margins, residuals and gradients are float64, ids and offsets int64. The caller
provides the buffers, and the first line of a docstring says which buffers the kernel writes. A call
should take at most about 100 ms (loops are split by row blocks), because signal handlers of the main
thread wait for the call to return.

Importing this package does not import numba. Its modules are loaded on first use (PEP 562), so that a
module that runs kernels imports this package at its top and writes ``kernels.columns.add(...)``.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fcl.kernels import averaged as averaged
    from fcl.kernels import bags as bags
    from fcl.kernels import ball as ball
    from fcl.kernels import ball_heap as ball_heap
    from fcl.kernels import bits as bits
    from fcl.kernels import candidates as candidates
    from fcl.kernels import columns as columns
    from fcl.kernels import compilation as compilation
    from fcl.kernels import coupled as coupled
    from fcl.kernels import coupled_blocks as coupled_blocks
    from fcl.kernels import descent as descent
    from fcl.kernels import elementary as elementary
    from fcl.kernels import encoding as encoding
    from fcl.kernels import fourier as fourier
    from fcl.kernels import gather as gather
    from fcl.kernels import hashing as hashing
    from fcl.kernels import hinges as hinges
    from fcl.kernels import kmers as kmers
    from fcl.kernels import lane_tables as lane_tables
    from fcl.kernels import lanes as lanes
    from fcl.kernels import listing as listing
    from fcl.kernels import losses as losses
    from fcl.kernels import margins as margins
    from fcl.kernels import matrix as matrix
    from fcl.kernels import nonzero as nonzero
    from fcl.kernels import occurrences as occurrences
    from fcl.kernels import online as online
    from fcl.kernels import ordered as ordered
    from fcl.kernels import patterns as patterns
    from fcl.kernels import products as products
    from fcl.kernels import sampling as sampling
    from fcl.kernels import softmax as softmax
    from fcl.kernels import tables as tables

if not TYPE_CHECKING:  # else an unknown name would have the type of this function's result

    def __getattr__(name: str) -> ModuleType:
        module = f"{__name__}.{name}"
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
