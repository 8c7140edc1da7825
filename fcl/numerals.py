"""Numbers as text: the only place where fcl reads them, except in JSON and TOML."""

from __future__ import annotations

import re
from contextlib import suppress

_BLANKS = r"[ \t\n\r\f\v]*"
_NUMBER = re.compile(
    _BLANKS + r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|inf(?:inity)?|nan)" + _BLANKS,
    re.IGNORECASE | re.ASCII,
)
_WHOLE = re.compile(_BLANKS + "[-+]?[0-9]+" + _BLANKS)


def read_number(text: str | bytes) -> float | None:
    """The number that a text stands for; None if it stands for none.

    A text is read as C's ``strtod`` reads it, if that reads all of it: a sign, digits with a point, an
    exponent; or ``inf``, ``infinity`` and ``nan`` in any case, which callers refuse where they want
    finite numbers. Blanks of ASCII around the number do not count. Unlike ``float``, neither this nor C
    takes ``1_0``, digits of other alphabets or other blanks of Unicode. Unlike C, this takes neither
    hexadecimal numbers (``0x10``) nor ``nan(1)``, and always a point, whatever the locale.

    The number is rounded to the nearest float64, and infinite beyond its range.
    """
    text = _as_str(text)
    return float(text) if _NUMBER.fullmatch(text) else None


def read_whole(text: str | bytes) -> int | None:
    """Read a whole number from a text; None for any other text.

    A text is read as C's ``strtol`` reads it in base 10, if that reads all of it: a sign and digits,
    with blanks of ASCII around them; see :func:`read_number`. There is no limit of 64 bits, but numbers
    of thousands of digits are refused, too.
    """
    text = _as_str(text)
    if _WHOLE.fullmatch(text):
        with suppress(ValueError):  # more digits than Python converts
            return int(text)
    return None


def _as_str(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("latin-1")
