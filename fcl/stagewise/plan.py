"""The memory budget of a stagewise training.

Rows, margins, weights and the sums of one block are needed. What is left holds Cholesky factors for later
visits, and then tiles of the block that is visited, which are otherwise made again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcl.drivers.rows import Rows
from fcl.features.base import value_type
from fcl.features.generator.family import GeneratedFamily
from fcl.memory.ledger import INTERPRETER, LIBRARIES, TARGETS, MemoryPlan, check_budget, sum_of
from fcl.stagewise.blocks import TILE_ROWS
from fcl.stagewise.learner import block_count
from fcl.stagewise.settings import Settings
from fcl.stagewise.sums import AHEAD


@dataclass(frozen=True)
class StagewisePlan(MemoryPlan):
    """How the budget is divided."""

    scratch: bool  #: whether the prepared rows are in a scratch file
    kept_tiles: int  #: tiles of a block that are kept
    kept_factors: int  #: Cholesky factors that are kept


def tile_rows(family: GeneratedFamily) -> int:
    """Rows of a tile: TILE_ROWS, or less for very wide rows."""
    return min(TILE_ROWS, family.most_block_rows())


def make_plan(
    family: GeneratedFamily,
    settings: Settings,
    rows: list[Rows],
    K: int,
    cores: int,
    certify: bool = False,
) -> StagewisePlan:
    """Divide the budget of the settings.

    rows : the training rows, and the validation rows if there are any.
    K : number of margins of a row.
    cores : number of threads.
    certify : whether a certificate follows the training.

    Raises BudgetError: the budget is too small.
    """
    height = tile_rows(family)
    numbers = [-(-part.n // height) for part in rows]
    record = int(np.prod(family.record_shape(height)))
    width = min(settings.block, family.n_features)
    item = np.dtype(value_type(rows[0].n)).itemsize
    tile = item * height * width
    n_blocks = block_count(family.n_features, settings.block)
    weights = 8 * family.n_features * K * settings.n_rounds
    gram = (3 * 8 + AHEAD * cores * item) * width**2
    tiles = 3 * cores * tile
    if certify:  # its tiles are in float64, but it needs no Gram matrix
        tiles = max(tiles, 3 * cores * 8 * height * width - gram)
    fixed = [
        (LIBRARIES, INTERPRETER),
        (
            TARGETS,
            sum(part.held_bytes + 16 * part.n + _target_bytes(part) for part in rows),
        ),
        ("margins", 2 * 8 * K * sum(part.n for part in rows)),
        ("weights of the last and of the best model, and a checkpoint", 4 * weights),
        ("rows as they are read", max(part.block_bytes(height) for part in rows) + record),
        ("features of the tiles in work", tiles),
        ("Gram matrix and its parts", gram),
    ]
    prepared = ("prepared rows", record * sum(numbers))
    least = sum_of(fixed)
    less = "block or rounds" if settings.calibrates else "block"
    job = f"a training in blocks of {width:,} features"
    check_budget(settings.memory_bytes, fixed, job, f"; raise memory or lower {less}")
    scratch = least + prepared[1] > settings.memory_bytes
    free = settings.memory_bytes - least - (0 if scratch else prepared[1])
    factor = 8 * width**2
    # blocks in the order of gradients are others at each visit
    several = settings.n_visits * settings.n_rounds > 1 and settings.order != "gradient"
    kept_factors = min(free // factor, n_blocks if several else 0)
    kept_tiles = min((free - kept_factors * factor) // tile, numbers[0])
    parts = [
        *fixed,
        *([] if scratch else [prepared]),
        (f"Cholesky factors of {kept_factors} of {n_blocks} blocks", kept_factors * factor),
        (f"kept features of {kept_tiles} of {numbers[0]} tiles", kept_tiles * tile),
    ]
    return StagewisePlan(tuple(parts), settings.memory_bytes, scratch, kept_tiles, kept_factors)


def _target_bytes(part: Rows) -> int:
    """Targets and offsets."""
    return part.y.nbytes + (0 if part.offset is None else part.offset.nbytes)
