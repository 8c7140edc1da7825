"""Lines of text that are made without a loop, against the formatting of Python."""

from __future__ import annotations

import numpy as np

from fcl.convert.contract import Categorical, ConvertedRows
from fcl.model.outputs import Scores
from fcl.scoring.lines import BedLines, integer_cells


def test_bed_lines() -> None:
    rng = np.random.default_rng(2)
    for scale in (1.0, 1e-7, 1e5, 1e20):
        scores = rng.normal(size=200) * scale
        scores[:4] = 0.0, -1e-9, -0.25, 9.9999997
        start = np.sort(rng.integers(0, 5_000_000_000, 200))
        start[0] = 0
        strand = rng.integers(0, 2, 200)
        contig = Categorical(np.ones(200, np.int32), ["", "c 1"])
        obs = {"chromosome": contig, "start": start, "strand": Categorical(strand, ["+", "-"])}
        rows = ConvertedRows(np.zeros((200, 1), np.uint8), np.arange(200), obs=obs)
        made = (
            BedLines(Scores("margin", ("margin",), np.asarray), "AG").lines(rows, scores).decode()
        )
        form = "{:.6g}" if scale == 1e20 else "{:.6f}"
        text = [form.format(score).replace("-0.000000", "0.000000") for score in scores]
        expected = "".join(
            f"c 1\t{s}\t{s + 2}\tAG\t{t}\t{'+-'[d]}\n"
            for s, t, d in zip(start.tolist(), text, strand.tolist(), strict=True)
        )
        assert made == expected


def test_integer_cells() -> None:
    values = np.array([0, 7, 10, 4294967295, 90])
    rows = [bytes(row[row > 0]).decode() for row in integer_cells(values)]
    assert rows == [str(value) for value in values]
    assert bytes(integer_cells(np.array([5, 1234]), 3)[0]).lstrip(b"\0") == b"005"
