"""The record of the columns in the header of a model file; docs/reference/model_file.md describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fcl.data.columns import DIPLOID, ColumnRecord, KnownVariants, Variant
from fcl.files import schema
from fcl.plain import plain

#: Keys of a header, which may be missing.
COLUMN_KEYS = {
    "column_names": schema.Maybe(
        schema.nullable(schema.listing(schema.row(schema.whole(), schema.text)))
    ),
    "variants": schema.Maybe(
        schema.listing(schema.row(schema.whole(), schema.text, schema.text, schema.finite))
    ),
    "columns": schema.Maybe(
        schema.record(
            first_id=schema.Maybe(schema.whole(0, 1)),
            scale=schema.Maybe(schema.positive),
            places=schema.Maybe(
                schema.listing(schema.row(schema.whole(), schema.text, schema.whole(1)))
            ),
            means=schema.Maybe(schema.listing(schema.row(schema.text, schema.finite))),
            categories=schema.Maybe(
                schema.listing(schema.row(schema.text, schema.listing(schema.text)))
            ),
            reading=schema.Maybe(schema.listing(schema.row(schema.text, schema.text))),
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
        "reading": plain(list(record.reading.items())),
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
            column: Variant(a1, a2, mean, *places.get(column, ("", 0)))
            for column, a1, a2, mean in variants
        }
    return ColumnRecord(
        None if names is None else dict(names),
        first_id=found.get("first_id"),
        variants=None if known is None else KnownVariants(known),
        scale=found.get("scale", DIPLOID),
        means=dict(found.get("means", ())),
        categories=dict(found.get("categories", ())),
        reading=dict(found.get("reading", ())),
        numbers=found.get("numbers"),
        offset=found.get("offset"),
        covariates=covariates,
    )
