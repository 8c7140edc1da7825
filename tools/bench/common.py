"""Helpers that the benchmarks share: the machine, the data, medians, tables."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fcl.data import DataSet

ROOT = Path(__file__).resolve().parents[2]
#: The folder in which make_celegans.py and its genome are expected.
SHARED = ROOT.parent / "shared" / "data"
#: The folder of derived data, which are made once and reused.
MADE = Path(tempfile.gettempdir()) / "fcl-bench"
#: Windows of all five chromosomes (1.2 GB).
WINDOWS = MADE / "celegans"


def machine() -> str:
    """Describe processor, cores, system and versions in one line."""
    import numba

    import fcl

    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}; Python {platform.python_version()}, "
        f"numpy {np.__version__}, numba {numba.__version__}, fcl {fcl.__version__}"
    )


def pin(core: int | None) -> None:
    """Pin this process and its children to one core, if the system supports it.

    core : number of the core; None for the last one that the process may use.
    """
    if not hasattr(os, "sched_setaffinity"):
        print("(not pinned to a core: this system does not support it)", file=sys.stderr)
        return
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[-1] if core is None else core})


# -- data ------------------------------------------------------------------------------------------


def add_data_options(parser: argparse.ArgumentParser, every: int) -> None:
    """Add the options --data, --every and --core."""
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with seq.npy and y.npy of all windows, as make_celegans.py writes it "
        "(default: make one)",
    )
    parser.add_argument(
        "--every", type=int, default=every, help=f"take every k-th row (default {every})"
    )
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")


def windows_folder(given: Path | None) -> Path:
    """Return the folder of the windows of C. elegans I-V; make it if none is given.

    Exits with a message that names the missing files.
    """
    if given is not None:
        missing = [name for name in ("seq.npy", "y.npy") if not (given / name).exists()]
        if missing:
            sys.exit(f"{given}: expected seq.npy and y.npy, but {' and '.join(missing)} is missing")
        return given
    if (WINDOWS / "complete").exists():
        return WINDOWS
    script, genome = SHARED / "make_celegans.py", SHARED / "celegans_acceptors.npz"
    missing = [path.name for path in (script, genome) if not path.exists()]
    if missing:
        sys.exit(
            f"This benchmark needs windows of C. elegans. Expected {script.name} and {genome.name} "
            f"in shared/data beside the repository; missing: {', '.join(missing)}. Put them there, "
            "or name a folder with seq.npy, uint8 (n, 141), and y.npy (n,) with --data."
        )
    print("making the windows of C. elegans I-V (1.2 GB, once) ...", file=sys.stderr)
    WINDOWS.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, str(script), str(WINDOWS)], check=True, stdout=sys.stderr)
    (WINDOWS / "complete").touch()
    return WINDOWS


def derived(name: str, *sources: Path) -> Path:
    """The path for data derived from some files; it changes if the files change."""
    versions = []
    for source in sources:
        found = source.stat()
        shape = np.load(source, mmap_mode="r").shape if source.suffix == ".npy" else found.st_size
        versions.append((str(source.resolve()), shape, found.st_mtime_ns))
    return MADE / f"{name}-{hashlib.sha256(repr(versions).encode()).hexdigest()[:10]}"


def load(folder: Path, every: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int8]]:
    """Load every k-th row of all windows: codes (n, 141) and labels (n,)."""
    y = np.load(folder / "y.npy")[::every].copy()
    windows = np.load(folder / "seq.npy", mmap_mode="r")
    total, length = windows.shape
    codes = np.empty((len(y), length), np.uint8)
    step = every * max(1, (1 << 16) // every)  # rows read at a time
    # The file is not mapped, because mapped pages would count as memory of the process.
    with open(folder / "seq.npy", "rb") as file:
        file.seek(windows.offset)
        for at in range(0, total, step):
            part = np.fromfile(file, np.uint8, min(step, total - at) * length)
            chosen = part.reshape(-1, length)[::every]
            codes[at // every : at // every + len(chosen)] = chosen
    return codes, y


def every_kth(folder: Path, every: int) -> Path:
    """Return a folder with every k-th row of all windows, made once; the given folder if k is 1."""
    if every == 1:
        return folder
    to = derived(f"every-{every}", folder / "seq.npy", folder / "y.npy")
    if not (to / "complete").exists():
        codes, y = load(folder, every)
        to.mkdir(parents=True, exist_ok=True)
        np.save(to / "seq.npy", codes)
        np.save(to / "y.npy", y)
        (to / "complete").touch()
    return to


def open_rows(folder: Path, every: int) -> DataSet:
    """Load every k-th row of all windows as an fcl data set."""
    from fcl import open_data

    codes, y = load(folder, every)
    return open_data(codes, y=y)


# -- figures ---------------------------------------------------------------------------------------


def median(values: Sequence[float]) -> float:
    """The median; NaN if there are no values."""
    return statistics.median(values) if values else float("nan")


def spread(values: Sequence[float]) -> str:
    """The median with the lowest and highest value, such as "4.9 (4.8-5.1)"."""
    if min(values, default=0.0) == max(values, default=0.0):
        return _short(median(values))
    return f"{_short(median(values))} ({_short(min(values))}-{_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100.0 else f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a Markdown table with aligned columns."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


@contextmanager
def constants(module: Any, **values: Any) -> Iterator[None]:
    """Set constants of a module inside a ``with`` block, and restore them."""
    before = {name: getattr(module, name) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
