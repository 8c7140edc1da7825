"""VCF files as alleles to score: SNVs and short insertions, deletions and replacements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.files import InputFile
from fcl.convert.letters import Codes, encode
from fcl.data.sequences import UNKNOWN
from fcl.errors import InputError
from fcl.numerals import read_whole

_SLICE_BYTES = 1 << 18
_COLUMNS = 5
#: Longer alleles are counted and skipped.
MOST_LETTERS = 10_000
#: Bytes up to the end of ALT; the columns behind ALT may be longer.
_MOST_BYTES = 16 << 20
#: Characters of alleles that are no sequences: <DEL>, *, breakends, and missing alleles.
_SYMBOLIC = frozenset("<>[]*.")
_NO_CODES = np.empty(0, np.uint8)
_CODES = bytes(range(UNKNOWN + 1))


@dataclass(frozen=True)
class Allele:
    """One alternative allele of a line.

    chrom, id, ref, alt : as in the file.
    position : of the first letter of ``ref``, from 1.
    ref_codes, alt_codes : uint8 (letters,), the letters of ``ref`` and ``alt`` as codes; without letters
        of ``alt`` if the allele is skipped.
    skipped : why it is not scored; empty if it is.
    """

    where: str
    chrom: str
    position: int
    id: str
    ref: str
    alt: str
    ref_codes: Codes
    alt_codes: Codes
    skipped: str = ""


def read_alleles(file: InputFile, counts: Counter[str]) -> Iterator[Allele]:
    """Read the alternative alleles of a VCF file, plain or compressed, in the order of the file.

    counts : gets the number of alleles that are not scored, by reason.
    """
    if file.head.startswith(b"BCF"):
        raise InputError(f"{file.name} is a BCF file; expected VCF: convert it with bcftools view")
    for number, line in enumerate(_lines(file), 1):
        if not line or line.startswith(b"#"):
            continue
        for allele in _alleles(f"{file.name}: line {number}", line):
            if allele.skipped:
                counts[allele.skipped] += 1
            yield allele


def _lines(file: InputFile) -> Iterator[bytes]:
    """The lines, without carriage returns; of a long line at least the columns up to ALT.

    Genotypes of many samples make lines of many megabytes, which are not kept.
    """
    line, number = b"", 1
    for data in file.text_slices(_SLICE_BYTES):
        first, *others = data.split(b"\n")
        if line.count(b"\t") < _COLUMNS:
            line += first
        if len(line) > _MOST_BYTES and line.count(b"\t") < _COLUMNS:
            raise InputError(
                f"{file.name}: line {number}: expected at most {_MOST_BYTES:,} bytes in the columns "
                "CHROM to ALT, got more; is this a VCF file?"
            )
        for each in others:
            yield line.rstrip(b"\r")
            line = each
        number += len(others)
    yield line.rstrip(b"\r")


def _alleles(where: str, line: bytes) -> Iterator[Allele]:
    cells = [cell.decode("utf-8", "replace") for cell in line.split(b"\t", _COLUMNS)[:_COLUMNS]]
    if len(cells) < _COLUMNS:
        raise InputError(
            f"{where}: expected the columns CHROM, POS, ID, REF and ALT of VCF, separated by tabs, got "
            f"{len(cells)}: {shown(line.decode('utf-8', 'replace'))}"
        )
    chrom, position, name, ref, joined = cells
    alts = joined.split(",")
    skipped = [_why_skipped(ref, alt) for alt in alts]
    # a symbolic allele may lie before the first base, at a telomere
    least = 0 if all(skipped) else 1
    start = read_whole(position)
    if start is None or not least <= start < 1 << 62:
        raise InputError(f"{where}: expected a position (POS) from 1 on, got {shown(position)}")
    ref_codes = _codes(where, "REF", ref)
    alt_codes = [
        _NO_CODES if why else _codes(where, "ALT", alt)
        for alt, why in zip(alts, skipped, strict=True)
    ]
    for alt, codes, why in zip(alts, alt_codes, skipped, strict=True):
        yield Allele(where, chrom, start, name, ref, alt, ref_codes, codes, why)


def _why_skipped(ref: str, alt: str) -> str:
    if alt == ".":
        return "without an alternative allele"
    if set(alt) & _SYMBOLIC:
        return "symbolic alleles and breakends"
    if max(len(ref), len(alt)) > MOST_LETTERS:
        return f"longer than {MOST_LETTERS:,} letters"
    return ""


def _codes(where: str, column: str, text: str) -> Codes:
    """The letters of an allele as codes; raises InputError for other characters."""
    codes = encode(text.encode())
    if not text or "-" in text or len(codes) != len(text) or codes.translate(None, _CODES):
        raise InputError(f"{where}: expected nucleotides in {column}, got {shown(text)}")
    return np.frombuffer(codes, np.uint8)
