"""Odd values: texts for options, JSON values for headers, arrays, and names of files."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tools.fuzz.case import Case

#: Texts that few options accept. A lone surrogate represents a byte that is not UTF-8.
TEXTS = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "-0", "1e400", "1e-320", "1e308", "1e-308", "٣",
    "1_000", "0x10", "1,5", "½", "--", "-", "\n", "a\nb", "\t", "é", "\udcff\udcfe", "None", "true",
    "[]", "{}", "=", ":", "::", "a::b", "..", "/", "~", "*", "$HOME", "%s", "{0}", str(2**31),
    str(2**63), str(2**64), "9" * 400, "1" * 5000, "a" * 300, "a" * 100_000, "1GiB", "1e3GiB",
    "-1GiB", "1XiB", "5m", "-5m", "1e9h", "infs", "balanced", "auto", "1.5", "a=1", "a=1,b=2",
    "0=1,1=2", "0=nan", "=1", "1=", "\x1b[31m", "\u202e", "😀",
    "http://user:hunter2@127.0.0.1:1/x.zarr", "tcp://user:hunter2@127.0.0.1:1",
    "http://127.0.0.1:1/x.zarr?token=hunter2",
)  # fmt: skip
#: The password in `TEXTS`, which no command may say or write.
SECRET = "hunter2"

#: Fields of files of text. Python alone reads the spellings in `MISSPELT` as numbers.
MISSPELT = ("1_0", "1_0.5", "\u0663", "0x10", "\uff11")
FIELDS = (
    *MISSPELT, *MISSPELT, "", "nan", "inf", "-inf", "NA", "1e400", "1e-320", "1e308", "-0", "-1", "0",
    "1.5", "2.0", "+1", "01", "1,5", "9" * 400, str(2**31), str(2**63), "10000000000", '"', '"a', "'",
    "=1+1", "@a", "\0", "\x1b[31m", "é", "\udcff", "a" * 100_000, "#", "\t", "\r", "a b", "N", "true",
)  # fmt: skip
#: Modules that libraries look for; a command must not import them from its working folder.
CANARIES = ("org", "cupy", "colorama", "lz4", "fsspec", "pandas", "yaml", "pyarrow", "simplejson")

SPECS = (
    "", "kmers", "kmers:", "kmers:d", "kmers:d=", "kmers:d=0", "kmers:d=-1", "kmers:d=13",
    "kmers:d=99", "kmers:d=2.5", "kmers:d=nan", "kmers:d=2,d=3", "kmers:e=2", "kmers:d=2,origin=x",
    "kmers:d=2,origin=99999999999999999999999", "kmers:d=2 + ", " + ", "+", "* 2", "columns * 0",
    "columns * -1", "columns * nan", "columns * inf", "columns * 1e-300", "columns * 1e300",
    "columns * 2 * 3", "columns + columns", "columns:factors=[1,2", "columns:factors=[]",
    "columns:factors=[1,2,3]", "columns:factors=[0,0,0,0,0,0]", "columns:factors=nan", "nosuch",
    "columns:factors=[1e300,1,1,1,1,1]", 'columns:factors=["inf",1,1,1,1,1]', "nosuch:d=2",
    "os:system", "os:path", "json:JSONDecoder", "json:loads:s=1", "no.such.module:Class", "a:b:c",
    "products", "products:degree=0", "products:degree=64", "products:degree=65",
    "products:degree=1000000", "products:degree=2,binary=true", "products:binary=maybe",
    "products:scale=maybe", "products:scale=true,binary=true", "products:scale=true", "fourier",
    "fourier:n=0", "fourier:n=-5", "fourier:n=1000000000000000000000", "fourier:n=1e9",
    "fourier:n=20,scale=0", "fourier:n=20,scale=nan", "fourier:n=20,kernel=box", "bag", "bag:d=0",
    "bag:d=40", "bag:d=2,strands=three", "bag:d=2,value=presence,wildcards=true", "bag:wildcards=1",
    "columns:" + "[" * 1000, "kmers:d=" + "1" * 5000, "é:ü", "\udcff:x", "columns\n", "a" * 50_000,
    "../x:Y", "/etc/passwd:x", "sys:exit", "builtins:list", "tools.fuzz.case:Case",
    "kmers:d=2" * 99,
)  # fmt: skip

DEEP = "@deep@"  #: placeholder for arrays nested 100,000 deep, which json.dumps cannot write

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.0, -0.0, 0.5, 1e-300, 1e300, 2**31, 2**40, 10**9, 2**63,
    2**64, 10**30, math.nan, math.inf, -math.inf, "", "x", "1", "nan", "é", "a\nb", "\x00",
    "\x1b[2J", "x" * 160_000, [], [None], [1, 2], [[1], [2, 3]], {}, {"a": 1}, {"": None}, DEEP,
    "/etc/passwd",
)  # fmt: skip


def text(case: Case) -> str:
    """A random odd text for an option."""
    return case.rng.choice(TEXTS)


def mangle(case: Case, good: str) -> str:
    """Remove, insert, double or change a character of a text, cut it, or swap its case."""
    if not good:
        return "x"
    at = case.rng.randrange(len(good))
    put = case.rng.choice("=:,+*[]- 0a\n\udcff")
    return case.rng.choice(
        (
            good[:at] + good[at + 1 :],
            good[:at] + put + good[at:],
            good[:at] + put + good[at + 1 :],
            good[:at] + good[at] + good[at:],
            good.swapcase(),
            good[:at],
        )
    )


# -- arrays ----------------------------------------------------------------------------------------


def _set(array: np.ndarray, case: Case, value: Any) -> np.ndarray:
    out = array.astype(np.float64) if array.dtype.kind != "f" else array.copy()
    if out.size:
        out.flat[case.rng.randrange(out.size)] = value
    return out


def _cast(dtype: str) -> Callable[[np.ndarray, Case], np.ndarray]:
    return lambda array, case: array.astype(dtype)


#: Changes for any array: functions of the array and the case.
CHANGES: dict[str, Callable[[np.ndarray, Case], Any]] = {
    "one NaN": lambda a, c: _set(a, c, np.nan),
    "one inf": lambda a, c: _set(a, c, np.inf),
    "one -inf": lambda a, c: _set(a, c, -np.inf),
    "one 1e30": lambda a, c: _set(a, c, 1e30),
    "one 1e300": lambda a, c: _set(a, c, 1e300),
    "one 1e-300": lambda a, c: _set(a, c, 1e-300),
    "one -1": lambda a, c: _set(a, c, -1.0),
    "all 0": lambda a, c: np.zeros_like(a),
    "all 1": lambda a, c: np.ones_like(a),
    "all 1e-300": lambda a, c: np.full(a.shape, 1e-300),
    "all 1e300": lambda a, c: np.full(a.shape, 1e300),
    "all NaN": lambda a, c: np.full(a.shape, np.nan),
    "times 1e8": lambda a, c: a * 1e8,
    "times 1e-8": lambda a, c: a * 1e-8,
    "12 orders": lambda a, c: a * 10.0 ** c.numbers.uniform(-6, 6, a.shape),
    "no rows": lambda a, c: a[:0],
    "one row": lambda a, c: a[:1],
    "one row less": lambda a, c: a[:-1],
    "one row more": lambda a, c: np.concatenate([a, a[:1]]),
    "no columns": lambda a, c: a[:, :0] if a.ndim > 1 else a[:0],
    "a third axis": lambda a, c: a[..., None, None],
    "flat": lambda a, c: a.reshape(-1),
    "one number": lambda a, c: np.array(3.0),
    "a column": lambda a, c: a.reshape(len(a), -1)[:, :1],
    "two columns": lambda a, c: np.stack([a.reshape(len(a), -1)[:, 0]] * 2, axis=1),
    "Fortran order": lambda a, c: np.asfortranarray(a),
    "strided": lambda a, c: np.repeat(a, 2, axis=0)[::2],
    "reversed": lambda a, c: a[::-1],
    "big-endian": lambda a, c: a.astype(a.dtype.newbyteorder(">")),
    "object": lambda a, c: a.astype(object),
    "object with None": lambda a, c: np.where(a == a.flat[0], np.array(None), a) if a.size else a,
    "text": lambda a, c: a.astype("U12"),
    "bytes": lambda a, c: a.astype("S12"),
    "text not ASCII": lambda a, c: np.full(a.shape, "é"),
    "dates": lambda a, c: np.abs(a).astype("i8").astype("M8[s]"),
    "durations": lambda a, c: np.abs(a).astype("i8").astype("m8[s]"),
    "records": lambda a, c: np.zeros(a.shape, [("a", "f8"), ("b", "i4")]),
    "raw bytes": lambda a, c: np.zeros(a.shape, "V3"),
    "masked": lambda a, c: np.ma.masked_array(a, a == a.flat[0] if a.size else False),
    "read-only": lambda a, c: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "near 2^63": lambda a, c: np.full(a.shape, 2**63 - 1, np.int64),
    "near 2^64": lambda a, c: np.full(a.shape, 2**64 - 1, np.uint64),
    "subnormal": lambda a, c: np.full(a.shape, 5e-324),
    "all different": lambda a, c: np.arange(a.size, dtype=np.float64).reshape(a.shape),
    **{
        f"as {dtype}": _cast(dtype)
        for dtype in ("f2", "f4", "f8", "g", "i1", "u1", "i8", "u8", "?", "c8", "c16")
    },
}


def change(case: Case, array: np.ndarray, what: str) -> Any:
    """Make one random change to an array; returns the array itself if that is not possible."""
    name = case.rng.choice(list(CHANGES))
    with np.errstate(all="ignore"):
        try:
            changed = CHANGES[name](array, case)
        except (ValueError, TypeError, IndexError, OverflowError):
            return array
    case.note(f"{what}: {name}")
    return changed


# -- names of files --------------------------------------------------------------------------------

NAMES = (
    " ", " a", "a ", "a b", "a\nb", "\n", "\t", "-", "--out", "-x", "é", "名", "😀", "a'b", 'a"b',
    "$(x)", "%s", "{0}", "a::b", "::", "a::", "::/g", "a:b", ".hidden", "...", "a.", "*", "\\",
    "\x7f", "\udcff\udcfe", "a\udc80b", "\x1b[31mred", "a" * 200, "a" * 255, "a" * 256, "a" * 5000,
    "é" * 127, "a/" * 2000 + "b", "./a", ".//a", "x/../a", "~", "CON", "nul.npy", "\u202eabc",
)  # fmt: skip


def make_special(case: Case, path: Path) -> bool:
    """Create a special file, or an odd file or folder, at a path; return whether this succeeded."""
    what = case.rng.choice(
        (
            "fifo", "socket", "loop", "dangling", "empty file", "empty folder", "unreadable",
            "unreadable folder", "link to device", "long link", "read-only folder",
        )
    )  # fmt: skip
    try:
        if what == "fifo":
            os.mkfifo(path)
        elif what == "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(os.fspath(path))
        elif what == "loop":
            path.symlink_to(path.name)
        elif what == "dangling":
            path.symlink_to("nowhere")
        elif what == "link to device":
            path.symlink_to(case.rng.choice(("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")))
        elif what == "long link":
            path.symlink_to("a" * 1000)
        elif what.endswith("folder"):
            path.mkdir(
                mode={"unreadable folder": 0o000, "read-only folder": 0o500}.get(what, 0o700)
            )
        else:
            path.touch(mode=0o000 if what == "unreadable" else 0o600)
    except OSError:  # the system does not allow it
        return False
    case.note(f"{path.name!r} is a {what}")
    return True
