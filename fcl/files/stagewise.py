"""What the files of stagewise models, and of checkpoints of their jobs, may contain.

``docs/reference/stagewise_file.md`` is the specification. Options are validated by
:class:`fcl.stagewise.settings.Settings`, which knows their words.
"""

from __future__ import annotations

from typing import Any

from fcl.errors import InputError
from fcl.files import schema
from fcl.files.bundle import FileKind
from fcl.files.checkpoint import COLUMNS_TABLE, command_table
from fcl.files.columns import COLUMN_KEYS
from fcl.files.compact import ENCODING_TABLE, Encoding

#: Arrays of the weights: vectors of little-endian float64.
ARRAYS = ("features", "intercepts", "calibration")
#: Member of a compact model in place of ``features.npy``.
COMPACT = "features.q"
FORMAT = "fcl-stagewise"

_SETTINGS = schema.record(
    update=schema.text,
    loss=schema.text,
    block=schema.whole(1),
    order=schema.Maybe(schema.text),
    visits=schema.whole(1),
    inner=schema.whole(1),
    alpha=schema.at_least_0,
    calibration=schema.Maybe(schema.text),
    clip=schema.Maybe(schema.flag),  # of earlier versions
    rounds=schema.Maybe(schema.whole(1)),
    class_weight=schema.nullable(schema.class_weight),
    valid_fraction=schema.number(0.0, 1.0),
    patience=schema.whole(1),
    seed=schema.whole(),
)
#: A block of the history.
_BLOCK = schema.record(
    number=schema.whole(1),
    loss=schema.finite,
    error=schema.nullable(schema.number(0.0, 1.0)),
    valid_loss=schema.unknown,
    valid_error=schema.nullable(schema.number(0.0, 1.0)),
    seconds=schema.at_least_0,
)
#: What models and checkpoints have in common.
_COMMON: dict[str, schema.Check | schema.Maybe] = {
    "settings": _SETTINGS,
    "fingerprint": schema.text,
    "family": schema.table,
    "best_number": schema.whole(0),
    "history": schema.listing(_BLOCK),
    "created": schema.text,
    "fcl_version": schema.text,
}
_MODEL = schema.record(
    **_COMMON,
    labels=schema.nullable(schema.listing(schema.label)),
    classifies=schema.flag,
    noun=schema.Maybe(schema.one_of("class", "label", "target")),
    n_outputs=schema.whole(1),
    n_rows=schema.whole(1),
    has_offset=schema.flag,
    **COLUMN_KEYS | {"column_names": COLUMN_KEYS["column_names"].check},
    certificate=schema.nullable(
        schema.record(objective=schema.finite, bound=schema.finite, n_features=schema.whole(1))
    ),
    encoding=schema.Maybe(ENCODING_TABLE),
)
_CHECKPOINT = schema.record(
    **_COMMON,
    # options of the command that started the job; none if it began in Python
    command=command_table,
    signature=schema.Maybe(schema.text, ""),  # earlier versions did not sign
    columns=schema.Maybe(COLUMNS_TABLE, None),
    n_features=schema.whole(1),
    n_margins=schema.whole(1),
    has_best=schema.flag,
    rows=schema.listing(schema.whole(1)),
)


def _model(where: str, value: Any) -> dict[str, Any]:
    """Check for the header of a model, whose history has the best block."""
    header: dict[str, Any] = _MODEL(where, value)
    _check_best(header)
    return header


def _checkpoint(where: str, value: Any) -> dict[str, Any]:
    """Check for the header of a checkpoint, whose best block is the first of the lowest loss."""
    header: dict[str, Any] = _CHECKPOINT(where, value)
    _check_best(header)
    rows, history, best = header["rows"], header["history"], header["best_number"]
    if not 1 <= len(rows) <= 2:
        raise schema.Mismatch(f"rows: expected one number or two, got {len(rows)}")
    losses = [row["valid_loss"] for row in history]
    if any((loss is None) == (len(rows) == 2) for loss in losses):
        raise schema.Mismatch(
            "history: expected a valid_loss, if and only if there are validation rows"
        )
    first = len(history) if len(rows) == 1 else 1 + losses.index(min(losses)) if losses else 0
    if best != first:
        raise schema.Mismatch(f"best_number: expected {first}, of the lowest loss, got {best}")
    return header


def _check_best(header: dict[str, Any]) -> None:
    """Raise Mismatch unless the blocks are numbered from 1, and the best one is among them."""
    best, history = header["best_number"], header["history"]
    for at, row in enumerate(history):
        if row["number"] != at + 1:
            raise schema.Mismatch(f"history[{at}].number: expected {at + 1}, got {row['number']}")
    if not min(1, len(history)) <= best <= len(history):
        raise schema.Mismatch(
            f"best_number: expected one of the {len(history)} blocks of the history, got {best}"
        )


def _upgraded(header: dict[str, Any]) -> dict[str, Any]:
    """The header as the present version writes it; InputError for predictions among the features."""
    settings = {name: value for name, value in header["settings"].items() if name != "clip"}
    if settings["update"] != "cls":
        settings.pop("calibration", None)
    elif "rounds" not in settings:
        raise InputError(
            "update: this job of cls is of fcl 0.1, which added predictions to the blocks as features; "
            "train again"
        )
    if "classifies" in header:
        header.setdefault("noun", "class" if header["classifies"] else "target")
    return header | {"settings": settings}


#: The largest version is read: 3 for models of cls, 2 for other compact models; else 1 is written.
STAGEWISE = FileKind(FORMAT, 3, "model file", _model, upgrade=_upgraded)
STAGEWISE_CHECKPOINT = FileKind(
    "fcl-stagewise-checkpoint",
    1,
    "checkpoint of a stagewise job",
    _checkpoint,
    upgrade=_upgraded,
)


def file_version(update: str, encoding: Encoding | None) -> int:
    """The version of the file of a model."""
    if update == "cls":
        return 3
    return 1 if encoding is None else 2
