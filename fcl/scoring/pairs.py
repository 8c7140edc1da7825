"""Windows with the reference and with the alternative allele of a variant.

A window is placed by its anchor, a letter of the reference. Letters before the variant and behind it
are the same in both alleles. A letter that only one allele has is paired with the letter of the other
allele at the same distance from the start of the variant, or with the first letter behind the variant if
the other allele is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.convert.genome import Genome
from fcl.convert.letters import Codes, Ints, reverse_complement
from fcl.scoring.sites import SiteWindows

__all__ = ["Change", "Pairs", "window_pairs"]


@dataclass(frozen=True)
class Change:
    """What a variant changes, without the letters that both alleles share at their ends.

    Attributes
    ----------
    contig : int
        Number of the contig.
    start : int
        First changed base, from 0.
    removed : int
        Bases of the reference that the alternative lacks.
    inserted : uint8 (letters,)
        Codes that replace them.
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
class Pairs:
    """Pairs of windows of one length.

    Attributes
    ----------
    ref, alt : uint8 (m, length)
        Codes of the windows with each allele, in the direction of the strand.
    start : int64 (m,)
        First base of the window of the reference, from 0, on the forward strand.
    reverse : bool (m,)
        Whether the windows are from the reverse strand.
    """

    ref: Codes
    alt: Codes
    start: Ints
    reverse: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start)


def window_pairs(
    genome: Genome, change: Change, shape: SiteWindows | int, both_strands: bool, pad: bool
) -> Pairs:
    """All pairs of windows that a change can make different.

    Parameters
    ----------
    genome : Genome
    change : Change
    shape : SiteWindows or int
        Windows around sites of the reference or the alternative; or a length: the one window whose middle
        letter is the first changed one.
    both_strands : bool
        Whether windows of the reverse strand count, too.
    pad : bool
        Whether to keep windows that leave the contig, with unknown letters.
    """
    length = shape if isinstance(shape, int) else shape.length
    first = change.start - length
    stop = change.start + change.removed + length
    ref = genome.letters(change.contig, first, stop)
    inserted = change.inserted
    alt = np.concatenate([ref[:length], inserted, ref[length + change.removed :]])
    n_letters = int(genome.lengths[change.contig])
    found = []
    for reverse in (False, True) if both_strands else (False,):
        if reverse:
            ref, alt = reverse_complement(ref[None])[0], reverse_complement(alt[None])[0]
        # the variant has as many letters before it as behind it, so it begins at `length` either way
        local = _Local(ref, alt, length, change.removed, len(inserted))
        in_ref, in_alt = local.starts(shape)
        if not pad:
            shift = _shift(in_ref, local, reverse, first)
            inside = (shift >= 0) & (shift + length <= n_letters)
            shift = _shift(in_alt, local.turned(), reverse, first)
            inside &= (shift >= 0) & (shift + length <= n_letters + local.grown)
            in_ref, in_alt = in_ref[inside], in_alt[inside]
        found.append(
            Pairs(
                _cut(ref, in_ref, length),
                _cut(alt, in_alt, length),
                _shift(in_ref, local, reverse, first),
                np.full(len(in_ref), reverse),
            )
        )
    return Pairs(*(np.concatenate([getattr(p, name) for p in found]) for name in _FIELDS))


_FIELDS = ("ref", "alt", "start", "reverse")


def _cut(codes: Codes, starts: Ints, length: int) -> Codes:
    return codes[starts[:, None] + np.arange(length)]


@dataclass(frozen=True)
class _Local:
    """Both alleles with one window's length of letters on each side, in the direction of a strand.

    at : where the variant begins.
    removed, inserted : its letters in each allele.
    """

    ref: Codes
    alt: Codes
    at: int
    removed: int
    inserted: int

    @property
    def grown(self) -> int:
        """How many letters the alternative has more than the reference."""
        return self.inserted - self.removed

    def turned(self) -> _Local:
        """The alternative as the reference."""
        return _Local(self.alt, self.ref, self.at, self.inserted, self.removed)

    def partner(self, anchor: Ints) -> Ints:
        """The letters of the alternative that anchors in the reference are paired with."""
        within = np.minimum(anchor, self.at + self.inserted)
        behind = anchor >= self.at + self.removed
        return np.where(anchor < self.at, anchor, np.where(behind, anchor + self.grown, within))

    def starts(self, shape: SiteWindows | int) -> tuple[Ints, Ints]:
        """Where the windows of all pairs begin in the reference and in the alternative."""
        if isinstance(shape, int):
            middle = np.array([self.at - shape // 2])
            return middle, middle
        in_ref, in_alt = shape.pattern.find(self.ref), shape.pattern.find(self.alt)
        both_ref = np.concatenate([in_ref, self.turned().partner(in_alt)])
        both_alt = np.concatenate([self.partner(in_ref), in_alt])
        n = len(self.alt) + 1  # one number for each pair: np.unique of pairs is slow
        pairs = np.unique(both_ref * n + both_alt)
        return self._overlapping(pairs // n - shape.origin, pairs % n - shape.origin, shape.length)

    def _overlapping(self, in_ref: Ints, in_alt: Ints, length: int) -> tuple[Ints, Ints]:
        """The pairs in which either window holds a letter of the variant."""
        keep = (in_ref < self.at + self.removed) & (in_ref + length > self.at)
        keep |= (in_alt < self.at + self.inserted) & (in_alt + length > self.at)
        return in_ref[keep], in_alt[keep]


def _shift(starts: Ints, local: _Local, reverse: bool, first: int) -> Ints:
    """Positions of windows on the forward strand of the contig."""
    if reverse:
        starts = len(local.ref) - starts - local.at  # at is the length of a window
    return first + starts
