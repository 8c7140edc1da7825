"""Damaged and crafted files: flipped bytes, and false headers with valid checksums."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tools.fuzz import odd
from tools.fuzz.case import Case
from tools.fuzz.stock import write_zip

#: Decompressed size of a zip bomb, whose member has a few kilobytes.
BOMB = 48 << 20
#: Announced sizes that are far larger than the file.
HUGE = (10**6, 10**9, 2**31, 2**40, 2**62, 10**30)


# -- any bytes -------------------------------------------------------------------------------------


def damage_bytes(case: Case, content: bytes) -> bytes:
    """Damage bytes at random."""
    rng, n = case.rng, len(content)
    what = rng.choice(("flip", "flip", "cut", "empty", "zeros", "longer", "swap", "noise"))
    case.note(what)
    at = int(rng.random() * n)
    if what == "empty":
        return b""
    if what == "cut":
        return content[:at]
    if what == "longer":
        return content + rng.randbytes(rng.choice((1, 100, 5000)))
    if what == "zeros":
        return content[:at] + bytes(min(64, n - at)) + content[at + 64 :]
    if what == "swap":
        half = n // 2
        return content[half:] + content[:half]
    if what == "noise":
        return rng.randbytes(n)
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 30))):
        if out:
            out[int(rng.random() * n)] ^= 1 << rng.randrange(8)
    return bytes(out)


# -- text ------------------------------------------------------------------------------------------

_FIELD = re.compile(rb"[^\t\n\r ,:]+")
_NUMBER = re.compile(rb"[+-]?\d+(\.\d+)?")


def damage_text(case: Case, content: bytes) -> bytes:
    """Change a field or a line of a text, or its ends of lines, or its encoding."""
    rng, lines = case.rng, content.splitlines()
    what = rng.choice(
        (
            *["field"] * 12, "twice", "gone", "swapped", "short", "long", "wide", "header", "bom", "crlf",
            "cr", "nul", "latin", "utf16", "blank", "no end", "only header", "one line",
        )
    )  # fmt: skip
    at = rng.randrange(len(lines)) if lines else 0
    line = lines[at] if lines else b""
    found = list(_FIELD.finditer(line))
    case.note(f"text: {what}, line {at + 1}")
    if what == "field" and found:
        field, new = rng.choice(found), rng.choice(odd.FIELDS)
        if new in odd.MISSPELT and _NUMBER.fullmatch(field[0]):
            case.misspelt = new
        case.note(f"{field[0][:20]!r} became {new[:20]!r}")
        text = new.encode("utf-8", "surrogateescape")
        lines[at] = line[: field.start()] + text + line[field.end() :]
    elif what in ("twice", "gone", "swapped"):
        lines[at : at + 1] = {"twice": [line] * 2, "gone": []}.get(what, [lines[-1], line])
    elif what == "short" and found:
        lines[at] = line[: rng.choice(found).start()]
    elif what == "long":
        lines[at] = line + rng.choice((b"\t", b",", b" ")) + b"7"
    elif what == "wide":
        lines[at] = line + b",7" * 20_000
    elif what == "header":
        lines.insert(0, rng.choice((b"", b"#", b"a,b", line)))
    elif what == "blank":
        lines.insert(at, rng.choice((b"", b" ", b"\t")))
    elif what in ("only header", "one line"):
        lines = lines[: 1 + (what == "one line")]
    end = {"crlf": b"\r\n", "cr": b"\r"}.get(what, b"\n")
    text = end.join([*lines, b""])
    if what == "nul":
        return text[: len(text) // 2] + b"\0" + text[len(text) // 2 :]
    if what == "utf16":
        return text.decode("utf-8", "replace").encode("utf-16")
    return {"bom": b"\xef\xbb\xbf" + text, "latin": text + b"\xe9\n"}.get(
        what, text[:-1] if what == "no end" else text
    )


def is_text(content: bytes) -> bool:
    """Whether a file is text, which has fields that can be changed."""
    try:
        return "\0" not in content.decode() and bool(content)
    except ValueError:
        return False


def craft_compressed(case: Case, path: Path) -> None:
    """Change the text in a compressed file, or put more members behind it."""
    module: Any = gzip if path.suffix == ".gz" else bz2
    try:
        text = module.decompress(path.read_bytes())
    except (OSError, EOFError, ValueError, zlib.error):  # damaged before
        return
    what = case.rng.choice(("text", "text", "text", "cut", "zeros", "line", "behind", "empty"))
    case.note(f"compressed: {what}")
    if what == "text":
        path.write_bytes(module.compress(damage_text(case, text)))
    elif what == "cut":
        content = path.read_bytes()
        path.write_bytes(content[: case.rng.randrange(len(content))])
    elif what == "empty":
        path.write_bytes(module.compress(b""))
    else:
        more = {"zeros": bytes(BOMB), "line": b"7" * BOMB, "behind": b""}[what]
        tail = b"garbage" if what == "behind" else module.compress(more)
        path.write_bytes(module.compress(text) + tail)


def craft_parquet(case: Case, path: Path) -> None:
    """Replace, add or remove a column of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, ValueError):  # damaged before
        return
    at = case.rng.randrange(table.num_columns)
    name = table.column_names[at]
    what = case.rng.choice(("change", "change", "change", "remove", "twice", "nested", "rename"))
    case.note(f"parquet: {what} {name}")
    column: Any = table.column(at)
    if what == "remove":
        table = table.remove_column(at)
    elif what == "twice":
        table = table.append_column(name, column)
    elif what == "nested":
        table = table.set_column(at, name, pa.array([[1, 2]] * table.num_rows))
    elif what == "rename":
        new = case.rng.choice(("", "y", "x" * 9000, "a\nb", "é"))
        table = table.set_column(at, new, column)
    else:
        changed = odd.change(case, column.to_numpy(), name)
        try:
            table = table.set_column(at, name, pa.array(np.asarray(changed).reshape(-1)))
        except (ValueError, TypeError, NotImplementedError, pa.ArrowException):
            case.note("which Parquet cannot store")
    pq.write_table(table, path)


# -- JSON ------------------------------------------------------------------------------------------


def dump_json(value: Any) -> bytes:
    """Write JSON, with NaN allowed; deeply nested arrays replace `odd.DEEP`."""
    text = json.dumps(value, ensure_ascii=False)
    deep = "[" * 100_000 + "]" * 100_000
    return text.replace(json.dumps(odd.DEEP), deep).encode("utf-8", "surrogatepass")


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all entries below a value."""
    keys: Any = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    found = []
    for key in keys:
        found += [(*path, key), *_places(value[key], (*path, key))]
    return found


def damage_json(case: Case, value: Any) -> Any:
    """Replace, remove or add one to three entries of a JSON value."""
    rng = case.rng
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _places(value)
        if not places or case.chance(0.02):
            case.note("all replaced")
            return rng.choice(odd.VALUES)
        *path, key = rng.choice(places)
        inside = value
        for step in path:
            inside = inside[step]
        words = "/".join(map(str, (*path, key)))[:60]
        what = rng.choice(("replace", "replace", "replace", "scale", "remove", "add"))
        if what == "remove":
            del inside[key]
            case.note(f"{words} removed")
        elif what == "add" and isinstance(inside, dict):
            inside[rng.choice(("x", "", "d", "\udcff".encode("utf-8", "replace").decode()))] = 1
            case.note(f"{words}: a key beside it")
        elif what == "scale" and isinstance(inside[key], int | float):
            factor = rng.choice((-1, 0, 2, 0.999, 1.001, 1e3, 1e9, 1e-9, 1e300))
            inside[key] = type(inside[key])(inside[key] * factor) if factor < 1e10 else factor
            case.note(f"{words} times {factor:g}")
        else:
            new = rng.choice((*odd.VALUES, *HUGE))
            inside[key] = new
            case.note(f"{words} = {str(new)[:20]!r}")
    return value


# -- .npy ------------------------------------------------------------------------------------------


def dump_npy(array: Any) -> bytes:
    """Write an array as ``.npy``; arrays of objects are pickled."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def lie(case: Case, content: bytes) -> bytes:
    """Change the header of a ``.npy`` so that it contradicts the data."""
    rng = case.rng
    try:
        array = np.load(io.BytesIO(content))
    except (ValueError, EOFError):
        return content
    shape: Any = array.shape
    descr: Any = array.dtype.str
    order: Any = False
    what = rng.choice(("shape", "shape", "descr", "order", "version", "text", "key"))
    if what == "shape":
        size = rng.choice((*HUGE, -1, 0, 1, True, None, 2.0, "3", shape))
        shape = rng.choice(((size, *shape[1:]), (*shape, size), (size,), size))
    elif what == "descr":
        descr = rng.choice(("|O", "<f4", "<i2", "|S0", "|V9", "<U1", "x", None, 7, [("a", "<f8")]))
    elif what == "order":
        order = rng.choice((True, None, 1))
    header: Any = {"descr": descr, "fortran_order": order, "shape": shape}
    if what == "key":
        header.pop(rng.choice(list(header)))
    text = repr(header)
    if what == "text":
        text = rng.choice(("", "{", "[" * 5000, "1/0", "__import__('os')", text * 900, "\xff"))
    case.note(f"npy header: {what} {text[:80]}")
    encoded = text.encode("latin1") + b"\n"
    version = (
        rng.choice((b"\x02\x00", b"\x03\x00", b"\x09\x09")) if what == "version" else b"\x01\x00"
    )
    wide = version != b"\x01\x00" or len(encoded) > 65_535
    if wide and version == b"\x01\x00":
        version = b"\x02\x00"
    length = len(encoded).to_bytes(4 if wide else 2, "little")
    return b"\x93NUMPY" + version + length + encoded + array.tobytes()


def damage_npy(case: Case, content: bytes) -> bytes:
    """Change the values, dtype or shape of a ``.npy``, or make its header false."""
    if case.chance(0.4):
        return lie(case, content)
    try:
        array = np.load(io.BytesIO(content))
    except (ValueError, EOFError):
        return content
    return dump_npy(odd.change(case, array, "npy"))


# -- zip of JSON and .npy: models, checkpoints, zipped Zarr ----------------------------------------


def _craft_member(case: Case, name: str, content: bytes) -> bytes:
    if name.endswith(".npy"):
        return damage_npy(case, content)
    try:
        return dump_json(damage_json(case, json.loads(content)))
    except (ValueError, RecursionError):  # earlier damage may have nested the JSON too deep
        return damage_bytes(case, content)


def craft_zip(case: Case, path: Path) -> None:
    """Change one to three members of a zip, and keep its checksums valid."""
    rng = case.rng
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    compress = False
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not members:
            break
        what = rng.choice((*["craft"] * 9, "bytes", "remove", "twice", "bomb", "compress", "name"))
        # the header is read first, and has the most entries
        headers = [i for i, (name, _) in enumerate(members) if name.endswith(".json")]
        at = rng.choice(headers) if headers and case.chance(0.6) else rng.randrange(len(members))
        name, content = members[at]
        case.note(f"{name}: {what}")
        if what == "craft":
            members[at] = name, _craft_member(case, name, content)
        elif what == "bytes":
            members[at] = name, damage_bytes(case, content)
        elif what == "remove":
            del members[at]
        elif what == "twice":
            members.append((name, content))
        elif what == "name":
            members[at] = rng.choice(("/etc/x", "../x", "", "x" * 60_000, f"{name}/", "é")), content
        elif what == "bomb":
            compress = True
            filler = bytes(BOMB) if name.endswith(".npy") else b" " * BOMB
            members[at] = name, content + filler
        else:
            compress = True
    write_zip(path, members, compress)


# -- HDF5 ------------------------------------------------------------------------------------------


def craft_hdf5(case: Case, path: Path) -> None:
    """Replace or remove a dataset, a group or an attribute of an HDF5 file."""
    import h5py

    rng = case.rng
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = rng.choice(names)
        node = file[name]
        attributes = list(node.attrs)
        if attributes and case.chance(0.6):
            key = rng.choice(attributes)
            new = rng.choice(
                (0, -1, 2.5, "x", [1], [80, 2**40], [2**40, 3], [-1, 3], [1, 2, 3], "csc_matrix")
            )
            case.note(f"{name}@{key} = {new!r}")
            if case.chance(0.2):
                del node.attrs[key]
            else:
                node.attrs[key] = new
            return
        what = rng.choice(
            ("change", "change", "change", "remove", "group", "soft", "external", "huge")
        )
        case.note(f"{name}: {what}")
        values = node[()] if isinstance(node, h5py.Dataset) else None
        del node
        del file[name]
        if what == "group":
            file.create_group(name)
        elif what == "soft":
            file[name] = h5py.SoftLink(rng.choice((f"/{name}", "/nowhere", "/")))
        elif what == "external":
            file[name] = h5py.ExternalLink(
                rng.choice(("nowhere.h5", "/etc/passwd", path.name)), "/"
            )
        elif what == "huge":
            shape = (
                rng.choice((10**7, 10**9, 2**40)),
                *(() if values is None else values.shape[1:]),
            )
            file.create_dataset(name, shape, "f4", chunks=(64, *shape[1:]))
        elif what == "change" and values is not None:
            changed = odd.change(case, values, name)
            try:
                file[name] = np.asarray(changed)
            except (TypeError, ValueError):  # HDF5 has no such type
                file[name] = b"text"


# -- any file or folder ----------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _replace(case: Case, path: Path) -> None:
    what = case.rng.choice(("gone", "folder", "special"))
    case.note(f"{path.name}: {what}")
    path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "special":
        odd.make_special(case, path)


def _craft_json_file(case: Case, path: Path) -> None:
    path.write_bytes(dump_json(damage_json(case, json.loads(path.read_bytes()))))


def _craft(case: Case, path: Path) -> None:
    """Craft a file according to its format; damage its bytes if the format is unknown."""
    crafts: dict[str, Callable[[Case, Path], None]] = {".h5": craft_hdf5}
    crafts.update(dict.fromkeys((".zip", ".fcl", ".fcl-ckpt", ".npz"), craft_zip))
    crafts.update(dict.fromkeys((".gz", ".bz2"), craft_compressed))
    crafts[".parquet"] = craft_parquet
    crafts.update(dict.fromkeys((".json", ".zarray", ".zgroup", ".zattrs"), _craft_json_file))
    suffix = path.suffix or path.name
    if suffix == ".npy":
        path.write_bytes(damage_npy(case, path.read_bytes()))
    elif suffix in crafts:
        crafts[suffix](case, path)
    else:
        content = path.read_bytes()
        craft = damage_text if is_text(content) else damage_bytes
        path.write_bytes(craft(case, content))


def damage(case: Case, path: Path) -> None:
    """Damage or craft one file of a data set, a model or a folder of checkpoints."""
    files = [p for p in _files(path) if p.name not in ("lock", "complete")]
    # Few files are metadata, but damage to them matters more.
    described = [p for p in files if p.suffix == ".json" or p.name.startswith(".z")]
    file = case.rng.choice(described if described and case.chance(0.5) else files)
    what = case.rng.choice((*["craft"] * 6, *["bytes"] * 3, "replace"))
    case.note(os.fspath(file.relative_to(case.folder)) if file.is_relative_to(case.folder) else "")
    if what == "craft":
        _craft(case, file)
    elif what == "bytes":
        file.write_bytes(damage_bytes(case, file.read_bytes()))
    else:
        _replace(case, file)


def damage_checkpoints(case: Case, folder: Path) -> None:
    """Damage the newest checkpoint of a folder, and perhaps the ones before it, which can be used."""
    files = sorted(folder.glob("*.fcl-ckpt"))
    if len(files) > 1 and case.chance(0.3):
        files.pop(0).unlink()
    damage(case, files[-1])
    for path in files[:-1]:
        if case.chance(0.3):
            damage(case, path)
