"""Numbers as text against the C library, and every place that reads them."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import fcl
from fcl.convert.cells import find_column
from fcl.convert.labels import is_number
from fcl.data.targets import _is_label
from fcl.features import parse_features
from fcl.features.plain import Columns
from fcl.model.foreign import table, weights
from fcl.numerals import read_number, read_whole
from fcl.objective import find_loss
from fcl.options import TRAINING
from fcl.store import location
from fcl.units import parse_duration, parse_size

C = ctypes.CDLL(None)
C.strtod.restype, C.strtod.argtypes = ctypes.c_double, [ctypes.c_char_p, ctypes.c_void_p]
C.strtol.restype = ctypes.c_long
C.strtol.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int]


def by_c(text: str, call: Callable[..., Any], *base: int) -> float | None:
    """What C reads, if it reads all of the text apart from blanks at its end."""
    content = text.encode() + b"\0"
    buffer, end = ctypes.create_string_buffer(content), ctypes.c_void_p()
    value = call(buffer, ctypes.byref(end), *base)
    read = (end.value or 0) - ctypes.addressof(buffer)
    rest = content[read:-1]
    return None if read == 0 or rest.strip(b" \t\n\r\f\v") else value


def same(one: float | None, other: float | None) -> bool:
    return one == other or bool(one and other and math.isnan(one) and math.isnan(other))


WORDS = [
    "1_0", "_1", "1_", "0x10", "1 0", "", " ", "+", ".", "1.", ".5", "+.5e-3", "1e", "e5", "1e5", "--1",
    "+-1", "1,5", "1.5.2", "inf", "-INF", "+Infinity", "infinit", "NaN", "-nan", "nan1", "1e999",
    "1e-999", "\u0661", "1\u0660", "\uff11", "\u00a01", "1\u2003", "\x1c1", "\t 1\n", "\v1\f", "1\0",
    "\u00b2", "\u0131nf", "9" * 40, "1d5", "1f", "1L", "True", "0b1", "0o7", "-0", "007",
]  # fmt: skip


def texts() -> list[str]:
    drawn = random.Random(4)
    letters = "0123456789+-.eE_ xX"
    return [*WORDS, *("".join(drawn.choices(letters, k=drawn.randint(1, 7))) for _ in range(4000))]


@pytest.mark.parametrize("kind", [str, bytes])
def test_numbers_are_those_of_c(kind: type) -> None:
    for text in texts():
        given = text if kind is str else text.encode()
        if "x" in text.lower() or "(" in text or "\0" in text:  # hexadecimal: a promise of ours
            assert read_number(given) is None
            continue
        expected = by_c(text, C.strtod)
        assert same(read_number(given), expected), text
        if expected is None or abs(expected) < 2**62:
            assert same(read_whole(given), by_c(text, C.strtol, 10)), text
    assert read_whole("9" * 40) == 10**40 - 1 and read_whole("9" * 5000) is None


def raises_or(call: Callable[[str], Any], text: str) -> Any:
    try:
        return call(text)
    except fcl.InputError:
        return None


def weight(text: str) -> float:
    return weights.number(text, "w.txt", 1)


def named_column(text: str) -> int | None:
    family = Columns()
    family.n_features = 20
    found = int(family.find([f"x{text}"])[0])
    return None if found < 0 else found


#: Readers of texts: each returns a number; for other texts it returns None or raises InputError.
READERS: dict[str, Callable[[str], Any]] = {
    "--C": TRAINING["C"].kind.read,
    "--seed": TRAINING["seed"].kind.read,
    "class weight": lambda text: TRAINING["class_weight"].kind.read(f"a={text}")["a"],
    "option of a family": lambda text: parse_features(f"kmers:d={text}").d,  # type: ignore[union-attr]
    "factor": lambda text: parse_features(f"columns * {text}").members[0][1],  # type: ignore[union-attr]
    "option of a loss": lambda text: find_loss(f"huber:delta={text}").delta,  # type: ignore[union-attr]
    "memory": lambda text: parse_size(f"{text}MiB") >> 20,
    "duration": lambda text: parse_duration(f"{text}s"),
    "label of text": lambda text: 10 if is_number(text) else None,
    "weight": weight,
    "column": lambda text: find_column("t", ["c"] * 12, text)[0] + 1,
    "class": lambda text: 10 if _is_label(text, 10.0) else None,
    "requests": lambda text: int(location._texts({"requests": text})["requests"]),
    "header": lambda text: None if table._is_header(["weight", text]) else 10,
    "name of a column": named_column,
}


@pytest.mark.parametrize("name", READERS)
def test_every_place_reads_them_so(name: str) -> None:
    read = READERS[name]
    assert read("10") == 10
    for text in ("1_0", "\u0661\u0660", "1\u0660", "\uff11\uff10", "0x0a", "1 0", "10\u00b2"):
        assert raises_or(read, text) is None, text


@pytest.mark.parametrize("text", ["1_0", "\u0661", "\u00b2"])
def test_readable_models_of_vowpal_wabbit(tmp_path: Path, text: str) -> None:
    """The number of bits, a place, a weight, and the state of the learner."""
    plain = "Version 9\nbits:18\noptions:\n:0\na:5:1.5\n"
    path, data = tmp_path / "m.txt", fcl.open_data(np.eye(4), y=[1, -1, 1, -1])
    for old, new in (("bits:18", f"bits:{text}"), ("a:5:", f"a:{text}:"), (":1.5", f":{text}")):
        path.write_text(plain.replace(old, new))
        with pytest.raises(fcl.InputError, match="expected"):
            fcl.certify(path, data, features="columns", C=1.0)


def test_no_option_reads_numbers_as_python_does() -> None:
    """Python and click read 1_0 as 10, and digits of other alphabets."""
    from tools.fuzz.commands import commands

    kinds = (click.types.IntParamType, click.types.FloatParamType)
    found = [
        f"{name} {each.name}"
        for name, command in commands().items()
        for each in command.params
        if isinstance(each.type, kinds)
    ]
    assert not found
