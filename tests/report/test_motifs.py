"""Patterns merged into motifs, and the positions that logos show."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fcl.features.motif import Motif
from fcl.report.logo import MOST_PANELS, PANEL_POSITIONS, zoomed
from fcl.report.motifs import MergedMotif, WeightedMotif, merged_motifs


def merged(*patterns: tuple[str, int | None, float], both: bool = False) -> list[MergedMotif]:
    """Merge patterns of (letters, start, share); the sign of the share is that of the weight."""
    members = [
        WeightedMotif(i, Motif(letters, start, 3, both), np.sign(share), abs(share))
        for i, (letters, start, share) in enumerate(patterns)
    ]
    return merged_motifs(members)


def test_patterns_of_one_site_are_one_motif() -> None:
    site, other = merged(("TT.AG", 0, 0.3), ("T.CAG", 0, 0.2), ("AGG", 3, 0.1), ("TT.AG", 9, 0.05))
    assert (site.consensus, site.position) == ("TTCAGG", -3)
    assert [member.index for member in site.members] == [0, 1, 2]
    assert site.share == pytest.approx(0.6) and site.raises
    assert site.heights.sum() == pytest.approx(0.6)
    # A has a quarter of TT.AG, a quarter of T.CAG and a third of AGG
    assert site.heights[3].tolist() == pytest.approx([0.3 / 4 + 0.2 / 4 + 0.1 / 3, 0, 0, 0])
    assert other.position == 6


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("TT.AG", 0, 0.3), ("TT.AG", 0, -0.2)),  # of the other direction
        (("TT.AG", 0, 0.3), ("TT.AC", 0, 0.2)),  # another letter at one position
        (("TTTT", 0, 0.3), ("TAAA", 3, 0.2)),  # one letter of four in common
        (("TT", 0, 0.3), ("TT", None, 0.2)),  # anywhere
    ],
)
def test_other_patterns_are_other_motifs(
    first: tuple[str, int | None, float], second: tuple[str, int | None, float]
) -> None:
    assert [len(motif.members) for motif in merged(first, second)] == [1, 1]


def test_patterns_anywhere_are_aligned() -> None:
    (motif,) = merged(("GATAA", None, 0.3), ("ATAAG", None, 0.2), ("TTATC", None, 0.1), both=True)
    assert motif.consensus == "GATAAG" and motif.start is None and motif.position is None
    # TTATC is GATAA on the other strand
    assert motif.heights[0].tolist() == pytest.approx([0.0, 0.0, 0.4 / 5, 0.0])


def test_letters_that_are_not_clear_are_in_lower_case() -> None:
    (motif,) = merged(("A.G", 0, 0.3), ("ACG", 0, 0.2), ("ATG", 0, 0.19))
    assert [len(motif.members), motif.consensus] == [3, "AcG"]


def test_logos_show_where_the_height_is() -> None:
    sizes = np.full(398, 1e-3)
    sizes[200:220] = 1.0
    (part,) = zoomed(sizes)
    assert part.start <= 201 and part.stop >= 219 and len(part) <= PANEL_POSITIONS
    assert zoomed(np.ones(12)) == [range(12)]
    single = np.zeros(100)
    single[99] = 1.0
    (part,) = zoomed(single)
    assert 99 in part and len(part) > 1 and part.stop <= 100


def test_long_windows_have_their_highest_parts() -> None:
    sizes = np.ones(398)
    sizes[350:] = 2.0
    parts = zoomed(sizes)
    assert len(parts) == MOST_PANELS and max(map(len, parts)) <= PANEL_POSITIONS
    assert parts[-1].stop > 380 and all(a.stop <= b.start for a, b in pairwise(parts))
    assert zoomed(np.zeros(50)) == [range(PANEL_POSITIONS)]
