"""Files that are refused: models of one output and of several, rounded models, checkpoints."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import npy, rewrite, set_array, set_header

from fcl.errors import InputError, ModelFileError
from fcl.files.compact import Encoding, pack_arrays
from fcl.files.folder import CheckpointFolder
from fcl.model import load_model
from fcl.model.covariates import CovariateTerm
from tests.model.conftest import SEVERAL, make_checkpoint, make_compact, make_model

Damage = Callable[[Path], object]
Case = tuple[str, Damage, str]

# -- what a case changes in a good file


def header(*place: str, **values: Any) -> Damage:
    return lambda path: set_header(path, *place, **values)


def wrong(expected: str, *found: tuple[str, Any]) -> list[Case]:
    """Keys of the header, such as ``options.command``; name and value are in the message."""
    cases = []
    for name, value in found:
        *place, key = name.split(".")
        message = f"{name}: expected {expected}.*got {re.escape(repr(value))}"
        cases.append((f"{name} {value!r:.40}", header(*place, **{key: value}), message))
    return cases


def member(name: str, content: np.ndarray | bytes) -> Damage:
    stored = npy(content) if isinstance(content, np.ndarray) else content
    return lambda path: rewrite(path, lambda members: members.update({name: stored}))


def changed(change: Callable[[dict[str, bytes]], object], compress: int = 0) -> Damage:
    return lambda path: rewrite(path, change, compress)


def content(found: bytes) -> Damage:
    return lambda path: path.write_bytes(found)


def levels(*found: str) -> Case:
    model = make_model(covariates=[CovariateTerm("obs/sex", found, (0.5,))])
    message = f"covariate obs/sex: expected sorted levels, .* 1 coefficients, got {len(found)}"
    return f"levels {' '.join(found)}", lambda path: model.save(path, overwrite=True), message


# -- models of one output

PICKLED = npy(np.array([{"a": 1}, 2, 3], dtype=object), pickle=True)
ANNOUNCED = npy(np.zeros(10**6))[:128].replace(b"(1000000,), }         ", b"(1000000000000000,), }")
NO_ZIP = r"not a model file \(File is not a zip file"
VERSION = "version must be an integer from 1, got"

ONE: list[Case] = [
    ("newer version", header(version=5, fcl_version="9.9", certificate="unreadable here"),
     r"format version 5, this fcl reads up to 4: made by a newer fcl\? .*'9\.9'"),
    *((f"version {value!r}", header(version=value), f"{VERSION} {value!r}")
      for value in (0, -1, 1.0, True, "1", None)),
    ("format", header(format="somebody-else"), "format is 'somebody-else'"),
    ("no file", Path.unlink, "no such model file"),
    ("folder", lambda path: (path.unlink(), path.mkdir()), "is a folder"),
    ("empty file", content(b""), NO_ZIP),
    ("short file", content(b"hello"), NO_ZIP),
    ("head of a zip", content(b"PK\x03\x04" + bytes(50)), NO_ZIP),
    ("random bytes", content(np.random.default_rng(0).bytes(999)), NO_ZIP),
    ("no header", changed(lambda members: members.pop("header.json")), r"holds no header\.json"),
    ("compressed", changed(len, zipfile.ZIP_DEFLATED), "is compressed; expected a model file"),
    ("family", header(family={"family": "unheard", "d": 2}), "unknown family 'unheard'"),
    ("loss", header(loss="quantile"), "loss: unknown loss 'quantile'; expected one of logistic"),
    ("empty certificate", header(certificate={}), "certificate.objective is missing"),
    *wrong("an object", ("family", 3), ("certificate", 7)),
    *wrong("a list", ("history", 5)), *wrong("a list of 2", ("labels", [1])),
    *wrong("a finite number", ("intercept", None)),
    ("n_active", header(n_active=2), r"says 2 active features, weights\.npy has 3"),
    ("missing key", header(sum_weights=...), "sum_weights is missing"),
    ("equal ids", member("ids.npy", np.array([3, 250, 250])), "strictly, got 250 after 250"),
    ("falling ids", member("ids.npy", np.array([3, 999, 250])), "strictly, got 250 after 999"),
    ("huge ids", member("ids.npy", np.array([-(2**63), 0, 2**63 - 1])),
     r"in \[0, 1000\).* to 9223372036854775807"),
    ("id beyond", member("ids.npy", np.array([0, 1, 1000])), r"in \[0, 1000\).* got 0 to 1000"),
    ("ids i4", member("ids.npy", np.array([0, 1, 2], "<i4")), "ids.npy must be a vector of <i8, got <i4"),
    ("two ids", member("ids.npy", np.array([0, 1])), "one length"),
    ("pickle", member("ids.npy", PICKLED), r"ids\.npy must be a vector of <i8, got \|O"),
    ("weight nan", member("weights.npy", np.array([1.0, np.nan, 1.0])), "weights .* must be finite"),
    ("weights >f8", member("weights.npy", np.array([1, 2, 3], ">f8")), "a vector of <f8, got >f8"),
    ("weights 2D", member("weights.npy", np.ones((3, 1))), r"got <f8 of shape \(3, 1\)"),
    ("announced size", member("weights.npy", ANNOUNCED), "1000000000000000 values of 8 bytes declared"),
    ("support", member("support.npy", np.array([1, -1, 1])), "support counts rows"),
    levels("m", "f"), levels("f"), levels("f", "m", "x"), levels("f", "f"),
]  # fmt: skip

# -- models of three classes

SEVERAL_OUTPUTS: list[Case] = [
    ("intercept", header(intercept=0.5), "labels: expected a list of 2, got .*pear"),
    *wrong("a number, or a list of two or more", ("intercept", [0.5])),
    ("intercept none", header(intercept=[0.5, None, 1]), r"intercept\[1\]: expected a finite number"),
    ("intercepts", header(intercept=[0.5, 1, 2, 3]), "labels: expected a list of 4, got .*pear"),
    *wrong("a list of 3", ("labels", ["a", "b"])),
    ("equal labels", header(labels=["a", "b", "a"]), "expected a different label for each class"),
    ("label of lists", header(labels=["a", ["b"], "c"]), r"labels\[1\]: expected a number or a string"),
    ("no labels", header(labels=None), "labels: expected 3, one for each class, got none"),
    ("loss", header(loss="poisson"), "expected one of softmax, squared, logistic"),
    ("loss of a list", header(loss=["softmax"]), r"loss: unknown loss \['softmax'\]"),
    ("group", header(options={"group": 1}), "options.group: expected true or false, got 1"),
    ("class_weight", header(options={"class_weight": [["a", 1]]}), "expected at least two pairs"),
    ("n_active", header(n_active=6), "says 6 active features"),
    ("weights 2D", member("weights.npy", np.ones((3, 3))), r"a vector of <f8, got <f8 of shape \(3, 3\)"),
    ("eight weights", member("weights.npy", np.ones(8)), "9 values, of 3 features and 3 outputs, got 8"),
    ("three weights", member("weights.npy", np.ones(3)), "9 values, of 3 features and 3 outputs, got 3"),
    ("weights nan", member("weights.npy", np.full(9, np.nan)), "weights and intercept must be finite"),
    ("many intercepts allocate nothing", header(intercept=[0.0] * 100_000, labels=list(range(100_000))),
     "expected 300,000 values"),
]  # fmt: skip

# -- rounded models

FALLING = {"ids": np.array([3, 2, 9]), "weights": np.ones(3), "support": np.ones(3, np.int64)}
CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda found: b"", "expected at most 128 numbers for each byte, got 3"),
    "cut": (lambda found: found[:-1], "a stream ends beyond the member"),
    "longer": (lambda found: found + b"\1", "there are more bytes than numbers"),
    "zeros": (lambda found: bytes(40), "a chunk with 0 bits, 0 bytes and 0 wide numbers"),
}


def packed(name: str, change: str) -> Case:
    """Valid checksums around bytes that no writer wrote."""
    to, message = CHANGES[change]
    damage = changed(lambda members: members.update({name: to(members[name])}))
    return f"{name} {change}", damage, rf"{name} is damaged \({message}"


PACKED = ("ids.gaps", "weights.q", "support.q")
COMPACT: list[Case] = [
    *wrong("a whole number from -32 to 52", ("encoding.m", 53), ("encoding.m", True)),
    *wrong("one of nearest, random", ("encoding.rounding", "up")),
    *wrong("one of zstd, zlib", ("encoding.codec", "lz4")),
    *wrong("a finite number", ("encoding.loss", "low")),
    *wrong("a whole number from 0", ("encoding.seed", -1)),
    ("other codec", header("encoding", codec="zlib"), r"ids\.gaps is damaged \(Error .* decompressing"),
    ("two features", header(n_active=2), r"ids\.gaps is damaged \(a chunk with 0 bits, 2"),
    ("four features", header(n_active=4), r"ids\.gaps is damaged \(a chunk with 0 bits, 2"),
    # numbers that the file cannot hold are refused before its arrays are unpacked
    ("many features", header(n_active=10**9), "1,000,000,000 features .* of memory; expected at most"),
    ("most features", header(n_active=1 << 61), "693,952 features .* of memory; expected at most"),
    ("falling ids", changed(lambda members: members.update(pack_arrays(FALLING, Encoding(7, "nearest")))),
     r"ids\.gaps is damaged \(ids that do not increase"),
    *(packed(name, change) for name in PACKED for change in CHANGES),
    *((f"no {name}", changed(lambda members, name=name: members.pop(name)), f"holds no {name}")
      for name in PACKED),
]  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("make", "damage", "message"),
    [
        *(pytest.param(make_model, *case, id=name) for name, *case in ONE),
        *(
            pytest.param(lambda: make_model(**SEVERAL), *case, id=f"several {name}")
            for name, *case in SEVERAL_OUTPUTS
        ),
        *(pytest.param(make_compact, *case, id=f"compact {name}") for name, *case in COMPACT),
    ],
)
def test_models(make: Callable[[], Any], damage: Damage, message: str, tmp_path: Path) -> None:
    make().save(path := tmp_path / "m.fcl")
    damage(path)
    with pytest.raises(ModelFileError, match=rf"m\.fcl: .*{message}"):
        load_model(path)


# -- checkpoints


def array(name: str, value: Any, message: str) -> Case:
    value = np.asarray(value)
    damage = member(f"{name}.npy" if name == "block_checksums" else f"arrays/{name}.npy", value)
    return f"{name} {value.tolist()}", damage, f"{name}.*{message}"


def zeros(path: Path) -> None:
    """What a file system may leave after a crash: the right length, blocks of zeros."""
    set_array(path, "ids", np.arange(2000))
    set_array(path, "weights", np.ones(2000))
    found = bytearray(path.read_bytes())
    found[4096:8192] = bytes(4096)
    path.write_bytes(found)


NO_PYTHON = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + b"[" * 117 + b"\n"
CHECKPOINT: list[Case] = [
    ("format", header(format="fcl-model"), "not a checkpoint"),
    ("version 0", header(version=0), f"{VERSION} 0"),
    ("version '1'", header(version="1"), f"{VERSION} '1'"),
    *((f"no {key}", header(**{key: ...}), f"{key} is missing") for key in ("state", "options")),
    *wrong("an object", ("state", 3), ("state", None), ("state", []), ("options", None), ("options", "C"),
           ("family", None), ("options.command", ["C"]), ("state.sample", None)),
    *wrong("a list", ("history", {}), ("arrays", None)),
    *wrong("a finite number", ("elapsed", "long"), ("elapsed", math.nan), ("elapsed", -1.0)),
    *wrong("a whole number from 1", ("n_rows", "600"), ("n_rows", 0), ("n_rows", 600.0)),
    *wrong("a whole number from 64", ("options.block_rows", "256"), ("options.block_rows", 0)),
    *wrong("a whole number", ("number", None)),
    *wrong("a string", ("created", 5), ("fingerprint", None)),
    ("history [3]", header(history=[3]), r"history\[0\]: expected an object, got 3"),
    ("unknown array", header(arrays=["lost"]), "array ids is missing"),
    ("no array seen", header(arrays=["ids", "weights", "cached"]), "array seen is missing"),
    ("command", header("options", command={"C": [0.1]}), "command.C: expected a plain value, got a list"),
    ("empty sample", header("state", sample={}), "state.sample.most is missing"),
    ("last", header("state", last={"objective": "1"}), "last.objective: expected a finite number"),
    ("best_intercept", header("state", best_intercept=0.5), "array best_ids is missing"),
    ("untried_intercept", header("state", untried_intercept=0.5), "array untried_ids is missing"),
    array("ids", [0, 1], "and 3 weights"),
    array("ids", [3, 3, 4], "expected increasing numbers"),
    array("ids", [-1, 3, 4], "expected increasing numbers"),
    array("ids", [3.0, 7.0, 9.0], "vector of <i8, got <f8"),
    array("ids", ["3", "7", "9"], "vector of <i8, got <U1"),
    array("ids", [[3], [7], [9]], r"of shape \(3, 1\)"),
    array("ids", 3, r"of shape \(\)"),
    array("weights", [1.0, np.nan, 1.0], r"expected numbers up to 1e\+100"),
    array("weights", [1.0, 1e308, 1.0], r"expected numbers up to 1e\+100"),
    array("weights", [1, 2, 3], "vector of <f8, got <i8"),
    array("cached", [7, 7], "expected distinct numbers"),
    array("cached", [7, -1], "distinct numbers >= 0"),
    array("cached", [7], "and 2 seen"),
    array("cached", np.array([7, 3], ">i8"), "vector of <i8, got >i8"),
    array("seen", [1, 0], r"vector of \|b1, got <i8"),
    array("seen", [[True], [True]], r"of shape \(2, 1\)"),
    array("block_checksums", [1.0, 1.0, 1.0], "vector of <u8, got <f8"),
    array("block_checksums", ["a", "b", "c"], "vector of <u8, got <U1"),
    array("block_checksums", np.ones((3, 1), "<u8"), r"got <u8 of shape \(3, 1\)"),
    ("two checksums", member("block_checksums.npy", np.ones(2, "<u8")), "2 checksums for 600 rows"),
    ("array that is not Python", member("arrays/seen.npy", NO_PYTHON), r"seen\.npy is damaged \("),
    ("zeros in place of an array", zeros, "Bad CRC-32 for file 'arrays/ids.npy'"),
    ("very many members", changed(lambda found: found.update({f"{i:06d}": b"" for i in range(25_000)})),
     r"list of members has 1,\d+,\d+ bytes, expected at most"),
]  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("damage", "message"), [pytest.param(*case, id=name) for name, *case in CHECKPOINT]
)
def test_checkpoints(damage: Damage, message: str, folder: CheckpointFolder) -> None:
    damage(folder.save(make_checkpoint()))
    with pytest.raises(InputError, match=rf"no intact checkpoint \(checkpoint 1: .*{message}"):
        folder.load()
