"""VCF files as alleles to score: SNVs and short insertions, deletions and replacements."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.files import InputFile
from fcl.convert.letters import Codes, encode, first_invalid
from fcl.errors import InputError

__all__ = ["Allele", "read_alleles"]

_SLICE_BYTES = 1 << 18
_COLUMNS = 5
#: Longer alleles are counted and skipped.
MOST_LETTERS = 10_000
#: Characters of alleles that are no sequences: <DEL>, *, breakends, and missing alleles.
_SYMBOLIC = frozenset("<>[]*.")


@dataclass(frozen=True)
class Allele:
    """One alternative allele of a line.

    Attributes
    ----------
    where : str
        File and line, for messages.
    chrom, id, ref, alt : str
        As in the file.
    position : int
        Of the first letter of ``ref``, from 1.
    skipped : str
        Why it is not scored; empty if it is.
    """

    where: str
    chrom: str
    position: int
    id: str
    ref: str
    alt: str
    skipped: str = ""

    @property
    def ref_codes(self) -> Codes:
        """The letters of ``ref`` as codes."""
        return np.frombuffer(encode(self.ref.encode()), np.uint8)

    @property
    def alt_codes(self) -> Codes:
        """The letters of ``alt`` as codes."""
        return np.frombuffer(encode(self.alt.encode()), np.uint8)


def read_alleles(file: InputFile, counts: Counter[str]) -> Iterator[Allele]:
    """Read the alternative alleles of a VCF file, plain or compressed, in the order of the file.

    Parameters
    ----------
    file : InputFile
    counts : Counter
        Gets the number of alleles that are not scored, by reason.

    Raises
    ------
    InputError
        A line has too few columns, a position that is no number, or letters that are no nucleotides; the
        message names file and line.
    """
    for number, line in enumerate(_lines(file), 1):
        if not line or line.startswith("#"):
            continue
        where = f"{file.name}: line {number}"
        for allele in _alleles(where, line):
            if allele.skipped:
                counts[allele.skipped] += 1
            yield allele


def _lines(file: InputFile) -> Iterator[str]:
    carry = b""
    for data in itertools.chain(file.slices(_SLICE_BYTES), (b"\n",)):
        text, line_end, carry = (carry + data).rpartition(b"\n")
        if line_end:
            yield from text.decode("utf-8", "replace").replace("\r", "").split("\n")


def _alleles(where: str, line: str) -> Iterator[Allele]:
    cells = line.split("\t", _COLUMNS)
    if len(cells) < _COLUMNS:
        raise InputError(
            f"{where}: expected the columns CHROM, POS, ID, REF and ALT of VCF, separated by tabs, got "
            f"{len(cells)}: {shown(line)}"
        )
    chrom, position, name, ref, alts = cells[:_COLUMNS]
    if not position.isdecimal() or len(position) > 18 or int(position) < 1:
        raise InputError(f"{where}: expected a position (POS) from 1 on, got {shown(position)}")
    _check_letters(where, "REF", ref)
    skipped = {alt: _why_skipped(ref, alt) for alt in alts.split(",")}
    for alt, why in skipped.items():
        if not why:
            _check_letters(where, "ALT", alt)
    for alt in alts.split(","):
        yield Allele(where, chrom, int(position), name, ref, alt, skipped[alt])


def _why_skipped(ref: str, alt: str) -> str:
    if alt == ".":
        return "without an alternative allele"
    if set(alt) & _SYMBOLIC:
        return "symbolic alleles and breakends"
    if max(len(ref), len(alt)) > MOST_LETTERS:
        return f"longer than {MOST_LETTERS:,} letters"
    return ""


def _check_letters(where: str, column: str, text: str) -> None:
    codes = np.frombuffer(encode(text.encode()), np.uint8)
    if not text or "-" in text or len(codes) != len(text) or first_invalid(codes) >= 0:
        raise InputError(f"{where}: expected nucleotides in {column}, got {shown(text)}")
