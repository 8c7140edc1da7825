"""Sizes in bytes, durations in seconds: from what a user wrote, to what a user reads."""

from __future__ import annotations

import math
import re

from fcl.errors import InputError

__all__ = ["format_bytes", "format_seconds", "parse_duration", "parse_size"]

_PREFIXES = "KMGTP"
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:([KMGTP])(I)?)?(B)?\s*", re.IGNORECASE)
_TIME = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)
_SECONDS = {
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


def parse_size(value: str | int | float, name: str = "size") -> int:
    """Bytes of a size: ``4GiB``, ``768MiB``, ``2G``, ``1.5 GB``, ``1048576``; numbers are bytes.

    Without ``B`` a prefix means powers of 1024 (``2G`` is ``2GiB``), as does ``GiB``; ``GB`` is
    10^9. Raises InputError, naming `name`, for anything else, below one byte, and from 8 EiB on.
    """
    from fcl.checks import shown  # late: numpy takes a while

    expected = f'{name}: expected a size such as "4GiB", "768MiB" or "2G", got {shown(value)}'
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(expected)
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise InputError(expected)
        number, prefix, binary, letter = match.groups()
        if binary and not letter:
            raise InputError(f"{expected}; did you mean {value.strip() + 'B'!r}?")
        base = 1000 if letter and prefix and not binary else 1024
        power = _PREFIXES.index(prefix.upper()) + 1 if prefix else 0
        size = float(number) * base**power
    else:
        size = value
    if not 1 <= size < 1 << 63:
        raise InputError(
            f"{name}: a size must be at least one byte and below 8 EiB, got {shown(value)}"
        )
    return int(size)


def parse_duration(value: str | int | float, name: str = "duration") -> float:
    """Seconds of a duration: ``90s``, ``5m``, ``2h``, ``1h30m``, ``1.5d``; numbers are seconds.

    Raises InputError, naming `name`, for anything else and for durations that are not positive.
    """
    expected = f'{name}: expected a duration such as "90s", "5m" or "2h", got {value!r}'
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(expected)
    if isinstance(value, str):
        text, seconds, position = value.strip().lower(), 0.0, 0
        if not text:
            raise InputError(expected)
        while position < len(text):
            match = _TIME.match(text, position)
            # a bare number is seconds only when it is all there is: "2h30" could mean either
            if match is None or match[2] not in _SECONDS or (not match[2] and match[0] != text):
                raise InputError(expected)
            seconds += float(match[1]) * _SECONDS[match[2]]
            position = match.end()
    else:
        seconds = float(value)
    if not math.isfinite(seconds) or seconds <= 0:
        raise InputError(f"{name}: a duration must be positive, got {value!r}")
    return seconds


def format_bytes(size: float) -> str:
    """``812 MiB``: three significant digits and a binary prefix."""
    size = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1000 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" or abs(size) >= 100 else f"{size:.3g} {unit}"


def format_seconds(seconds: float) -> str:
    """``0.42 s``, ``12.4 s``, ``3 min 05 s``, ``2 h 07 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
