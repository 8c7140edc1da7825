"""The table in the folder of a path: its grid, a row for each finished point, scores and choice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fcl.checks import shortened, shown
from fcl.errors import InputError
from fcl.files import schema
from fcl.files.atomic import atomic_file
from fcl.files.bundle import JSON_BYTES, read_json
from fcl.plain import plain

FORMAT = "fcl-path 1"
#: What the name of a model is followed by in the name of its folder, and the table in it.
FOLDER_SUFFIX = ".path"
TABLE_NAME = "path.json"

_UNKNOWNS = schema.listing(schema.unknown)
_NUMBER_OF_POINT = schema.nullable(schema.whole())
_POINT: dict[str, schema.Check | schema.Maybe] = {
    "C": schema.positive,
    "seconds": schema.at_least_0,
    "passes": schema.whole(),
    "score": schema.unknown,
    "se": schema.unknown,
    **dict.fromkeys(("empty", "auroc", "auroc_se"), schema.Maybe(schema.unknown, None)),
    **dict.fromkeys(("alpha", "objective", "bound", "gap"), schema.Maybe(schema.unknown)),
    "active": schema.Maybe(_NUMBER_OF_POINT),
    "converged": schema.Maybe(schema.flag),
}
#: What a table may contain; its result describes a finished path.
_TABLE = schema.record(
    format=schema.one_of(FORMAT),
    about=schema.Maybe(schema.nullable(schema.table), None),
    grid=schema.listing(schema.positive),
    points=schema.listing(schema.record(**_POINT, reason=schema.text)),
    result=schema.Maybe(
        schema.record(
            **dict.fromkeys(
                ("reason", "metric", "error_from", "select"), schema.Maybe(schema.text)
            ),
            **dict.fromkeys(("score", "se", "auroc", "auroc_se"), schema.Maybe(_UNKNOWNS)),
            **dict.fromkeys(("best", "one_se", "chosen"), schema.Maybe(_NUMBER_OF_POINT)),
            higher_is_better=schema.Maybe(schema.flag),
            empty=schema.Maybe(schema.unknown),
            folds=schema.Maybe(schema.listing(_UNKNOWNS)),
            refit=schema.Maybe(schema.nullable(schema.record(**_POINT))),
            outer=schema.Maybe(
                schema.nullable(
                    schema.record(
                        metric=schema.text,
                        mean=schema.unknown,
                        se=schema.unknown,
                        folds=schema.listing(schema.mapping(schema.unknown)),
                    )
                )
            ),
        )
    ),
)
#: What to do about a damaged folder.
REMEDY = "remove the folder (or give fcl train --overwrite), and start the path over"


def read_table(path: Path) -> dict[str, Any]:
    """Read a table that :func:`write_table` wrote; InputError if it is damaged."""
    try:
        with path.open("rb") as file:
            found = read_json(file.read(JSON_BYTES + 1))
        if found.get("format") != FORMAT:
            raise ValueError(f"format {shown(found.get('format'))}")
        table: dict[str, Any] = _TABLE("", found)
        if len(table["points"]) > len(table["grid"]):
            raise ValueError("more points than values of C")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: expected the table of a path, in format {FORMAT!r}, got "
            f"{shortened(str(error), 400)}; {REMEDY}"
        ) from error
    return table


def write_table(path: Path, table: Mapping[str, Any]) -> None:
    """Write a table as JSON, atomically; numbers that are not finite become null."""
    content = json.dumps(plain({"format": FORMAT, **table}), indent=1, allow_nan=False)
    with atomic_file(path, overwrite=True) as file:
        file.write(content.encode() + b"\n")
