"""Families made from another family."""

from __future__ import annotations

from typing import Any

from fcl.features.base import Family


def _forwarded(name: str) -> Any:
    """The member of that name of the inner family."""
    if isinstance(getattr(Family, name), property):
        return property(lambda self: getattr(self.inner, name))
    return lambda self, *args, **options: getattr(self.inner, name)(*args, **options)


class DerivedFamily(Family):
    """A family made from another one, ``inner``, with which it shares rows and the kind of its values.

    A subclass defines its features: their number, parts, descriptions, prices, columns and margins.
    """

    inner: Family

    binary = _forwarded("binary")
    check_rows = _forwarded("check_rows")
    extra_bytes = _forwarded("extra_bytes")
    integer_bound = _forwarded("integer_bound")
    lists_columns = _forwarded("lists_columns")
    most_block_rows = _forwarded("most_block_rows")
    most_side_bytes = _forwarded("most_side_bytes")
    name = _forwarded("name")
    prepare = _forwarded("prepare")
    quick_passes = _forwarded("quick_passes")
    read_rows = _forwarded("read_rows")
    record_key = _forwarded("record_key")
    record_shape = _forwarded("record_shape")
    rounds_weights = _forwarded("rounds_weights")
    row_kind = _forwarded("row_kind")
    row_width = _forwarded("row_width")
    select = _forwarded("select")
    step = _forwarded("step")
    thread_safe = _forwarded("thread_safe")
    to_config = _forwarded("to_config")
    verifies_columns = _forwarded("verifies_columns")
    workspace_bytes = _forwarded("workspace_bytes")
