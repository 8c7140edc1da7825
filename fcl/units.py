"""Sizes in bytes, durations, counts of things and names of scores, from text and as text."""

from __future__ import annotations

import math
import re

from fcl.checks import shown
from fcl.errors import InputError

_PREFIXES = "KMGTP"
_FLAGS = re.IGNORECASE | re.ASCII
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:([KMGTP])(I)?)?(B)?\s*", _FLAGS)
_TIME = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", _FLAGS)
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
    """Parse a size such as ``4GiB``, ``768MiB``, ``2G``, ``1.5 GB`` or ``1048576``.

    value : numbers are bytes. Without ``B`` a prefix means a power of 1024 (``2G`` is ``2GiB``); ``GB``
        is 10^9 bytes.
    name : name of the option, for messages.

    Raises InputError: not a size, less than one byte, or 8 EiB and more.
    """
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
    """Parse a duration such as ``90s``, ``5m``, ``2h``, ``1h30m`` or ``1.5d``.

    value : numbers are seconds.
    name : name of the option, for messages.

    Raises InputError: not a duration, or not a finite duration above 0.
    """
    expected = f'{name}: expected a duration such as "90s", "5m" or "2h", got {shown(value)}'
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InputError(expected)
    if isinstance(value, str):
        text, seconds, position = value.strip().lower(), 0.0, 0
        if not text:
            raise InputError(expected)
        while position < len(text):
            match = _TIME.match(text, position)
            # a number without a unit means seconds only on its own: "2h30" is ambiguous
            if match is None or match[2] not in _SECONDS or (not match[2] and match[0] != text):
                raise InputError(expected)
            seconds += float(match[1]) * _SECONDS[match[2]]
            position = match.end()
    else:
        # an int may be larger than any float
        seconds = float(value) if abs(value) < 1e300 else math.inf
    if not math.isfinite(seconds) or seconds <= 0:
        raise InputError(f"{name}: a duration must be positive and finite, got {shown(value)}")
    return seconds


def format_bytes(size: float) -> str:
    """Format bytes as ``812 MiB``: three significant digits and a binary prefix."""
    size = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1000 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "bytes" or abs(size) >= 100 else f"{size:.3g} {unit}"


def least_memory(size: int) -> str:
    """The smallest budget, to read and to type: "43.1 GiB (--memory 44112MiB)", rounded up."""
    return f"{format_bytes(size)} (--memory {-(-size // (1 << 20))}MiB)"


def format_seconds(seconds: float) -> str:
    """Format seconds as ``0.42 s``, ``12.4 s``, ``3 min 05 s`` or ``2 h 07 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


#: Relative gaps below this are rounding of float64.
LEAST_GAP = 1e-15


def format_gap(gap: float) -> str:
    """Format a relative gap with three digits, as ``0.000343``; what rounding explains is ``0``."""
    return "0" if abs(gap) < LEAST_GAP else f"{gap:.3g}"


def format_share(share: float) -> str:
    """Format a share of a whole as ``33 %`` or ``0.034 %``."""
    percent = 100.0 * share
    digits = max(1 - math.floor(math.log10(abs(percent))), 0) if percent else 0
    return f"{percent:z.{min(digits, 12)}f} %"


def format_score(metric: str, value: float) -> str:
    """Format a score with its name, as ``AUPRC 0.7652`` or ``LOG LOSS 0.25``."""
    return f"{score_title(metric)} {value:{'.4f' if metric == 'auprc' else '.6g'}}"


def score_text(score: float) -> str:
    """A score with six digits, or 0 but for rounding; a dash for one that is not known."""
    return "-" if math.isnan(score) else f"{score if abs(score) > 1e-12 else 0:.6g}"


def counted(n: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun, as ``1 row`` or ``2,000 rows``; ``plural`` is by default noun + s."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def score_title(name: str) -> str:
    """The name of a score as tables and pictures show it: ``AUPRC``, or ``LOG LOSS`` for ``log_loss``."""
    return name.upper().replace("_", " ")
