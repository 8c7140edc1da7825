"""Sums over the cached columns, and sums of them, over the rows of the view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fcl import kernels
from fcl.parallel import SERIAL, Team, cut
from fcl.solve.state import Columns, LocalPoint, WorkingSet
from fcl.types import Floats

#: Number of blocks whose sums are held until they are added in order.
BLOCKS_AT_ONCE = 8
#: Entries of dense columns in memory at a time.
CHUNK_ENTRIES = 1 << 17
#: Number of chunks whose products are held until they are added in order.
CHUNKS_AT_ONCE = 2
#: Share of nonzeros up to which sums of columns are made of their nonzeros: about 20 dense products take
#: the time of one sparse product.
SPARSE = 0.15


def column_moments(
    working: WorkingSet, columns: Columns, r: Floats, q: Floats | None, team: Team = SERIAL
) -> tuple[Floats, Floats]:
    """sum_i r_i phi_ij and sum_i q_i phi_ij^2 of some cached columns.

    r, q : float64 (n,), or (K, n): the sums are then (k, K). Without q the second sums mean nothing.
    """
    if r.ndim == 1:
        return _moments(working, columns, r, r if q is None else q, team)
    k, (n_outputs, n) = len(columns), r.shape
    filled = int(working.cache.store.nonzeros[working.cache.slots[columns]].sum())
    if filled <= SPARSE * k * n:
        g, h = np.zeros((2, k, n_outputs))
        for output, own in enumerate(r):
            weights = own if q is None else q[output]
            g[:, output], h[:, output] = _moments(working, columns, own, weights, team)
        return g, h

    def chunk(part: Floats, rows: slice) -> Floats:
        sums = np.zeros((2, k, n_outputs))
        sums[0] = part @ r[:, rows].T
        if q is not None:
            part *= part
            sums[1] = part @ q[:, rows].T
        return sums

    g, h = over_chunks(working, columns, n, chunk, team)
    return g, h


def _moments(
    working: WorkingSet, columns: Columns, r: Floats, q: Floats, team: Team
) -> tuple[Floats, Floats]:
    """The moments of one output."""
    slots = working.cache.slots[columns]
    pieces = working.cache.pieces
    k = len(columns)
    g, h = np.zeros(k), np.zeros(k)
    parts = np.empty((BLOCKS_AT_ONCE, 2, k))
    team = team.for_entries(int(working.cache.store.nonzeros[slots].sum()))
    n_blocks = -(-len(r) // pieces.block_rows)  # a sample has fewer than there is room for
    chunks = cut(range(k), -(-team.most // max(n_blocks, 1)))
    for at in range(0, n_blocks if k else 0, BLOCKS_AT_ONCE):
        blocks = range(at, min(at + BLOCKS_AT_ONCE, n_blocks))

        def block(part: tuple[int, range], at: int = at) -> None:
            b, some = part[0], slice(part[1].start, part[1].stop)
            sums = parts[b - at, :, some]
            kernels.columns.block_moments(pieces, slots[some], b, r, q, sums[0], sums[1])

        team.map(block, [(b, some) for b in blocks for some in chunks])
        for b in blocks:
            g += parts[b - at, 0]
            h += parts[b - at, 1]
    return g, h


def add_columns(
    working: WorkingSet,
    columns: Columns,
    deltas: Floats,
    m: Floats,
    team: Team = SERIAL,
) -> None:
    """Add cached columns times their deltas to margins over the rows of the view, in place.

    deltas : float64 (k,), or (k, K) with margins (K, n).
    """
    for own, out in zip(np.atleast_2d(deltas.T), np.atleast_2d(m), strict=True):
        changed = np.flatnonzero(own)
        if len(changed):
            _add(working, columns[changed], np.ascontiguousarray(own[changed]), out, team)


def _add(working: WorkingSet, columns: Columns, deltas: Floats, m: Floats, team: Team) -> None:
    """Add columns to the margins of one output."""
    slots = working.cache.slots[columns]
    pieces = working.cache.pieces

    def block(b: int) -> None:
        kernels.columns.add_block(pieces, slots, deltas, b, m)

    team = team.for_entries(int(working.cache.store.nonzeros[slots].sum()))
    team.map(block, range(working.cache.store.n_blocks))


def over_chunks(
    working: WorkingSet,
    columns: Columns,
    n_rows: int,
    term: Callable[[Floats, slice], Floats | float],
    team: Team,
) -> Floats:
    """The sum of a term over chunks of the rows of the view.

    term : of the dense columns of a chunk, float64 (k, rows), which it may overwrite, and its rows.
    """
    k, n = len(columns), n_rows
    slots, pieces = working.cache.slots[columns], working.cache.pieces
    block_rows = pieces.block_rows
    size = min(block_rows, max(64, CHUNK_ENTRIES // max(k, 1) // 64 * 64))
    starts = [
        at
        for block in range(0, n, block_rows)
        for at in range(block, min(block + block_rows, n), size)
    ]

    def chunk(at: int) -> Floats | float:
        number, first = divmod(at, block_rows)
        last = min(at + size, (number + 1) * block_rows, n)
        part = np.empty((k, last - at))
        kernels.columns.dense_rows(pieces, slots, number, first, part)
        return term(part, slice(at, last))

    total: Any = 0.0
    for at in range(0, len(starts), CHUNKS_AT_ONCE):
        for product in team.map(chunk, starts[at : at + CHUNKS_AT_ONCE]):
            total += product
    return np.asarray(total)


def over_point(at: LocalPoint, term: Callable[[Floats, slice], Floats | float]) -> Floats:
    """The sum of a term over chunks of the columns of a point, see :func:`over_chunks`."""
    objective = at.view.objective
    return over_chunks(at.working, at.columns, objective.n_rows, term, objective.team)
