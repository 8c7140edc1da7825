"""What a file may say of the passes of a training; models and checkpoints keep it."""

from __future__ import annotations

from fcl.files import schema

_UNKNOWN = schema.nullable(schema.number())
_COUNT = schema.nullable(schema.whole())
#: What is known of a pass, as :class:`fcl.model.History` describes it; a file may say anything.
PASS_TABLE = schema.claims(
    event=schema.text,
    number=schema.whole(),
    scope=schema.text,
    sample=schema.text,
    models=schema.text,
    resumed=schema.flag,
    **dict.fromkeys(
        (
            "seconds",
            "objective",
            "bound",
            "gap",
            "max_violation",
            "rows_per_second",
            "beta",
            "time_left",
        ),
        _UNKNOWN,
    ),
    **dict.fromkeys(
        (
            "priced",
            "cached",
            "active",
            "evicted",
            "cache_bytes",
            "cache_capacity",
            "memory_bytes",
        ),
        _COUNT,
    ),
    **dict.fromkeys(("validation", "busy"), schema.nullable(schema.mapping(_UNKNOWN))),
)
