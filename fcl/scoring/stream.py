"""The rows of a source through a model into lines of text, in bounded memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO

import numpy as np
import numpy.typing as npt

from fcl.convert.contract import Budget, Categorical, ConvertedRows, ConvertSource
from fcl.convert.run import free_memory
from fcl.scoring.lines import LineFormat
from fcl.scoring.margins import BlockScorer
from fcl.scoring.quality import Comparison
from fcl.types import Floats

#: Blocks that wait for their margins while the next one is read.
_MOST_WAITING = 2


@dataclass(frozen=True)
class ScoreSummary:
    """What was scored.

    rows_in, rows : records read, and rows scored.
    dropped : records without a score, by reason.
    quality : metrics against the target, in words.
    """

    rows_in: int
    rows: int
    dropped: Counter[str]
    quality: str | None = None
    notes: list[str] = field(default_factory=list)


def scoring_budget(memory: int, scratch: str | None) -> Budget:
    """What a source may use of a budget in bytes; raises BudgetError if it is too small.

    scratch : folder for temporary files; None for the system's.
    """
    free = free_memory(memory)
    return Budget(free // 2, min(8 << 20, free // 16), scratch)


def score_source(
    source: ConvertSource,
    scorer: BlockScorer,
    lines: LineFormat,
    file: IO[bytes],
    budget: Budget,
    *,
    collected: Comparison | None = None,
    keep_dropped: bool = False,
) -> ScoreSummary:
    """Score the rows of a source and write a line for each, in the order of the input.

    collected : gets targets and margins, if the source has targets.
    keep_dropped : whether dropped records get a line, too, with empty cells.
    """
    n_rows, next_record, is_first = 0, 0, True
    for rows, margins in _scored(source, scorer, budget):
        if collected is not None and rows.y is not None:
            y = rows.y
            values = np.array(y.categories)[y.codes] if isinstance(y, Categorical) else y
            collected.add(values, margins, rows.weights, rows.source_row)
        if is_first:  # rows that cannot be scored leave nothing on standard output
            file.write(lines.head(rows))
            is_first = False
        written = lines.lines(rows, margins)
        if keep_dropped:
            written = list(_aligned(written, rows.source_row, next_record, lines.blank()))
            next_record = int(rows.source_row[-1]) + 1 if len(rows) else next_record
        file.write(written if isinstance(written, bytes) else b"".join(written))
        n_rows += len(rows)
    if not n_rows:
        raise source.nothing_left("record or site", "can be scored")
    if keep_dropped:
        file.write(lines.blank() * (source.rows_in - next_record))
    quality = None if collected is None else collected.line()
    source.attributes()  # complements the notes
    return ScoreSummary(
        source.rows_in, n_rows, source.dropped, quality, [*source.notes, *scorer.notes]
    )


def _scored(
    source: ConvertSource, scorer: BlockScorer, budget: Budget
) -> Iterator[tuple[ConvertedRows, Floats]]:
    """The blocks and their margins; a thread computes margins while the caller reads and writes."""
    name = source.inputs[0].name
    waiting: deque[tuple[ConvertedRows, Future[Floats]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="fcl-score") as pool:
        for rows in source.blocks(budget):
            given = rows.x, source.layout, name, rows.obs
            waiting.append((rows, pool.submit(scorer.margins, *given)))
            if len(waiting) > _MOST_WAITING:
                yield waiting[0][0], waiting.popleft()[1].result()
        yield from ((rows, margins.result()) for rows, margins in waiting)


def _aligned(
    written: list[bytes] | bytes, records: npt.NDArray[np.int64], expected: int, blank: bytes
) -> Iterator[bytes]:
    """The lines of a block, with blank lines in place of the records that were dropped before them."""
    assert isinstance(written, list)
    for line, record in zip(written, records.tolist(), strict=True):
        if record > expected:
            yield blank * (record - expected)
        yield line
        expected = record + 1
