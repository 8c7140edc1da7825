"""Windows with the reference and with the alternative allele of a variant.

A window is placed by its anchor, a letter of the reference. Letters before the variant and behind it
are the same in both alleles. A letter that only one allele has is paired with the letter of the other
allele at the same distance from the start of the variant, or with the first letter behind the variant if
the other allele is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from fcl.convert.genome import Genome
from fcl.convert.letters import Codes, reverse_complement
from fcl.scoring.patterns import SitePattern
from fcl.scoring.sites import SiteWindows
from fcl.types import Ints, Mask


@dataclass(frozen=True)
class Change:
    """What a variant changes, without the letters that both alleles share at their ends.

    contig : number of the contig.
    start : first changed base, from 0.
    removed : bases of the reference that the alternative lacks.
    inserted : uint8 (letters,), codes that replace them.
    """

    contig: int
    start: int
    removed: int
    inserted: Codes

    @classmethod
    def of(cls, contig: int, start: int, ref: Codes, alt: Codes) -> Change:
        """The change from one allele at ``start`` to another."""
        most = min(len(ref), len(alt))
        before = _common(ref[:most], alt[:most])
        most -= before
        behind = _common(ref[::-1][:most], alt[::-1][:most])
        return cls(
            contig, start + before, len(ref) - before - behind, alt[before : len(alt) - behind]
        )


def _common(a: Codes, b: Codes) -> int:
    """Number of equal codes at the beginning."""
    other = a != b
    return int(other.argmax()) if other.any() else len(a)


@dataclass(frozen=True)
class WindowPairs:
    """Pairs of windows of one length.

    ref, alt : uint8 (m, length), codes of the windows with each allele, in the direction of the strand;
        unknown outside the contig.
    start : int64 (m,), first base of the window of the reference, from 0, on the forward strand.
    reverse : bool (m,), whether the windows are from the reverse strand.
    inside : bool (m,), whether both windows lie inside the contig.
    """

    ref: Codes
    alt: Codes
    start: Ints
    reverse: Mask
    inside: Mask

    def __len__(self) -> int:
        return len(self.start)

    def select(self, index: Mask) -> WindowPairs:
        """Some of the pairs."""
        return WindowPairs(*(getattr(self, name)[index] for name in _FIELDS))

    @classmethod
    def concatenate(cls, parts: Sequence[WindowPairs]) -> WindowPairs:
        """Join pairs of windows of the same length."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))


_FIELDS = tuple(each.name for each in fields(WindowPairs))


def window_pairs(
    genome: Genome, change: Change, shape: SiteWindows | int, both_strands: bool
) -> WindowPairs:
    """All pairs of windows that a change can make different.

    change : inside its contig.
    shape : windows around sites of the reference or the alternative; or a length: the one window whose
        middle letter is the first changed one.
    both_strands : whether windows of the reverse strand count, too.
    """
    length = shape if isinstance(shape, int) else shape.length
    first = change.start - length
    codes = genome.letters(change.contig, first, change.start + change.removed + length)
    end = min(int(genome.lengths[change.contig]) - first, len(codes))
    ref = _Allele(codes, length, change.removed, max(-first, 0), end)
    alt = ref.replaced(change.inserted)
    forward = _pairs(ref, alt, shape, length)
    forward = replace(forward, start=first + forward.start)
    if not both_strands:
        return forward
    turned = _pairs(ref.turned(), alt.turned(), shape, length)
    start = first + len(codes) - turned.start - length
    return WindowPairs.concatenate([forward, replace(turned, start=start, reverse=~turned.reverse)])


def _pairs(ref: _Allele, alt: _Allele, shape: SiteWindows | int, length: int) -> WindowPairs:
    """The pairs of windows of one strand; ``start`` counts from the first letter of the allele."""
    if isinstance(shape, int):
        in_ref = in_alt = np.array([ref.at - length // 2])
    else:
        in_ref, in_alt = _around_sites(ref, alt, shape)
    return WindowPairs(
        ref.cut(in_ref, length),
        alt.cut(in_alt, length),
        in_ref,
        np.zeros(len(in_ref), np.bool_),
        ref.holds(in_ref, length) & alt.holds(in_alt, length),
    )


def _around_sites(ref: _Allele, alt: _Allele, shape: SiteWindows) -> tuple[Ints, Ints]:
    """Where the windows of all pairs begin in the reference and in the alternative."""
    sites_ref, sites_alt = ref.sites(shape.pattern), alt.sites(shape.pattern)
    if ref.size == alt.size:  # each letter is paired with the letter at the same place
        starts = np.unique(np.concatenate([sites_ref, sites_alt])) - shape.origin
        starts = starts[ref.is_changed(starts, shape.length)]
        return starts, starts
    both_ref = np.concatenate([sites_ref, _partners(sites_alt, alt, ref)])
    both_alt = np.concatenate([_partners(sites_ref, ref, alt), sites_alt])
    n = len(alt.codes) + 1  # one number for each pair: np.unique of pairs is slow
    pairs = np.unique(both_ref * n + both_alt)
    in_ref, in_alt = pairs // n - shape.origin, pairs % n - shape.origin
    keep = ref.is_changed(in_ref, shape.length) | alt.is_changed(in_alt, shape.length)
    return in_ref[keep], in_alt[keep]


def _partners(letters: Ints, of: _Allele, other: _Allele) -> Ints:
    """The letters of the other allele that letters of an allele are paired with."""
    within = np.minimum(letters, other.at + other.size)
    behind = letters >= of.at + of.size
    return np.where(
        letters < of.at, letters, np.where(behind, letters + other.size - of.size, within)
    )


@dataclass(frozen=True)
class _Allele:
    """An allele with one window's length of letters on each side, in the direction of a strand.

    codes : the letters; unknown outside the contig.
    at, size : where the letters of the variant begin, and how many there are.
    first, end : where the contig begins and ends.
    """

    codes: Codes
    at: int
    size: int
    first: int
    end: int

    def replaced(self, inserted: Codes) -> _Allele:
        """The allele with other letters at the place of the variant."""
        codes = np.concatenate([self.codes[: self.at], inserted, self.codes[self.at + self.size :]])
        grown = len(inserted) - self.size
        return _Allele(codes, self.at, len(inserted), self.first, self.end + grown)

    def turned(self) -> _Allele:
        """The allele on the reverse strand; as many letters lie before the variant as behind it."""
        n = len(self.codes)
        codes = reverse_complement(self.codes[None])[0]
        return _Allele(codes, self.at, self.size, n - self.end, n - self.first)

    def sites(self, pattern: SitePattern) -> Ints:
        """Where a pattern begins inside the contig."""
        return self.first + pattern.find(self.codes[self.first : self.end])

    def cut(self, starts: Ints, length: int) -> Codes:
        """The windows that begin at these letters."""
        return self.codes[starts[:, None] + np.arange(length)]

    def holds(self, starts: Ints, length: int) -> Mask:
        """Which windows lie inside the contig."""
        return (starts >= self.first) & (starts + length <= self.end)

    def is_changed(self, starts: Ints, length: int) -> Mask:
        """Which windows hold a letter of the variant."""
        return (starts < self.at + self.size) & (starts + length > self.at)
