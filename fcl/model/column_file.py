"""The record of the columns in the header of a model file; docs/reference/model_file.md describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fcl.data.columns import DIPLOID, ColumnRecord, KnownVariants, Variant
from fcl.model import schema
from fcl.plain import plain


def _column_name(where: str, value: Any) -> tuple[int, str]:
    """Check for a pair of a position and the name of a column."""
    column, name = schema.listing(schema.anything, 2)(where, value)
    return schema.whole()(f"{where}[0]", column), schema.text(f"{where}[1]", name)


def _variant(where: str, value: Any) -> tuple[int, Variant]:
    column, a1, a2, mean = schema.listing(schema.anything, 4)(where, value)
    a1, a2 = schema.text(f"{where}[1]", a1), schema.text(f"{where}[2]", a2)
    mean = schema.number()(f"{where}[3]", mean)
    return schema.whole()(f"{where}[0]", column), Variant(a1, a2, mean)


def _place(where: str, value: Any) -> tuple[int, str, int]:
    column, chromosome, position = schema.listing(schema.anything, 3)(where, value)
    return (
        schema.whole()(f"{where}[0]", column),
        schema.text(f"{where}[1]", chromosome),
        schema.whole(1)(f"{where}[2]", position),
    )


def _mean(where: str, value: Any) -> tuple[str, float]:
    name, mean = schema.listing(schema.anything, 2)(where, value)
    return schema.text(f"{where}[0]", name), schema.number()(f"{where}[1]", mean)


def _category(where: str, value: Any) -> tuple[str, list[str]]:
    column, values = schema.listing(schema.anything, 2)(where, value)
    return (
        schema.text(f"{where}[0]", column),
        schema.listing(schema.text)(f"{where}[1]", values),
    )


#: Keys of a header, which may be missing.
COLUMN_KEYS = {
    "column_names": schema.Maybe(schema.nullable(schema.listing(_column_name))),
    "variants": schema.Maybe(schema.listing(_variant)),
    "columns": schema.Maybe(
        schema.record(
            first_id=schema.Maybe(schema.whole(0, 1)),
            scale=schema.Maybe(schema.number(5e-324)),
            places=schema.Maybe(schema.listing(_place)),
            means=schema.Maybe(schema.listing(_mean)),
            categories=schema.Maybe(schema.listing(_category)),
            numbers=schema.Maybe(schema.one_of("float32", "float64")),
            offset=schema.Maybe(schema.text),
        )
    ),
}


def record_to_header(record: ColumnRecord) -> dict[str, Any]:
    """The keys of a header that hold the record of the columns that a model reads."""
    header: dict[str, Any] = {}
    if record.names is not None:  # JSON has no keys that are numbers
        header["column_names"] = plain(list(record.named))
    variants = record.variants_at(sorted(dict(record.named)))
    columns: dict[str, Any] = {
        "first_id": record.first_id,
        "numbers": record.numbers,
        "offset": record.offset,
        "means": plain(list(record.means.items())),
        "categories": plain([[name, values] for name, values in record.categories.items()]),
    }
    if variants:
        header["variants"] = plain([[at, v.a1, v.a2, v.mean] for at, v in variants.items()])
        columns["scale"] = record.scale
        columns["places"] = [
            [at, v.chromosome, v.position] for at, v in variants.items() if v.place is not None
        ]
    if kept := {name: value for name, value in columns.items() if value not in (None, [])}:
        header["columns"] = kept
    return header


def record_from_header(header: dict[str, Any], covariates: tuple[str, ...] = ()) -> ColumnRecord:
    """Take the keys of the record, as the schema returned them, from a header."""
    names, variants = header.pop("column_names", None), header.pop("variants", None)
    found: Mapping[str, Any] = header.pop("columns", {})
    places = {column: (chromosome, at) for column, chromosome, at in found.get("places", ())}
    known = None
    if variants is not None:
        known = {
            column: Variant(v.a1, v.a2, v.mean, *places.get(column, ("", 0)))
            for column, v in variants
        }
    return ColumnRecord(
        None if names is None else dict(names),
        first_id=found.get("first_id"),
        variants=None if known is None else KnownVariants(known),
        scale=found.get("scale", DIPLOID),
        means=dict(found.get("means", ())),
        categories=dict(found.get("categories", ())),
        numbers=found.get("numbers"),
        offset=found.get("offset"),
        covariates=covariates,
    )
