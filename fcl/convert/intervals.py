"""Windows of a genome around intervals (BED, narrowPeak, tables of sites) as rows of codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fcl.checks import shown
from fcl.convert.bed import Intervals, read_intervals
from fcl.convert.contigs import LACKING, ContigNames, Renaming
from fcl.convert.contract import (
    Budget,
    Categorical,
    Column,
    ConvertedRows,
    ConvertSource,
    OutputLayout,
)
from fcl.convert.files import InputFile
from fcl.convert.genome import Genome, Windows
from fcl.convert.labels import Categories, TextColumn
from fcl.convert.letters import Codes, Filter, select
from fcl.errors import InputError
from fcl.types import Ints
from fcl.units import counted

_SLICE_BYTES = 1 << 20
_STRANDS = ("+", "-", ".")


@dataclass(frozen=True)
class Options:
    """The options of ``fcl convert`` that intervals take."""

    genome: str | None = None
    window: str | None = None
    length: int | None = None
    anchor: str | None = None
    edges: str = "drop"
    no_strand: bool = False
    rename: str | None = None
    skip_contigs: bool = False
    label: str | None = None
    negatives: str | None = None
    groups: str | None = None
    max_unknown: float | None = None
    both_strands: bool = False


@dataclass(frozen=True)
class Shape:
    """Where a window lies relative to its interval.

    before, behind : bases before the anchor, and from the anchor on, in the direction of the strand; None
        if the window is given by its length.
    length : bases; None for the length of the intervals.
    anchor : "start", "center", "end" or "summit".
    """

    before: int | None
    behind: int
    length: int | None
    anchor: str

    @classmethod
    def of(cls, options: Options) -> Shape:
        """The shape that options describe; raises InputError if they do not fit each other."""
        if options.window is None:
            return cls(None, 0, options.length, options.anchor or "center")
        if options.length is not None:
            raise InputError("give --window or --length, not both")
        match = re.fullmatch(r"([-+]?[0-9]{1,8}):([-+]?[0-9]{1,8})", options.window.strip())
        first, end = (int(match[1]), int(match[2])) if match else (0, 0)
        if first >= end:
            raise InputError(
                "--window: expected FIRST:END relative to the anchor, such as -70:+71 for 141 bases, got "
                f"{shown(options.window)}"
            )
        return cls(-first, end, end - first, options.anchor or "start")

    def first(self, sites: Intervals, reverse: np.ndarray, summit: Ints, length: int) -> Ints:
        """The first base of the window of each interval, on the forward strand."""
        start, end = sites.start, sites.end
        at_start = np.logical_xor(reverse, self.anchor == "end")  # for start: at the end if reverse
        if self.before is None:
            return {
                "center": start + (end - start - length) // 2,
                "summit": summit - length // 2,
            }.get(self.anchor, np.where(at_start, end - length, start))
        base = {"center": (start + end) // 2, "summit": summit}.get(
            self.anchor, np.where(at_start, end - 1, start)
        )
        return np.where(reverse, base - self.behind + 1, base - self.before)


def open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource:
    """Open intervals and their genome; a second file, or ``negatives``, has the label -1."""
    if options.genome is None:
        raise InputError(
            f"{inputs[0].name}: intervals need --genome FILE, the FASTA file that has their sequences"
        )
    files = [*inputs, *([InputFile(options.negatives)] if options.negatives else [])]
    if len(files) > 2 or (len(files) > 1 and options.label is not None):
        raise InputError(
            f"expected one file of intervals, or one of positive and one of negative intervals without "
            f"--label, got {len(files)}; join them, and give --label COLUMN"
        )
    return _IntervalSource(files, InputFile(options.genome), options)


class _IntervalSource(ConvertSource):
    def __init__(self, files: list[InputFile], genome: InputFile, options: Options) -> None:
        super().__init__([*files, genome])
        self._files, self._genome_file, self._options = files, genome, options
        self._shape = Shape.of(options)
        self._length = self._shape.length
        self._filter = Filter(options.max_unknown, options.both_strands)
        self._renaming = Renaming.parse(options.rename)
        self._label = TextColumn("--label")
        self._group = Categories()
        self._named: bool | None = None
        self._reversed = 0
        self._has_strand = False

    @property
    def layout(self) -> OutputLayout:
        return OutputLayout("codes", np.dtype(np.uint8), self._length or 0)

    def blocks(self, budget: Budget) -> Iterator[ConvertedRows]:
        genome = Genome(self._genome_file, budget)
        names = ContigNames(self._renaming, genome, "BED", self._options.skip_contigs)
        for number, file in enumerate(self._files):
            for sites in read_intervals(file, min(budget.block, _SLICE_BYTES)):
                yield from self._rows(sites, genome, names, number, budget)
        self.notes += names.notes()
        self._note_strands()

    def _note_strands(self) -> None:
        if self._options.no_strand:
            self.notes.append("strand: ignored; all windows are from the forward strand")
        elif self._has_strand:
            self.notes.append(
                f"strand: {counted(self._reversed, 'window')} from the reverse strand, by "
                "column 6 (strand)"
            )

    def _rows(
        self, sites: Intervals, genome: Genome, names: ContigNames, number: int, budget: Budget
    ) -> Iterator[ConvertedRows]:
        records = np.arange(self.rows_in, self.rows_in + len(sites))
        self.rows_in += len(sites)
        self._has_strand |= sites.has("strand")
        shape = self._shape_of(sites, number)
        windows, strand = self._windows(sites, names, shape)
        length = self._length
        assert length is not None
        keep = self._kept(sites, windows, genome, shape)
        chosen = windows.select(keep)
        self._reversed += int(chosen.reverse.sum())
        obs: dict[str, Column] = {
            "chromosome": Categorical(chosen.contig.astype(np.int32), list(genome.names)),
            "start": chosen.first,
        }
        if not self._options.no_strand:
            obs["strand"] = Categorical(strand[keep], list(_STRANDS))
        if self._named is None:  # the first lines have names, other than dots in their place
            self._named = sites.has("name") and set(sites.text("name")) - {".", ""} != set()
        if self._named:
            texts = sites.text("name") if sites.has("name") else [""] * len(sites)
            obs["name"] = np.array(texts, np.dtypes.StringDType())[keep]
        if self._options.groups is not None:
            words, codes = sites.distinct(self._options.groups, keep)
            obs["group"] = select(self._group.encode(words), codes)
        rows = ConvertedRows(chosen.first, records[keep], self._y(sites, keep, number), None, obs)

        def cut(part: slice) -> tuple[Codes, Ints]:
            some = chosen.select(part)
            return genome.cut(some, length), genome.filled(some, length)

        return self._filter.blocks(rows, length, cut, self.drop, budget)

    def _shape_of(self, sites: Intervals, file_number: int) -> Shape:
        """The shape for the lines of a file; negatives without a column of summits use the center."""
        if self._shape.anchor != "summit" or sites.has("summit"):
            return self._shape
        if not file_number:
            raise InputError(
                f"{sites.file.name}: --anchor summit needs column 10 of narrowPeak, or a column "
                "summit; give --anchor center"
            )
        note = f"anchor: center in {sites.file.name}, which has no column of summits"
        self.notes += [] if note in self.notes else [note]
        return replace(self._shape, anchor="center")

    def _windows(
        self, sites: Intervals, names: ContigNames, shape: Shape
    ) -> tuple[Windows, np.ndarray]:
        """The windows of intervals, and their strands as codes."""
        strand = self._strands(sites)
        reverse = strand == 1
        if self._length is None:
            self._length = int(sites.end[0] - sites.start[0])
        if shape.length is None and shape.before is None:
            self._check_lengths(sites, self._length)
        summit = self._summits(sites, shape)
        first = shape.first(sites, reverse, summit, self._length)
        return Windows(_contigs_of(sites, names), first, reverse), strand

    def _check_lengths(self, sites: Intervals, length: int) -> None:
        other = sites.end - sites.start != length
        if other.any():
            at = int(other.argmax())
            raise InputError(
                f"{sites.where(at)}: the interval has "
                f"{counted(sites.end[at] - sites.start[at], 'base')}, but the "
                f"first has {length:,}; give --length L, or --window such as -70:+71"
            )

    def _summits(self, sites: Intervals, shape: Shape) -> Ints:
        """Positions of the summits; -1 for an interval without one."""
        if shape.anchor != "summit":
            return np.zeros(len(sites), np.int64)
        offset = sites.integers("summit")
        beyond = offset >= sites.end - sites.start
        if beyond.any():
            at = int(beyond.argmax())
            raise InputError(
                f"{sites.where(at)}: expected a summit inside the interval, counted from its start, got "
                f"{offset[at]:,} in {counted(sites.end[at] - sites.start[at], 'base')}"
            )
        return np.where(offset < 0, -1, sites.start + offset)

    def _strands(self, sites: Intervals) -> np.ndarray:
        """Codes of the strands: 0 is +, 1 is -, 2 is unknown."""
        if self._options.no_strand or not sites.has("strand"):
            return np.full(len(sites), _STRANDS.index("."), np.int8)
        words, codes = sites.distinct("strand")
        for i, word in enumerate(words):
            if word not in _STRANDS:
                raise InputError(
                    f"{sites.where(int((codes == i).argmax()))}: expected a strand (+, - or .) in column "
                    f"6, got {shown(word)}; give --no-strand to ignore the column"
                )
        return np.array([_STRANDS.index(word) for word in words], np.int8)[codes]

    def _kept(self, sites: Intervals, windows: Windows, genome: Genome, shape: Shape) -> np.ndarray:
        """Numbers of the windows that become rows; the others are counted, or refused."""
        keep = windows.contig >= 0
        self.drop(LACKING, ~keep)
        if shape.anchor == "summit":
            has_summit = self._summits(sites, shape) >= 0
            self.drop("without a summit", keep & ~has_summit)
            keep &= has_summit
        if self._options.edges != "pad":
            assert self._length is not None
            outside = keep & ~genome.inside(windows, self._length)
            if outside.any() and self._options.edges == "error":
                at = int(outside.argmax())
                raise InputError(
                    f"{sites.where(at)}: the window of {counted(self._length, 'base')} from "
                    f"{windows.first[at]:,} on leaves its contig, which has "
                    f"{genome.lengths[windows.contig[at]]:,}; give --edges drop or pad"
                )
            self.drop("beyond the end of a contig", outside)
            keep &= ~outside
        return np.flatnonzero(keep)

    def _y(self, sites: Intervals, keep: np.ndarray, file_number: int) -> Column | None:
        if self._options.label is not None:
            words, codes = sites.distinct(self._options.label, keep)
            found = self._label.encode(
                words, lambda i: sites.where(int(keep[(codes == i).argmax()]))
            )
            return select(found, codes)
        if len(self._files) > 1:
            return np.full(len(keep), 1 - 2 * file_number, np.int8)
        return None


def _contigs_of(sites: Intervals, names: ContigNames) -> Ints:
    """Numbers of the contigs of intervals; -1 for a contig that is skipped."""
    words, codes = sites.distinct("chrom")
    firsts = ((codes == i).argmax() for i in range(len(words)))
    found = [names.find(word, sites.where(int(at))) for word, at in zip(words, firsts, strict=True)]
    return np.array(found, np.int64)[codes]
