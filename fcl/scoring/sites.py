"""The windows around all sites of a genome, as a source of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.convert.contract import Budget, Categorical, ConvertedRows, ConvertSource, OutputLayout
from fcl.convert.files import InputFile
from fcl.convert.genome import Genome, letters_outside
from fcl.convert.letters import Codes, Filter, reverse_complement
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.scoring.patterns import SitePattern
from fcl.types import Ints
from fcl.units import counted

SITE_STRANDS = ("+", "-")

#: Bases that are searched for sites at a time.
_STEP = 1 << 19
#: Windows of a block: many, since starting kernels takes time, but few enough to stay in the cache.
_MOST_ROWS = 3 << 14
_LEAVES = "beyond the end of a contig"


@dataclass(frozen=True)
class SiteWindows:
    """How windows lie around sites.

    length : letters of a window.
    origin : position of the first letter of the site in the window.
    both_strands : whether sites on the reverse strand count, too.
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

        origin : position of the site in the window; by default the origin of the features' positions.
        """
        pattern = SitePattern.parse(sites)
        length = family.row_width
        at = getattr(family, "origin", 0) if origin is None else origin
        if origin is None and not at:
            raise InputError(
                "--sites: the positions of the model's features have no origin, so the place of the site "
                f"in the window of {counted(length, 'letter')} is unknown; give --origin, such as "
                f"--origin {length // 2}"
            )
        if not 0 <= at <= length - len(pattern):
            raise InputError(
                f"--sites {pattern.text}: expected a site inside the window, which has {length:,} "
                f"letters, got one at {at}; give --origin from 0 to {length - len(pattern)}"
            )
        return cls(pattern, length, at, both_strands)


class SitesSource(ConvertSource):
    """All sites of a genome in the order of the FASTA file, by position, forward strand first."""

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
    def layout(self) -> OutputLayout:
        return OutputLayout("codes", np.dtype(np.uint8), self.windows.length)

    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        genome = Genome(self._genome_file, budget)
        contigs = list(genome.names)
        size = min(budget.block_rows(self.windows.length), _MOST_ROWS)
        for contig, length in enumerate(genome.lengths.tolist()):
            for first in range(0, length, _STEP):
                stretch = _Stretch.of(genome, contig, first, self.windows)
                place, reverse = stretch.sites()
                for at in range(0, len(place), size):
                    part = slice(at, at + size)
                    yield self._rows(stretch, contigs, place[part], reverse[part])

    def _rows(
        self, stretch: _Stretch, contigs: list[str], place: Ints, reverse: np.ndarray
    ) -> ConvertedRows:
        records = np.arange(self.rows_in, self.rows_in + len(place))
        self.rows_in += len(place)
        first = stretch.first_bases(place, reverse)
        keep = self._kept(first, stretch, contigs)
        place, reverse, first = place[keep], reverse[keep], first[keep]
        rows = ConvertedRows(
            stretch.cut(first, reverse),
            records[keep],
            obs={
                "chromosome": Categorical(np.full(len(place), stretch.contig, np.int32), contigs),
                "start": place,
                "strand": Categorical(reverse.astype(np.int8), list(SITE_STRANDS)),
            },
        )
        outside = letters_outside(first, self.windows.length, stretch.contig_length)
        return self._filter.apply(rows, self.drop, outside)

    def _kept(self, first: Ints, stretch: _Stretch, contigs: list[str]) -> np.ndarray | slice:
        """Which windows are scored; the others are counted, or refused."""
        length = self.windows.length
        inside = (first >= 0) & (first + length <= stretch.contig_length)
        if self._edges == "pad" or inside.all():
            return slice(None)
        if self._edges == "error":
            raise InputError(
                f"{self._genome_file.name}: the window of {counted(length, 'base')} from "
                f"{int(first[~inside][0]):,} on leaves the contig {contigs[stretch.contig]}; give "
                "--edges drop or pad"
            )
        self.drop(_LEAVES, ~inside)
        return inside


@dataclass(frozen=True)
class _Stretch:
    """A stretch of a contig with a margin on each side that holds the windows of its sites.

    contig, contig_length : number of the contig, and its bases.
    first : the base at which the search for sites begins.
    codes : the letters from ``first - windows.length`` on, unknown outside the contig; for both strands
        followed by their reverse complement.
    n_letters : of one strand in ``codes``.
    """

    contig: int
    contig_length: int
    first: int
    codes: Codes
    n_letters: int
    windows: SiteWindows

    @classmethod
    def of(cls, genome: Genome, contig: int, first: int, windows: SiteWindows) -> _Stretch:
        """The stretch of ``_STEP`` bases, or fewer at the end of the contig."""
        contig_length = int(genome.lengths[contig])
        stop = min(contig_length, first + _STEP)
        margin = windows.length
        codes = genome.letters(contig, first - margin, stop + len(windows.pattern) - 1 + margin)
        n_letters = len(codes)
        if windows.both_strands:
            codes = np.concatenate([codes, reverse_complement(codes[None])[0]])
        return cls(contig, contig_length, first, codes, n_letters, windows)

    def sites(self) -> tuple[Ints, np.ndarray]:
        """Where the sites begin on the forward strand of the contig, and which are reverse."""
        pattern, margin = self.windows.pattern, self.windows.length
        end = min(self.n_letters - margin, self.contig_length - self.first + margin)
        codes = self.codes[margin:end]
        forward = pattern.find(codes) + self.first
        if not self.windows.both_strands:
            return forward, np.zeros(len(forward), np.bool_)
        # 2 * position + strand, so that one sort interleaves the strands
        backward = pattern.find_reverse(codes) + self.first
        keys = np.sort(np.concatenate([2 * forward, 2 * backward + 1]), kind="stable")
        return keys >> 1, (keys & 1).astype(np.bool_)

    def first_bases(self, place: Ints, reverse: np.ndarray) -> Ints:
        """Where the windows of sites begin on the forward strand of the contig."""
        origin, length = self.windows.origin, self.windows.length
        ahead = len(self.windows.pattern) + origin - length
        return place + np.where(reverse, ahead, -origin)

    def cut(self, first: Ints, reverse: np.ndarray) -> Codes:
        """The windows that begin at these bases, each in the direction of its strand."""
        length = self.windows.length
        at = first - (self.first - length)
        at = np.where(reverse, 2 * self.n_letters - length - at, at)
        return np.lib.stride_tricks.sliding_window_view(self.codes, length)[at]
