"""Which module reads which format.

A reader is a module with

- a frozen dataclass ``Options`` whose fields are options of ``fcl convert`` (:mod:`fcl.options.convert`),
- ``open_source(inputs: list[InputFile], options: Options, budget: Budget) -> ConvertSource``.

It is imported when it is needed, so that its libraries are, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from fcl.checks import file_kind, shown
from fcl.convert.cells import is_sequence_table
from fcl.convert.contract import Budget, ConvertSource
from fcl.convert.files import InputFile
from fcl.data.foreign import find_format
from fcl.data.open import FORMATS
from fcl.errors import InputError
from fcl.options.convert import READING

#: format -> module; fcl/data/foreign.py says how the formats are recognised
READERS = {
    "fasta": "fcl.convert.fasta",
    "bed": "fcl.convert.intervals",
    "sequences": "fcl.convert.sequences",
    "svmlight": "fcl.convert.svmlight",
    "table": "fcl.convert.tables.delimited",
    "parquet": "fcl.convert.tables.parquet",
    "plink": "fcl.convert.plink.reader",
}
#: the formats whose columns are known by name or id, in other files, too
WITH_COLUMNS = ("table", "parquet", "svmlight", "plink")


def format_of(inputs: Sequence[InputFile], options: dict[str, Any]) -> str:
    """The format of the inputs, which must be the same; raises InputError if it is unknown."""
    formats = {file.name: _format_of(file, options) for file in inputs}
    if len(set(formats.values())) > 1:
        found = ", ".join(f"{name} ({kind})" for name, kind in formats.items())
        raise InputError(
            f"expected inputs of one format, got {found}; convert them one by one, or name their format: "
            "--format NAME"
        )
    return next(iter(formats.values()))


def _format_of(file: InputFile, options: dict[str, Any]) -> str:
    found = find_format(file.path, file.head)
    name = "" if found is None else found.name
    if name in ("", "table") and "genome" in options:
        return "bed"  # a table of sites
    if name == "table" and "x" in options and is_sequence_table(file.head, options["x"]):
        return "sequences"
    if name in READERS:
        return name
    if not file.head:
        raise InputError(f"{file.name} is empty; expected at least one record")
    raise InputError(
        f"{file.name}: its format is not known by its name and first bytes; expected one of "
        f"{', '.join(READERS)}: name it with --format"
    )


def refuse_native(path: str) -> None:
    """Raise InputError if fcl reads a file or folder as it is: Zarr, HDF5 (also h5ad), npy."""
    try:
        kind, head = file_kind(path), b""  # a pipe, which can be read only once, has no kind
        if kind == "file":
            with open(path, "rb") as file:
                head = file.read(16)
    except (OSError, InputError):  # reported when the file is opened
        return
    if kind and any(recognise(Path(path), head) for recognise, _ in FORMATS):
        more = " --x X --y obs/LABEL" if path.endswith(".h5ad") else ""
        raise InputError(
            f"{path}: fcl train reads this format without conversion: fcl train "
            f"{shlex.quote(path)}{more} --features columns --C 0.1 --out model.fcl"
        )


def open_source(
    inputs: Sequence[InputFile], format: str, options: dict[str, Any], budget: Budget
) -> ConvertSource:
    """Open the rows of the inputs.

    format : a key of ``READERS``.
    options : the options that the user gave, by name.
    """
    known = options_of(format)
    for name in options:
        if name not in known:
            takes = ", ".join(READING[each].spelled for each in known)
            raise InputError(
                f"{READING[name].spelled} is not an option for the format {format}, which takes {takes}; "
                "leave it out, or name another format with --format"
            )
    module = import_module(READERS[format])
    source: ConvertSource = module.open_source(list(inputs), module.Options(**options), budget)
    return source


def options_of(format: str) -> list[str]:
    """The options that a format takes; raises InputError if there is no such format."""
    if format not in READERS:
        raise InputError(f"--format: expected one of {', '.join(READERS)}, got {shown(format)}")
    return [option.name for option in fields(import_module(READERS[format]).Options)]
