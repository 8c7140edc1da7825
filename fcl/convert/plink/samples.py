"""Which samples are kept, their phenotypes and covariates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcl.checks import shown
from fcl.convert.contract import Categorical, Column
from fcl.convert.files import InputFile, named_twice
from fcl.convert.plink.trio import Samples, records
from fcl.errors import InputError
from fcl.numerals import read_number

#: How PLINK writes that a phenotype is unknown, apart from 0 for case and control.
_UNKNOWN = ("-9", "NA", "na", "NaN", "nan", ".", "")
_UNKNOWN_NUMBER = -9
#: Arrays of what is known about samples that covariates may not replace.
_OTHER_ARRAYS = ("name", "family", "source_row")
#: First cells of headers, in capitals.
_HEADS = ("FID", "#FID", "IID", "#IID")


@dataclass(frozen=True)
class Phenotype:
    """The target of all samples of a .fam file.

    values : float64 (n,), NaN for a sample without a value.
    is_case_control : whether the values are 1 (control) and 2 (case).
    file : the table that holds the values, if it is not the .fam file.
    """

    values: np.ndarray
    is_case_control: bool
    file: InputFile | None
    note: str


def named_samples(option: str, file: InputFile, samples: Samples) -> tuple[np.ndarray, int]:
    """Which samples a list names, by FAMILY ID or by name, and how many names no sample has."""
    index = samples.index()
    named = np.zeros(len(samples), bool)
    n_unknown = 0
    for _, cells in records(file):
        if cells[0].upper() in _HEADS:
            continue
        at = index.get(tuple(cells[:2]))
        n_unknown += at is None
        if at is not None:
            named[at] = True
    if not named.any():
        raise InputError(
            f"{option}: none of the names in {file.name} is in the .fam file, whose samples are "
            f"{_some(samples)}; expected lines of FAMILY and ID, or of one name"
        )
    return named, n_unknown


def read_phenotype(option: str | None, samples: Samples, fam_name: str) -> Phenotype | None:
    """Read the phenotypes of ``TABLE:COLUMN``, or of the .fam file.

    Returns None if the .fam file has no phenotypes.
    """
    if option is None:
        numbers = np.array(
            [
                _number(value, f"{fam_name}: {name}", "column 6")
                for name, value in zip(samples.names, samples.phenotype, strict=True)
            ]
        )
        found = _target(numbers, None, "column 6 of the .fam file")
        return None if np.isnan(found.values).all() else found
    path, _, column = option.rpartition(":")
    if not path:
        raise InputError(f"--y: expected TABLE.tsv:COLUMN for PLINK files, got {shown(option)}")
    file = InputFile(path)
    numbers = _column(file, column, samples)
    found = _target(numbers, file, f"the column {column} of {file.name}")
    if np.isnan(found.values).all():
        raise InputError(f"--y: {found.note}: no sample has a value")
    return found


def _column(file: InputFile, column: str, samples: Samples) -> np.ndarray:
    header, rows = _sample_lines("--y", file, samples)
    if column not in header:
        raise InputError(
            f"--y: {file.name} has no column {shown(column)}; its first line has "
            f"{', '.join(map(shown, header[:12]))}"
        )
    if header.count(column) > 1:
        raise InputError(
            f"--y: {header.count(column)} columns of {file.name} have the name {shown(column)}; "
            "rename one of them"
        )
    at = header.index(column)
    values = np.full(len(samples), np.nan)
    for sample, (number, cells) in rows.items():
        values[sample] = _number(cells[at], f"{file.name}: line {number}", column)
    return values


def read_covariates(file: InputFile, samples: Samples) -> tuple[dict[str, Column], np.ndarray]:
    """The covariates of a table by name, as ``plink --covar`` reads it, and which samples have all."""
    header, rows = _sample_lines("--covariates", file, samples)
    first = _n_keys(header)
    names = header[first:]
    for name in names:
        if names.count(name) > 1 or name in _OTHER_ARRAYS or "/" in name:
            raise InputError(
                f"--covariates: {file.name}: expected columns of distinct names, which differ from "
                f"{', '.join(_OTHER_ARRAYS)} and have no /, got {shown(name)}; rename it"
            )
    known = np.zeros(len(samples), bool)
    known[list(rows)] = True
    found: dict[str, Column] = {}
    for at in range(first, len(header)):
        texts = {sample: cells[at] for sample, (_, cells) in rows.items()}
        there = {sample: text for sample, text in texts.items() if text not in _UNKNOWN}
        known[[sample for sample in texts if sample not in there]] = False
        found[header[at]] = _covariate(file, header[at], there, len(samples))
    if not found:
        raise InputError(f"--covariates: {file.name} has no column beside the names of samples")
    return found, known


def _covariate(file: InputFile, name: str, texts: dict[int, str], n: int) -> Column:
    numbers = {sample: read_number(text) for sample, text in texts.items()}
    wrong = [sample for sample, number in numbers.items() if number is None or np.isinf(number)]
    has_commas = all(read_number(text.replace(",", ".")) is not None for text in texts.values())
    if wrong and (len(wrong) < len(texts) or has_commas):
        raise InputError(
            f"--covariates: {file.name}: expected finite numbers with a point for decimals in the column "
            f"{shown(name)}, or NA, got {shown(texts[wrong[0]])}; correct it, or write texts in all rows "
            "for categories"
        )
    if not wrong:
        values = np.full(n, np.nan)
        values[list(numbers)] = list(numbers.values())
        return values
    levels = sorted(set(texts.values()))
    codes = np.zeros(n, np.int32)
    codes[list(texts)] = [levels.index(text) for text in texts.values()]
    return Categorical(codes, levels)


def _n_keys(header: list[str]) -> int:
    return 2 if [cell.lstrip("#").upper() for cell in header[:2]] == ["FID", "IID"] else 1


def _sample_lines(
    option: str, file: InputFile, samples: Samples
) -> tuple[list[str], dict[int, tuple[int, list[str]]]]:
    """The header of a table, and by sample the number and the cells of its line."""
    lines = records(file)
    _, header = next(lines, (0, []))
    if not header:
        raise InputError(
            f"{file.name}: expected a table with a line for each sample, got an empty file"
        )
    index, n_keys = samples.index(), _n_keys(header)
    found: dict[int, tuple[int, list[str]]] = {}
    key: list[str] = []
    for number, cells in lines:
        if len(cells) != len(header):
            raise InputError(
                f"{file.name}: line {number}: expected {len(header)} columns, got {len(cells)}"
            )
        key = cells[:n_keys]
        sample = index.get(tuple(key))
        if sample is None:
            continue
        if sample in found:
            raise named_twice(file.name, "sample", " ".join(key), found[sample][0], number)
        found[sample] = number, cells
    if not found:
        mark = next((mark for mark in ",;" if len(header) == 1 and mark in header[0]), "")
        hint = f"; write tabs in place of {mark!r} between the columns" if mark else ""
        raise InputError(
            f"{option}: no sample of {file.name}, such as {shown(' '.join(key))}, "
            f"is in the .fam file, whose samples are {_some(samples)}; expected FID and IID, or "
            f"one column of names (ID or FAMILY_ID){hint}"
        )
    return header, found


def _target(numbers: np.ndarray, file: InputFile | None, where: str) -> Phenotype:
    """Tell case and control from a trait: all values are 1 or 2, or unknown (0, -9, NA)."""
    known = numbers[~np.isnan(numbers) & (numbers != _UNKNOWN_NUMBER)]
    found = set(np.unique(known).tolist())
    if found == {0, 1}:
        raise InputError(
            f"--y: {where} has the values 0 and 1, but PLINK reads 1 as control, 2 as case and 0 "
            "as unknown; write 1 and 2"
        )
    if found <= {0, 1, 2}:
        values = np.where((numbers == 1) | (numbers == 2), numbers, np.nan)
        note = f"y: {where}, 1 = control, 2 = case; 0 and -9 are unknown"
        return Phenotype(values, True, file, note)
    values = np.where(numbers == _UNKNOWN_NUMBER, np.nan, numbers)
    return Phenotype(values, False, file, f"y: {where}, a trait; -9 is unknown, 0 a value")


def _number(text: str, where: str, column: str) -> float:
    if text in _UNKNOWN:
        return np.nan
    value = read_number(text)
    if value is None or np.isinf(value):
        raise InputError(
            f"{where}: expected a finite number as phenotype ({column}), or NA, got {shown(text)}"
        )
    return value


def _some(samples: Samples) -> str:
    pairs = list(zip(samples.family, samples.ids, strict=True))[:3]
    return ", ".join(shown(f"{family} {name}") for family, name in pairs)
