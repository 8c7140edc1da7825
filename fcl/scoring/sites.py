"""The windows around all sites of a genome, as a source of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.convert.contract import Budget, Categorical, Layout, Rows, Source
from fcl.convert.files import InputFile
from fcl.convert.genome import Genome, Windows
from fcl.convert.letters import Filter, Ints
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.scoring.patterns import SitePattern

__all__ = ["SITE_STRANDS", "SiteWindows", "SitesSource"]

SITE_STRANDS = ("+", "-")

#: Bases that are searched for sites at a time.
_STEP = 1 << 19
#: Windows of a block: so few that they stay in the cache of the core while they are scored.
_MOST_ROWS = 3 << 12
_LEAVES = "beyond the end of a contig"


@dataclass(frozen=True)
class SiteWindows:
    """How windows lie around sites.

    Attributes
    ----------
    pattern : SitePattern
    length : int
        Letters of a window.
    origin : int
        Position of the first letter of the site in the window.
    both_strands : bool
        Whether sites on the reverse strand count, too.
    """

    pattern: SitePattern
    length: int
    origin: int
    both_strands: bool = False

    @classmethod
    def of(
        cls, family: Family, sites: str, origin: int | None = None, both_strands: bool = False
    ) -> SiteWindows:
        """The windows of a family of features over letters.

        Parameters
        ----------
        family : Family
        sites : str
            Pattern of letters.
        origin : int, optional
            Position of the site in the window; by default the origin of the features' positions.
        both_strands : bool

        Raises
        ------
        InputError
            The family has no origin, or the site does not lie inside the window.
        """
        pattern = SitePattern.parse(sites)
        length = family.row_width
        at = getattr(family, "origin", 0) if origin is None else origin
        if origin is None and not at:
            raise InputError(
                "--sites: the positions of the model's features have no origin, so the place of the site "
                f"in the window of {length:,} letters is unknown; give --origin, such as "
                f"--origin {length // 2}"
            )
        if not 0 <= at <= length - len(pattern):
            raise InputError(
                f"--sites {pattern.text}: expected a site inside the window, which has {length:,} "
                f"letters, got one at {at}; give --origin from 0 to {length - len(pattern)}"
            )
        return cls(pattern, length, at, both_strands)


class SitesSource(Source):
    """All sites of a genome in the order of the FASTA file, by position, forward strand first.

    Attributes
    ----------
    windows : SiteWindows

    Raises
    ------
    InputError
        The file is no FASTA file.
    """

    def __init__(
        self,
        genome: InputFile,
        windows: SiteWindows,
        edges: str = "drop",
        max_unknown: float | None = None,
    ) -> None:
        super().__init__([genome])
        self.windows = windows
        self._genome_file = genome
        self._edges = edges
        self._filter = Filter(max_unknown)

    @property
    def layout(self) -> Layout:
        return Layout("codes", np.dtype(np.uint8), self.windows.length)

    def blocks(self, budget: Budget) -> Iterator[Rows]:
        genome = Genome(self._genome_file, budget)
        contigs = list(genome.names)
        size = min(budget.block_rows(self.windows.length), _MOST_ROWS)
        for contig, length in enumerate(genome.lengths.tolist()):
            for first in range(0, length, _STEP):
                place, reverse = self._sites(genome, contig, first, min(length, first + _STEP))
                for at in range(0, len(place), size):
                    part = slice(at, at + size)
                    yield self._rows(genome, contigs, contig, place[part], reverse[part])

    def _sites(self, genome: Genome, contig: int, first: int, stop: int) -> tuple[Ints, np.ndarray]:
        """Where the sites begin (on the forward strand) among some bases, and which are reverse."""
        pattern = self.windows.pattern
        codes = genome.letters(
            contig, first, min(stop + len(pattern) - 1, int(genome.lengths[contig]))
        )
        forward = pattern.find(codes) + first
        if not self.windows.both_strands:
            return forward, np.zeros(len(forward), np.bool_)
        # 2 * position + strand, so that one sort interleaves the strands
        backward = pattern.find_reverse(codes) + first
        keys = np.sort(np.concatenate([2 * forward, 2 * backward + 1]), kind="stable")
        return keys >> 1, (keys & 1).astype(np.bool_)

    def _rows(
        self, genome: Genome, contigs: list[str], contig: int, place: Ints, reverse: np.ndarray
    ) -> Rows:
        records = np.arange(self.rows_in, self.rows_in + len(place))
        self.rows_in += len(place)
        shape = self.windows
        first = np.where(
            reverse, place + len(shape.pattern) + shape.origin - shape.length, place - shape.origin
        )
        windows = Windows(np.full(len(place), contig), first, reverse)
        keep = self._kept(genome, windows)
        kept = windows.select(keep)
        rows = Rows(
            genome.cut(kept, shape.length),
            records[keep],
            obs={
                "chrom": Categorical(np.full(len(keep), contig, np.int32), contigs),
                "start": place[keep],
                "strand": Categorical(reverse[keep].astype(np.int8), list(SITE_STRANDS)),
            },
        )
        return self._filter.apply(rows, self.dropped, genome.filled(kept, shape.length))

    def _kept(self, genome: Genome, windows: Windows) -> Ints:
        """Numbers of the windows that are scored; the others are counted, or refused."""
        inside = genome.inside(windows, self.windows.length)
        if self._edges == "pad" or inside.all():
            return np.arange(len(inside))
        if self._edges == "error":
            at = int(windows.first[int((~inside).argmax())])
            name = list(genome.names)[int(windows.contig[0])]
            raise InputError(
                f"{genome.file_name}: the window of {self.windows.length:,} bases from {at:,} on leaves "
                f"the contig {name}; give --edges drop or pad"
            )
        self.dropped[_LEAVES] += int((~inside).sum())
        return np.flatnonzero(inside)
