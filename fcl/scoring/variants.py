"""Reference and alternative of variants through a model: the largest change over the windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from fcl.checks import shown
from fcl.convert.contigs import LACKING, ContigNames, Renaming
from fcl.convert.contract import Budget
from fcl.convert.files import InputFile
from fcl.convert.genome import Genome
from fcl.convert.letters import Codes
from fcl.data.memory import MemoryReader
from fcl.data.sequences import UNKNOWN
from fcl.errors import InputError
from fcl.features.windows import LETTERS
from fcl.scoring.margins import BlockScorer
from fcl.scoring.pairs import Change, WindowPairs, window_pairs
from fcl.scoring.sites import SiteWindows
from fcl.scoring.stream import ScoreSummary
from fcl.scoring.vcf import Allele, read_alleles
from fcl.units import counted

#: Bytes of the windows that are scored together, and of their alleles.
_BLOCK_BYTES = 2 << 20
_ALLELE_BYTES = 500
_COLUMNS = (
    "chrom", "pos", "id", "ref", "alt", "difference", "start", "end", "strand",
    "ref_margin", "alt_margin", "windows",
)  # fmt: skip
#: Letters that a message shows of an allele.
_MOST_SHOWN = 40


@dataclass(frozen=True)
class VariantOptions:
    """How variants are scored.

    shape : windows around sites; or the length of the one window in whose middle the variant is.
    edges : {"drop", "pad", "error"}, what to do with windows that leave their contig.
    rename : names in the VCF file and in the genome, as ``--rename``.
    skip_contigs : whether variants on a contig that the genome lacks are counted and skipped; otherwise
        they are an error.
    skip_mismatches : whether a reference allele that differs from the genome is counted and skipped;
        otherwise it is an error.
    keep_dropped : whether alleles without a score get a line.
    """

    shape: SiteWindows | int
    both_strands: bool = False
    edges: str = "drop"
    rename: str | None = None
    skip_contigs: bool = False
    skip_mismatches: bool = False
    keep_dropped: bool = False


def score_variants(
    vcf: InputFile,
    genome: InputFile,
    scorer: BlockScorer,
    options: VariantOptions,
    file: IO[bytes],
    budget: Budget,
) -> ScoreSummary:
    """Write a line for each alternative allele of a VCF file, in its order.

    The columns are chrom, pos, id, ref and alt as in the file; the difference alt - ref of the margins
    that is largest in absolute value; the window where it is (start from 0, end, strand; bases of the
    reference) and its two margins; and the number of windows that were compared.
    """
    writer = _Writer(scorer, options, file)
    finder = _Finder(Genome(genome, budget), options)
    file.write(("\t".join(_COLUMNS) + "\n").encode())
    counts: Counter[str] = Counter()
    n_read = 0
    for allele in read_alleles(vcf, counts):
        n_read += 1
        pairs = None if allele.skipped else finder.pairs(allele, counts)
        writer.add(allele, pairs)
    writer.flush()
    if not n_read:
        raise InputError(f"{vcf.name}: expected at least one variant, found none")
    return ScoreSummary(n_read, writer.n_scored, counts, notes=finder.contigs.notes())


class _Finder:
    """Finds the windows of alleles."""

    def __init__(self, genome: Genome, options: VariantOptions) -> None:
        self._genome, self._options = genome, options
        renaming = Renaming.parse(options.rename)
        self.contigs = ContigNames(renaming, genome, "VCF", options.skip_contigs)

    def pairs(self, allele: Allele, counts: Counter[str]) -> WindowPairs | None:
        """The pairs of windows of an allele; None, and a count, if there are none."""
        contig = self.contigs.find(allele.chrom, allele.where)
        if contig < 0:
            counts[LACKING] += 1
            return None
        if not self._check_reference(allele, contig):
            counts["whose REF differs from the genome"] += 1
            return None
        change = Change.of(contig, allele.position - 1, allele.ref_codes, allele.alt_codes)
        options = self._options
        found = window_pairs(self._genome, change, options.shape, options.both_strands)
        if options.edges != "pad" and not found.inside.all():
            if options.edges == "error":
                raise InputError(
                    f"{allele.where}: a window around the variant leaves the contig {allele.chrom}; "
                    "give --edges drop or pad"
                )
            found = found.select(found.inside)
        if not len(found):
            counts["without a window"] += 1
            return None
        return found

    def _check_reference(self, allele: Allele, contig: int) -> bool:
        """Whether the reference allele is what the genome has; unknown letters agree with any."""
        start, ref = allele.position - 1, allele.ref_codes
        length = int(self._genome.lengths[contig])
        there = self._genome.letters(contig, start, start + len(ref))
        known = (ref != UNKNOWN) & (there != UNKNOWN)
        if start + len(ref) <= length and not (known & (ref != there)).any():
            return True
        if self._options.skip_mismatches:
            return False
        has = "".join((LETTERS[:UNKNOWN] + "N")[code] for code in there[:_MOST_SHOWN])
        if start + len(ref) > length:
            has = f"{counted(length, 'base')} in this contig"
        raise InputError(
            f"{allele.where}: REF is {shown(allele.ref[:_MOST_SHOWN])} at {allele.chrom}:"
            f"{allele.position}, but {self._genome.file_name} has {has}; give the genome that the "
            "variants were called on, or --skip-mismatches"
        )


@dataclass
class _Writer:
    """Scores pairs of windows block by block, and writes the lines of their alleles."""

    scorer: BlockScorer
    options: VariantOptions
    file: IO[bytes]
    n_scored: int = 0
    _waiting: list[tuple[Allele, WindowPairs | None]] = field(default_factory=list)
    _n_bytes: int = 0

    def add(self, allele: Allele, pairs: WindowPairs | None) -> None:
        """Add an allele; None for an allele without a score."""
        if pairs is None and not self.options.keep_dropped:
            return
        self._waiting.append((allele, pairs))
        self._n_bytes += _ALLELE_BYTES + len(allele.ref) + len(allele.alt)
        self._n_bytes += 0 if pairs is None else 2 * pairs.ref.nbytes
        if self._n_bytes >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Score and write all that waits."""
        found = [pairs for _, pairs in self._waiting if pairs is not None]
        ref = self._margins([pairs.ref for pairs in found])
        alt = self._margins([pairs.alt for pairs in found])
        self.file.write("".join(self._lines(ref, alt)).encode())
        self.n_scored += len(found)
        self._waiting.clear()
        self._n_bytes = 0

    def _margins(self, windows: Sequence[Codes]) -> np.ndarray:
        if not windows:
            return np.empty(0)
        return self.scorer.of_rows(MemoryReader(np.concatenate(windows), "windows of variants"))

    def _lines(self, ref: np.ndarray, alt: np.ndarray) -> Iterator[str]:
        at = 0
        for allele, pairs in self._waiting:
            named = [allele.chrom, str(allele.position), allele.id, allele.ref, allele.alt]
            if pairs is not None:
                here = slice(at, at + len(pairs))
                at = here.stop
                named += _result(pairs, ref[here], alt[here])
            yield "\t".join(named + [""] * (len(_COLUMNS) - len(named))) + "\n"


def _result(pairs: WindowPairs, ref: np.ndarray, alt: np.ndarray) -> list[str]:
    """The cells of the window with the largest change."""
    difference = alt - ref
    at = int(np.abs(difference).argmax())
    start = int(pairs.start[at])
    change, *margins = (repr(float(values[at])) for values in (difference, ref, alt))
    place = [str(start), str(start + pairs.ref.shape[1]), "-" if pairs.reverse[at] else "+"]
    return [change, *place, *margins, str(len(pairs))]
