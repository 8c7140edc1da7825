"""The pictures of a report as SVG files, and its numbers as CSV and JSON files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fcl.files.atomic import atomic_file, new_folder
from fcl.plain import plain
from fcl.report.contract import Figure, Section, Table
from fcl.report.figures import standalone
from fcl.store import local_path

#: First characters of what spreadsheets take for formulas; the last four are of full width.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_SEPARATORS = frozenset(',"\t\r\n')


def plot_files(sections: Sequence[Section]) -> dict[str, str]:
    """File name -> SVG of each picture."""
    return {
        f"{block.name}.svg": standalone(block.panels)
        for section in sections
        for block in section.blocks
        if isinstance(block, Figure)
    }


def data_files(sections: Sequence[Section]) -> dict[str, str]:
    """File name -> CSV of each table and of the numbers of each picture, and ``report.json``.

    ``report.json`` has the facts of all sections: {section: {name: text}}.
    """
    out = {f"{table.name}.csv": _csv(table) for table in _tables(sections)}
    facts = {section.key: dict(section.facts) for section in sections if section.facts}
    out["report.json"] = json.dumps(plain(facts), indent=1) + "\n"
    return out


def _tables(sections: Sequence[Section]) -> Iterator[Table]:
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Table):
                yield block
            elif block.data is not None:
                yield block.data


def _csv(table: Table) -> str:
    rows = [table.head, *(plain(list(row)) for row in table.rows)]
    return "".join(",".join(map(_cell, row)) + "\n" for row in rows)


def _cell(value: Any) -> str:
    """A cell of CSV: floats with all digits, unknown numbers empty, text that is no formula.

    Names come from the data, perhaps of strangers, and spreadsheets compute text that begins as a
    formula; an apostrophe keeps it text (OWASP, "CSV Injection").
    """
    if not isinstance(value, str):
        return "" if value is None else str(value)
    if value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        value = f"'{value}"
    # the module csv leaves a carriage return bare, which begins a row for most readers
    return '"' + value.replace('"', '""') + '"' if _SEPARATORS.intersection(value) else value


def write_files(
    folder: str | os.PathLike[str], contents: Mapping[str, str], overwrite: bool = False
) -> None:
    """Write text files into a folder, which is made if it does not exist.

    Unless ``overwrite`` is true, the folder must be missing or empty. If another process has written into
    it, the files get a folder of an unused name beside it, which OutputExistsError names.
    """
    place = local_path(folder, "folders of pictures and numbers")
    if not overwrite:
        with new_folder(place) as made:
            for name, text in contents.items():
                (made / name).write_text(text, encoding="utf-8")
        return
    place.mkdir(exist_ok=True)
    for name, text in contents.items():
        with atomic_file(place / name, overwrite=True) as file:
            file.write(text.encode())
