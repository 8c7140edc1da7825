"""The values that options take: how Python, the command line and TOML files give them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fcl import checks
from fcl.errors import InputError
from fcl.numerals import read_number, read_whole
from fcl.units import parse_duration, parse_size
from fcl.working_folder import can_be_found

INF = math.inf
#: Characters of a table of limits.
MOST_LIMITS = 1 << 22
#: Bits of a weight of a grid such as q2.13, with its sign.
LEAST_BITS, MOST_BITS = 4, 32
_GRID = re.compile(r"q([0-9]{1,9})\.([0-9]{1,9})")

#: (name of the option, value) -> the validated value; raises InputError
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Kind:
    """The values that an option takes."""

    name: str  #: in the help
    check: Check  #: validates values from Python
    in_file: str  #: what a TOML file may hold, in words
    types: tuple[type, ...]  #: ... and as Python types
    parse: Check | None = None  #: validates values from the command line or TOML; None: ``check``
    words: tuple[str, ...] = ()  #: all values, if there are few; for completion by the shell

    def read(self, value: Any) -> Any:
        """Validate a value from the command line or TOML; its InputError does not name the option."""
        try:
            return (self.parse or self.check)("value", value)
        except InputError as error:
            text = str(error).removeprefix("value: ").replace("value must be", "expected", 1)
            raise InputError(text) from None


def _parsed(read: Callable[[str], float | None], check: Check) -> Check:
    """Extend a check to the text of a number; other text goes to the check, which rejects it."""

    def parse(name: str, value: Any) -> Any:
        number = read(value) if isinstance(value, str) else None
        return check(name, value if number is None else number)

    return parse


def real(check: Check) -> Kind:
    """Numbers that pass a check."""
    return Kind("number", check, "a number", (int, float), _parsed(read_number, check))


def whole(check: Check) -> Kind:
    """Whole numbers that pass a check."""
    return Kind("integer", check, "a whole number", (int,), _parsed(read_whole, check))


def one_of(*words: str) -> Kind:
    """The kind of an option that takes one of these words."""
    name = f"[{'|'.join(words)}]"
    return Kind(
        name, lambda name, value: checks.choice(name, value, words), "a string", (str,), words=words
    )


# -- checks ----------------------------------------------------------------------------------------


def _whole(words: str, fits: Callable[[int], bool]) -> Kind:
    """Whole numbers that fit.  words : which ones do."""

    def check(name: str, value: Any) -> int:
        if not checks.is_whole(value) or not fits(value):
            raise InputError(f"{name} must be {words}, got {checks.shown(value)}")
        return int(value)

    return whole(check)


def _l1_ratio(name: str, value: Any) -> float:
    try:
        return checks.up_to_one(name, value)
    except InputError as error:
        if value != 0:
            raise
        raise InputError(
            f"{error}: without |w| all features have weights; take a small number such as 0.01, or train "
            "a ridge model with fcl stagewise"
        ) from error


def _module(name: str, value: Any) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", value) or not can_be_found(value):
        raise InputError(
            f"{name}: expected a module that is installed or in the working folder, such as mine for "
            f"mine.py, got {checks.shown(value)}"
        )
    return str(value)


def _loss(name: str, value: Any) -> str:
    from fcl.objective import find_loss  # late: it imports NumPy

    return find_loss(value).text


_RATES = checks.real("auto or a finite number above 0", lambda x: 0.0 < x < INF)


def _rate(name: str, value: Any) -> float | str:
    return value if isinstance(value, str) and value == "auto" else _RATES(name, value)


def grid_bits(name: str, text: Any) -> tuple[int, int]:
    """The bits before and behind the point of a grid such as q2.13; raises InputError."""
    found = _GRID.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InputError(f"{name}: expected qN.M such as q2.13, got {checks.shown(text)}")
    n, m = int(found[1]), int(found[2])
    if not LEAST_BITS <= 1 + n + m <= MOST_BITS:
        raise InputError(
            f"{name}: expected qN.M with N + M from {LEAST_BITS - 1} to {MOST_BITS - 1} bits besides the "
            f"sign, such as q2.13, got q{n}.{m}"
        )
    return n, m


def _table_of_weights(name: str, value: Any) -> str:
    """A dtype; ``q``, for which a grid is chosen; or a grid such as q2.13."""
    if not isinstance(value, str) or value[:1] != "q":
        return checks.choice(name, value, ("float64", "float32", "q", "qN.M"))
    return value if value == "q" else "q{}.{}".format(*grid_bits(name, value))


def _weights_of_labels(name: str, value: Any) -> str | dict[str, float]:
    """Parse ``balanced``, or weights by label: ``LABEL=W,LABEL=W``, or a table in TOML."""
    if value == "balanced":
        return str(value)
    pairs = value.items() if isinstance(value, Mapping) else map(_pair, str(value).split(","))
    weights: dict[str, float] = {}
    for label, weight in pairs:
        if not label and isinstance(value, str):
            raise InputError(
                f"{name}: expected balanced or LABEL=W,LABEL=W, got {checks.shown(value)}"
            )
        if label in weights:
            raise InputError(f"{name}: two weights for the label {label!r}")
        weights[label] = _parsed(read_number, checks.positive)(name, weight)
    return weights


def _pair(text: str) -> tuple[str, str]:
    label, _, weight = text.rpartition("=")  # a label may contain =, a weight cannot
    return label.strip(), weight.strip()


def limits_of(name: str, value: Any) -> Any:
    """Limits of weights: ``LOW:HIGH`` or a pair for all features, or limits by name or id of a feature.

    In a mapping the key ``*`` stands for all other features.

    Returns low and high of all features, None for infinite, and (name or id, low, high) of others.
    """
    if isinstance(value, str):
        return (*_range(name, value.split(":")), ())
    if isinstance(value, Mapping):
        rows = {key: _range_of(f"{name} of {checks.shown(key)}", v) for key, v in value.items()}
        low, high = rows.pop("*", (None, None))
        return (*_with_room(name, low, high), tuple((_key(name, k), *v) for k, v in rows.items()))
    stored = isinstance(value, tuple | list) and len(value) == 3
    if stored and isinstance(value[2], tuple | list):  # as models and checkpoints have them
        low, high, named = value
        own = tuple((_key(name, k), *_range(name, ends)) for k, *ends in named)
        return (*_with_room(name, *_range(name, (low, high))), own)
    return (*_with_room(name, *_range_of(name, value)), ())


def _key(name: str, key: Any) -> str | int:
    if isinstance(key, str):
        return key
    return checks.whole(f"{name}: id of a feature", key, 0)


def _range_of(name: str, value: Any) -> tuple[float | None, float | None]:
    return _range(name, value.split(":") if isinstance(value, str) else value)


def _range(name: str, ends: Any) -> tuple[float | None, float | None]:
    """A pair of limits; None for infinite ones."""
    wanted = f"{name}: expected LOW:HIGH or a pair, with LOW <= 0 <= HIGH, such as 0: or (-1, 2)"
    try:
        low, high = (_end(end, infinite) for end, infinite in zip(ends, (-INF, INF), strict=True))
    except (TypeError, ValueError):
        raise InputError(f"{wanted}; got {checks.shown(ends)}") from None
    if not low <= 0.0 <= high:
        raise InputError(f"{wanted}, so that a weight may be 0; got {low:g} and {high:g}")
    return None if low == -INF else low, None if high == INF else high


def _end(end: Any, infinite: float) -> float:
    if end is None or (isinstance(end, str) and not end.strip()):
        return infinite
    number = read_number(end) if isinstance(end, str) else float(end)
    if number is None or math.isnan(number) or isinstance(end, bool):
        raise ValueError
    return number + 0.0  # not -0.0


def _with_room(
    name: str, low: float | None, high: float | None
) -> tuple[float | None, float | None]:
    if low == high == 0.0:
        raise InputError(f"{name}: expected room for the weights, got 0 and 0 for all features")
    return low, high


def _limits_in(name: str, value: Any) -> Any:
    """The text of limits, or ``LOW:HIGH`` by feature from the path of a table; checked.

    The lines of a table are name, low and high between tabs.
    """
    if not isinstance(value, str) or not value.strip("0123456789.eE+-:inf "):
        limits_of(name, value)
        return value
    try:
        with open(value, encoding="utf-8") as file:
            lines = file.read(MOST_LIMITS + 1)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(
            f"{name}: expected LOW:HIGH, such as 0:, or a table of name, low and high between tabs; got "
            f"{checks.shown(value)} ({error})"
        ) from None
    if len(lines) > MOST_LIMITS:
        raise InputError(f"{name}: {value}: expected a table of at most {MOST_LIMITS >> 20} MiB")
    rows: dict[str, str] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        cells = line.rstrip("\r").split("\t")
        if len(cells) != 3 or cells[0] in rows:
            raise InputError(
                f"{name}: {value}: line {number}: expected name, low and high between tabs, each name "
                f"once, got {checks.shown(line)}"
            )
        rows[cells[0]] = ":".join(cells[1:])
    limits_of(name, rows)
    return rows


# -- kinds -----------------------------------------------------------------------------------------

TEXT = Kind("text", lambda name, value: value, "a string", (str,))
#: A file, a folder, or part of one; the checkpoint of a command stores its absolute path.
PATH = replace(TEXT, name="path")
MODULE = Kind("text", _module, "a string", (str,))
FLAG = Kind("flag", checks.flag, "true or false", (bool,))
NUMBER = real(checks.number)
POSITIVE = real(checks.positive)
AT_LEAST_0 = real(checks.at_least_0)
SHARE = real(checks.share)
SHARE_OR_0 = real(checks.share_or_0)
UP_TO_1 = real(checks.up_to_one)
FROM_0_TO_1 = real(checks.real("from 0 to 1", lambda x: 0.0 <= x <= 1.0))
L1_RATIO = real(_l1_ratio)
WHOLE = _whole("a whole number", lambda n: True)
FROM_0 = whole(lambda name, value: checks.whole(name, value, 0))
FROM_1 = whole(lambda name, value: checks.whole(name, value, 1))
BLOCK_ROWS = _whole("a multiple of 64 from 64 to 65536", lambda n: 64 <= n <= 65536 and not n % 64)
SEED_32 = _whole("a whole number from 0 to 2^32 - 1", lambda n: 0 <= n < 1 << 32)
LOSS = Kind("loss", _loss, "a string", (str,))
SIZE = Kind("size", lambda n, v: parse_size(v, n), 'a size such as "4GiB"', (str, int))
DURATION = Kind(
    name="duration",
    check=checks.positive,
    in_file='a duration such as "2h", or seconds',
    types=(str, int, float),
    parse=lambda name, value: parse_duration(value, name),
)
RATE = Kind(
    name="number|auto",
    check=_rate,
    in_file='a number or "auto"',
    types=(int, float, str),
    parse=_parsed(read_number, _rate),
)
_SIZES_OR_INF = checks.real("a finite number of at least 0 or inf", lambda x: x >= 0.0)
SIZE_OR_INF = Kind(
    name="number|inf",
    check=_SIZES_OR_INF,
    in_file="a number",
    types=(int, float, str),
    parse=_parsed(read_number, _SIZES_OR_INF),
)
TABLE_OF_WEIGHTS = Kind("float64|float32|q|qN.M", _table_of_weights, "a string", (str,))
ROW_VIEW = Kind(
    name="all|auto|N",
    check=checks.view_of_rows,
    in_file='"all", "auto" or a number of rows',
    types=(str, int),
    parse=_parsed(read_whole, checks.view_of_rows),
)
LIMITS = Kind(
    name="LOW:HIGH|FILE",
    check=limits_of,
    in_file='"LOW:HIGH", or a table of pairs by feature',
    types=(str, dict),
    parse=_limits_in,
)
CLASS_WEIGHT = Kind(
    name="balanced|LABEL=W,...",
    check=lambda name, value: value,  # validated by `check_class_weight`, once the labels are known
    in_file='"balanced" or a table of weights by label',
    types=(str, dict),
    parse=_weights_of_labels,
)
