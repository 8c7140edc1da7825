"""The pictures of a report as SVG files, and its numbers as CSV and JSON files."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence

from fcl.plain import plain
from fcl.report.contract import Figure, Section, Table
from fcl.report.figures import standalone
from fcl.store import local_path

__all__ = ["data_files", "plot_files", "write_files"]


def plot_files(sections: Sequence[Section]) -> dict[str, str]:
    """File name -> SVG of each picture."""
    return {
        f"{block.name}.svg": standalone(block.svg)
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
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.head)
    # floats with all digits; unknown numbers are empty
    writer.writerows([plain(list(row)) for row in table.rows])
    return file.getvalue()


def write_files(
    folder: str | os.PathLike[str], contents: Mapping[str, str], overwrite: bool = False
) -> None:
    """Write text files into a folder, which is made if it does not exist.

    Unless ``overwrite`` is true, the folder must be missing or empty. If another process has written into
    it, the files get a folder of an unused name beside it, which OutputExistsError names.
    """
    from fcl.model.atomic import atomic_file, new_folder

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
