"""Cells of lines of text, and the columns that options name."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from fcl.checks import shown
from fcl.data.sequences import LETTERS
from fcl.errors import InputError
from fcl.numerals import read_whole

#: Texts of nucleotide codes that mean a missing value.
_MISSING = ("NA", "NAN")


def fields_of(line: str) -> list[str]:
    """The cells of a line of a table: separated by tabs, or else commas, or else blanks."""
    separator = next((mark for mark in "\t," if mark in line), None)
    if separator is None:
        return line.split()
    return [cell.strip() for cell in cells_of([line], separator)[0]]


def cells_of(lines: Sequence[str], separator: str) -> list[list[str]]:
    """The cells of lines; cells may be quoted, but not continue in the next line."""
    if any('"' in line for line in lines):
        try:
            return list(csv.reader(lines, delimiter=separator))
        except csv.Error:  # a huge cell, or a carriage return within a line
            pass
    return [line.split(separator) if line else [] for line in lines]


def find_column(file_name: str, first: Sequence[str], column: str) -> tuple[int, bool]:
    """Index of a column, and whether it was found by its name in the first line.

    A number from 1 to the number of columns is always a position. Any other text is a name.
    """
    number = read_whole(column)
    if number is not None and 1 <= number <= len(first):
        return number - 1, False
    if column in first:
        return list(first).index(column), True
    names = ", ".join(map(shown, first[:12]))
    raise InputError(
        f"{file_name}: has no column {shown(column)}; expected a number from 1 to {len(first)}, or one "
        f"of {names}"
    )


def is_sequence_table(head: bytes, x: str) -> bool:
    """Whether the column ``x`` of a table, by its first two lines, holds sequences."""
    lines = head.decode("utf-8", "replace").splitlines()[:2]
    if not lines:
        return False
    rows = cells_of(lines, delimiter_of(lines[0]))
    try:
        at, is_name = find_column("", [cell.strip() for cell in rows[0]], x)
    except InputError:
        return False
    return any(len(row) > at and is_sequence(row[at]) for row in rows[is_name:])


def is_sequence(text: str) -> bool:
    """Whether a cell of a table may be a sequence of nucleotides."""
    word = text.strip().upper()
    return len(word) > 1 and set(word) <= LETTERS.keys() and word not in _MISSING


def delimiter_of(line: str) -> str:
    """The mark between the cells of a table of sequences."""
    return "\t" if "\t" in line else ","
