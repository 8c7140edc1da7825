"""Formats that ``fcl convert`` reads, as they are recognised by name and by content.

Training needs chunks of rows that can be read again in any order, so these files are converted first.
"""

from __future__ import annotations

import os
import re
import shlex
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from fcl.data.table_head import TableHead
from fcl.errors import InputError
from fcl.store import Location, RemotePath, kind_of, locate

#: The first bytes of a file, by which formats are recognised.
HEAD_BYTES = 4096

#: Suffixes of compressed files, which precede recognition by name.
COMPRESSIONS = (".gz", ".bgz", ".bz2")


@dataclass(frozen=True)
class Format:
    """A format that ``fcl convert`` reads."""

    name: str  #: of ``--format``
    words: str  #: in messages
    suffixes: tuple[str, ...]  #: without the suffix of a compression
    example: str  #: what a user adds to the command line: more inputs before ``OUT``, then options
    begins: bytes = rb"(?!)"  #: a pattern that the first bytes match; by default none do


_TABLE = Format("table", "a table", (".csv", ".tsv", ".txt"), "OUT --y COLUMN")

#: In the order of trial; content is tried before names, since PLINK and BED share a suffix.
FORMATS = (
    Format("plink", "PLINK files", (), "OUT --y PHENOTYPES.tsv:COLUMN", rb"\x6c\x1b"),
    Format("parquet", "a Parquet file", (".parquet", ".pq"), "OUT --y COLUMN", rb"PAR1"),
    Format(
        "fasta", "a FASTA file", (".fa", ".fasta", ".fna", ".fas"), "NEGATIVES.fa OUT", rb"\s*>"
    ),
    Format(
        "bed",
        "a file of genomic intervals",
        (".bed", ".narrowpeak", ".broadpeak"),
        "OUT --genome GENOME.fa --window -70:+71 --label COLUMN",
    ),
    Format(
        "svmlight",
        "an svmlight file",
        (".svm", ".libsvm", ".svmlight"),
        "OUT",
        rb"\s*[-+0-9.eE]+(\s+[0-9]+:[-+0-9.eE]+)+\s",
    ),
    _TABLE,
)


def plain_suffix(path: Path) -> str:
    """The suffix of a file in lower case, without the suffix of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def find_format(path: Path, head: bytes) -> Format | None:
    """The format of a file, by its first decompressed bytes or its name; None if unknown."""
    suffix = plain_suffix(path)
    by_content = (found for found in FORMATS if re.match(found.begins, head))
    by_name = (found for found in FORMATS if suffix in found.suffixes)
    return next(by_content, None) or next(by_name, None)


def refuse_foreign(path: str | os.PathLike[str]) -> None:
    """Raise InputError, with the command line that converts it, for a file in one of the formats."""
    place = locate(path)
    if kind_of(place) != "file":
        return
    head = _first_bytes(place)
    local, copy = Path(place), ""
    if isinstance(place, RemotePath):
        local, copy = Path(place.name), "copy it to this machine, and "
    found = find_format(local, head)
    table = TableHead.of(head) if found in (None, _TABLE) else None
    if table is not None:
        form = "" if found else f" --format {'table' if table.sequences is None else 'sequences'}"
        found = replace(_TABLE, example=f"OUT{form} {table.options()}")
    if found is not None:
        line = convert_line(local, found)
        raise InputError(f"{os.fspath(path)} is {found.words}; {copy}convert it first: {line}")


def _first_bytes(place: Location) -> bytes:
    with place.open("rb") as file:
        head = file.read(HEAD_BYTES)
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head)
    except zlib.error:
        return head


def convert_line(path: Path, found: Format, second: Path | None = None) -> str:
    """The command line that converts one or two files, to be completed where it has capitals."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    stem = name.stem.lstrip(".") or "data"
    out = shlex.quote(str(path.with_name(f"{stem}.zarr")))
    rest = found.example
    if second is not None:  # in the place of the second file of an example, if it has one
        rest = f"{shlex.quote(str(second))} {rest[rest.index('OUT') :]}"
    return f"fcl convert {shlex.quote(str(path))} {rest.replace('OUT', out, 1)}"


def convert_both_line(first: Path, second: Path) -> str | None:
    """The command line that converts two files, by their names; None if they do not belong together.

    They are files of two classes, or intervals and their genome.
    """
    formats = find_format(first, b""), find_format(second, b"")
    names = [found and found.name for found in formats]
    if names == ["fasta", "bed"]:
        return convert_both_line(second, first)
    if formats[0] is None or names not in (["bed", "fasta"], [formats[0].name] * 2):
        return None
    if names == ["bed", "fasta"]:
        example = formats[0].example.replace("GENOME.fa", shlex.quote(str(second)))
        return convert_line(first, replace(formats[0], example=example))
    return convert_line(first, formats[0], second)
