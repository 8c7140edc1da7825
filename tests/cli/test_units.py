"""Sizes and durations."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fcl.errors import InputError
from fcl.units import (
    counted,
    format_bytes,
    format_seconds,
    least_memory,
    parse_duration,
    parse_size,
)

SIZES = {
    "4GiB": 4 << 30, "768MiB": 768 << 20, "2G": 2 << 30, "2g": 2 << 30, " 1.5 KiB ": 1536,
    "3GB": 3 * 10**9, "100": 100, "100B": 100, "1T": 1 << 40, 12345: 12345, 1e9: 10**9,
}  # fmt: skip
DURATIONS = {
    "90s": 90, "5m": 300, "2h": 7200, "1h30m": 5400, "1.5h": 5400, "1d": 86400, "10": 10, 7: 7,
    0.5: 0.5, "5 min": 300,
}  # fmt: skip


def test_values() -> None:
    assert {text: parse_size(text) for text in SIZES} == SIZES
    assert {text: parse_duration(text) for text in DURATIONS} == DURATIONS


def refused(read: Any, words: str, *values: Any) -> list[Any]:
    return [pytest.param(read, value, words, id=str(value)[:20]) for value in values]


@pytest.mark.parametrize(
    ("read", "value", "words"),
    [
        *refused(parse_size, 'memory: expected a size such as "4GiB"', "", "lots", "4 gigs", "-1G",
                 "1e9", "GiB", "4GiBs", "٣G", True, None),
        *refused(parse_size, "did you mean '4GiB'", "4Gi"),
        *refused(parse_size, "at least one byte and below 8 EiB", "0", 0, -5, math.nan, math.inf,
                 10**400, "9" * 400, "8192P", 1 << 63),
        *refused(parse_duration, 'memory: expected a duration such as "90s"', "", "soon", "2h30",
                 "-5m", "5 parsecs", "h", False, None, [1]),
        *refused(parse_duration, "must be positive", "0s", 0, -1, math.nan, math.inf, 10**400),
    ],
)  # fmt: skip
def test_refused(read: Any, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read(value, "memory")


def test_formats() -> None:
    assert [format_bytes(n) for n in (0, 999, 1536, 812 << 20, 4 << 30)] == [
        "0 bytes", "999 bytes", "1.5 KiB", "812 MiB", "4 GiB",
    ]  # fmt: skip
    assert [format_seconds(s) for s in (0.416, 12.44, 185, 7620)] == [
        "0.42 s", "12.4 s", "3 min 05 s", "2 h 07 min",
    ]  # fmt: skip


def test_counts() -> None:
    assert [counted(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [counted(n, "pass", "passes") for n in (1, 2)] == ["1 pass", "2 passes"]


def test_a_budget_is_readable_and_can_be_typed() -> None:
    text = least_memory((44111 << 20) + 1)
    assert text == "43.1 GiB (--memory 44112MiB)"
    assert parse_size(text.split()[-1].rstrip(")")) == 44112 << 20
