"""The three files of PLINK: genotypes (.bed), variants (.bim) and samples (.fam)."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import TEXT_BYTES, Budget
from fcl.convert.files import InputFile, decoded, named_twice
from fcl.convert.rereading import complete_lines
from fcl.data.columns import Variant
from fcl.errors import InputError
from fcl.memory.allowance import allow
from fcl.units import counted

_MAGIC = b"\x6c\x1b"
_BY_VARIANT = b"\x01"
_HEADER_BYTES = 3
#: Texts that are held for a sample, if it is looked up by name.
_TEXTS_OF_SAMPLE = 5


@dataclass(frozen=True)
class Samples:
    """The samples of a .fam file, n of them.

    sex : int8 (n,), 1 male, 2 female, 0 unknown.
    """

    family: list[str]
    ids: list[str]
    sex: np.ndarray
    phenotype: list[str]

    @property
    def names(self) -> list[str]:
        """Ids, if they are unique; else FAMILY_ID."""
        return self.ids if len(set(self.ids)) == len(self.ids) else self.full_names

    @property
    def full_names(self) -> list[str]:
        """FAMILY_ID."""
        return [f"{family}_{name}" for family, name in zip(self.family, self.ids, strict=True)]

    def index(self) -> dict[tuple[str, ...], int]:
        """(FAMILY, ID), or one name -> sample: the names are ids and full names of one sample only."""
        singles: dict[tuple[str, ...], int] = {}
        for names in (self.ids, self.full_names):
            for at, name in enumerate(names):
                if singles.setdefault((name,), at) != at:
                    singles[name,] = -1
        found = {key: at for key, at in singles.items() if at >= 0}
        pairs = zip(self.family, self.ids, strict=True)
        return found | {pair: at for at, pair in enumerate(pairs)}

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class PlinkVariants:
    """The variants of a .bim file.

    names : their ids; duplicates have chrom:pos:a1:a2 appended.
    a1, a2 : their alleles; the genotypes count a1. "0" is an allele that the file does not name.
    position : array of int64, of the base, from 1; 0 if it is not known.
    """

    names: list[str]
    a1: list[str]
    a2: list[str]
    chromosome: list[str]
    position: array[int]

    def __len__(self) -> int:
        return len(self.names)

    def some(self, columns: Sequence[int]) -> dict[int, Variant]:
        """Some of the variants by their place in the file, as the record of columns has them."""
        return {
            at: Variant(
                self.a1[at],
                self.a2[at],
                chromosome=self.chromosome[at],
                position=self.position[at],
            )
            for at in columns
        }


@dataclass(frozen=True)
class Trio:
    """PLINK files, of which the .bed file has the right size."""

    bed: InputFile
    bim: InputFile
    fam: InputFile
    samples: Samples
    variants: PlinkVariants

    @classmethod
    def open(cls, bed: InputFile, budget: Budget) -> Trio:
        """Read the .bim and .fam files beside a .bed file."""
        if bed.is_stdin or bed.compressed:
            raise InputError(
                f"{bed.name}: expected an uncompressed .bed file on disk, with .bim and .fam "
                "beside it"
            )
        parts = {suffix: bed.path.with_suffix(suffix) for suffix in (".bim", ".fam")}
        if missing := [path for path in parts.values() if not path.exists()]:
            raise InputError(
                f"{' and '.join(map(str, missing))}: does not exist; expected the three files "
                f"{bed.path.stem}.bed, .bim and .fam in one folder"
            )
        bim, fam = InputFile(parts[".bim"]), InputFile(parts[".fam"])
        samples = _read_samples(fam)
        n_variants = ((bed.size or 0) - _HEADER_BYTES) // -(-len(samples) // 4)
        names = (
            f"the names of {counted(len(samples), 'sample')} and {counted(n_variants, 'variant')}"
        )
        budget.check(names, TEXT_BYTES * (_TEXTS_OF_SAMPLE * len(samples) + n_variants))
        trio = cls(bed, bim, fam, samples, _read_variants(bim))
        trio._check_size()
        return trio

    def _check_size(self) -> None:
        if not self.bed.head.startswith(_MAGIC + _BY_VARIANT):
            raise InputError(
                f"{self.bed.name}: expected a PLINK 1 file in the order of variants (bytes 6c 1b "
                f"01), got {self.bed.head[:3].hex(' ')}; write it again: plink --make-bed"
            )
        expected = _HEADER_BYTES + len(self.variants) * -(-len(self.samples) // 4)
        if self.bed.size != expected:
            raise InputError(
                f"{self.bed.name}: expected {counted(expected, 'byte')} for "
                f"{counted(len(self.samples), 'sample')} "
                f"(.fam) and {counted(len(self.variants), 'variant')} (.bim), got "
                f"{self.bed.size:,}; is a "
                "file cut off, or of another data set?"
            )


def fields(text: str) -> list[str]:
    """The cells of a line: separated by tabs, or else by blanks."""
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def records(file: InputFile) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line that is not blank, with its number from 1."""
    for first, content in complete_lines(file, 1 << 22):
        # the names of the lines so far, and a slice as text with its cells
        needed = TEXT_BYTES * first + 20 * len(content)
        allow(f"{file.name}: {first:,} lines, or more, need", needed)
        for number, line in enumerate(decoded(file.name, content, first).splitlines(), first):
            if line.strip():
                yield number, fields(line)


def _records(file: InputFile) -> Iterator[tuple[int, list[str]]]:
    """Lines of six cells, numbered from 1."""
    for number, fields_of_line in records(file):
        cells = " ".join(fields_of_line).split()  # tabs and blanks may be mixed
        if len(cells) != 6:
            raise InputError(
                f"{file.name}: line {number}: expected 6 columns, got {len(cells)}: "
                f"{shown(' '.join(cells))}"
            )
        yield number, cells


def _read_samples(fam: InputFile) -> Samples:
    family, ids, sexes, phenotype = [], [], [], []
    seen: dict[tuple[str, str], int] = {}
    for number, (group, name, _, _, sex, value) in _records(fam):
        if seen.setdefault((group, name), number) != number:
            first = seen[group, name]
            raise named_twice(fam.name, "sample", f"{group} {name}", first, number)
        family.append(sys.intern(group))
        ids.append(name)
        sexes.append(int(sex) if sex in ("1", "2") else 0)
        phenotype.append(sys.intern(value))
    if not ids:
        raise InputError(f"{fam.name}: expected samples, got an empty file")
    return Samples(family, ids, np.array(sexes, np.int8), phenotype)


def _read_variants(bim: InputFile) -> PlinkVariants:
    found = PlinkVariants([], [], [], [], array("q"))
    for _, (chromosome, name, _, position, first, second) in _records(bim):
        found.names.append(name)
        found.a1.append(sys.intern(first))
        found.a2.append(sys.intern(second))
        found.chromosome.append(sys.intern(chromosome))
        is_known = position.isascii() and position.isdecimal() and len(position) < 19
        found.position.append(int(position) if is_known else 0)
    names = found.names
    if not names:
        raise InputError(f"{bim.name}: expected variants, got an empty file")
    if len(set(names)) < len(names):
        counts = Counter(names)
        # read again: places of all variants would take as much memory as their names
        for at, (_, cells) in enumerate(_records(InputFile(bim.path))):
            chromosome, name, _, position, first, second = cells
            if counts[name] > 1:
                names[at] = f"{name}_{chromosome}:{position}:{first}:{second}"
        _refuse_duplicates(bim, names)
    return found


def _refuse_duplicates(bim: InputFile, names: list[str]) -> None:
    """Raise InputError for two variants with the same name, place and alleles."""
    seen: dict[str, int] = {}
    for at, name in enumerate(names):
        if seen.setdefault(name, at) != at:
            raise InputError(
                f"{bim.name}: the variants {seen[name] + 1} and {at + 1} have the same name, place and "
                f"alleles ({shown(name)}); expected each variant once: use plink2 --rm-dup"
            )
