"""Models of other programs that are refused; every message names the file."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fcl.errors import InputError
from fcl.model.foreign import load_weights
from fcl.model.foreign.hashing import murmur
from tests.model.conftest import EIGHT, FOUR, VW, family_of

Write = Callable[[Path], object]
Case = tuple[str, str | Write, str]  # what it is called, writes and tells


def vw(name: str, old: str = "Version", new: str = "Version") -> str:
    """A file of Vowpal Wabbit with a text replaced."""
    text = (VW / name).read_text()
    assert old in text
    return text.replace(old, new)


def cut(name: str, place: int | None) -> str:
    """A file of Vowpal Wabbit up to some lines behind its header, or within its last weight."""
    text = (VW / name).read_text()
    lines = text.splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("options:"))
    return text[:-3] if place is None else "".join(lines[: at + place])


def array(values: object, size: int | None = None) -> Write:
    def write(path: Path) -> None:
        np.save(path, np.asarray(values))
        path.write_bytes(path.read_bytes()[:size])

    return write


def arrays(**values: np.ndarray) -> Write:
    return lambda path: np.savez(path, **values)  # type: ignore[arg-type]


def too_large(path: Path) -> None:
    words = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    head = np.lib.format.magic(1, 0) + b"\x76\x00" + words.ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("coef.npy", head + bytes(8))


AFTER = "a weight after the header.*"
CUTS = {0: "line options: .*", 1: AFTER, 3: AFTER, None: "the end of a line.*"}
CASES: dict[str, list[Case]] = {
    "m.txt": [
        ("products", vw("quad.txt"), "expected names, since the hashes of products"),
        ("--oaa", vw("oaa.inv"), "trained with --oaa"),
        ("hash", vw("bare.txt", "137097:-0.28", "5:-0.28"), "'5' is no feature of Columns; if the feat"),
        ("namespace", vw("ns.txt"), r"'14405' is no feature of Columns \(4 such weights\)"),
        ("name", vw("bare.inv", "age:", "eon:"), "line 15: 'eon' is no feature of Columns"),
        ("name twice", vw("bare.inv", "age:", "x1:"), "line 15: 'x1' is the same feature as .*line 14"),
        ("weight nan", vw("bare.inv", "0.835904", "nan"),
         "line 15: expected a finite number .* got 'nan'"),
        ("no name", vw("bare.inv", "age:", ""), "line 15: expected a name before the hash"),
        ("no weight", vw("bare.inv", "age:165201:0.835904", "and so on"), "line 15: expected a weight,"),
        ("other output", vw("bare.inv", "age:", "age[1]:"), r"line 15: .* of another output, 'age\[1\]'"),
        ("no options", vw("bare.txt", "options:", "optional:"), "expected a line options: before"),
        ("lda", vw("bare.txt", "lda:0", "lda:7"), "got one with lda '7'"),
        ("ngram", vw("bare.txt", "0 ngram", "2 ngram"), "got one with ngram '2'"),
        ("bits", vw("bare.txt", "bits:18", "bits:no"), "a line such as bits:18, got 'no'"),
        *((f"{name} cut at {place}", cut(name, place), f"{words}cut off")
          for name in ("few.inv", "few.txt", "bare.inv", "l1.txt") for place, words in CUTS.items()),
    ],
    "w.tsv": [
        ("empty", "", "expected a table of names and weights, got an empty file"),
        ("three cells", "age\tb\tc\n", "line 1: expected .* separated by a tab, got 3 cells"),
        ("one cell", "age 1\n", "line 1: expected .* separated by a tab, got 1 cells"),
        ("two cells", "name\tvalue\tweight\nage\t1\n", "line 2: expected 3 cells, got 2"),
        ("head", "word\tweight\nage\t1\n", "line 1: expected a column called feature beside weight"),
        ("outputs", "feature\toutput\tweight\nage\ta\t1\n", "line 1: expected the weights of one output"),
        ("twice", "age\t1\nage\t2\n", "line 2: 'age' is the same feature as 'age' .*line 1"),
        ("unknown", "age\t1\nsize\t2\n", "line 2: 'size' is no feature of Columns"),
        ("weight inf", "age\t1\nx1\tinf\n", "line 2: expected a finite number as weight, got 'inf'"),
        ("intercepts", "age\t1\nintercept\t1\n(intercept)\t1\n", "line 3: expected one intercept"),
    ],
    "w.npy": [
        ("2D", array(np.zeros((3, 4))), r"of shape \(p,\) or \(1, p\), got \(3, 4\)"),
        ("five weights", array(np.zeros(5)), "expected 4 weights, one for each feature .*, got 5"),
        ("inf", array([0.0, np.inf]), "expected finite numbers, got inf at position 1"),
        ("text", array(["a"]), "expected numbers, got <U1"),
        ("array cut off", array(np.zeros(5), 40), r"not a readable \.npy"),
    ],
    "w.npz": [
        ("no coef", arrays(other=np.zeros(4)), "expected an array called coef, found other"),
        ("compressed", lambda path: np.savez_compressed(path, coef=np.zeros(4)), "is compressed"),
        ("intercept", arrays(coef=np.zeros(4), intercept=np.zeros(3)), ":intercept: expected one number"),
        ("objects", arrays(coef=np.array([{}], object)), r"an array is damaged: object"),
        ("size", too_large, "an array is damaged: float64 .* does not fit its size"),
    ],
    "w.bin": [
        ("bytes", lambda path: path.write_bytes(bytes(range(128, 256))), "expected a text in UTF-8"),
    ],
    "none.txt": [
        ("no file", lambda path: None, "expected the file of a model, found none"),
    ],
}  # fmt: skip
#: Of columns several of which have the same hash.
SHARED: list[Case] = [
    ("place", vw("few.inv", "age:1:", "age:6:"), "expected the hash 1 of 'age', got 6; it cannot"),
    ("namespaces", vw("few-ns.inv", "f^b:4", f"g^b:{murmur(b'b', murmur(b'g', 0)) % 8}"),
     r"expected features of one namespace, got \['f', 'g'\]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "name", "write", "message"),
    [
        pytest.param(EIGHT if cases is SHARED else FOUR, name, *case, id=f"{name} {case_id}")
        for name, cases in (*CASES.items(), ("m.txt", SHARED))
        for case_id, *case in cases
    ],
)
def test_refusals(
    columns: list[str], name: str, write: str | Write, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(write) if isinstance(write, str) else write(path)
    with pytest.raises(InputError, match=message) as error:
        load_weights(path).of(family_of(width=len(columns)), columns)
    assert str(path) in str(error.value)
