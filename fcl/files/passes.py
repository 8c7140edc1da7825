"""What a file may say of the passes of a training; models and checkpoints keep it."""

from __future__ import annotations

from fcl.files import schema

_NUMBERS = "seconds objective bound gap max_violation rows_per_second beta time_left"
_COUNTS = "priced cached active evicted cache_bytes cache_capacity memory_bytes"
#: What is known of a pass, as :class:`fcl.model.History` describes it; a file may say anything.
PASS_TABLE = schema.claims(
    number=schema.whole(),
    resumed=schema.flag,
    **dict.fromkeys(("event", "scope", "sample", "models"), schema.text),
    **dict.fromkeys(_NUMBERS.split(), schema.unknown),
    **dict.fromkeys(_COUNTS.split(), schema.nullable(schema.whole())),
    **dict.fromkeys(("validation", "busy"), schema.nullable(schema.mapping(schema.unknown))),
)
