"""The data of the benchmarks, each made once: rows in memory, or folders that commands read.

A function that returns :class:`Rows` gives matrices; one that returns a path gives files. What takes long
to make is kept in a folder of the system's temporary folder.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tools.bench.common import EXAMPLE, MADE, shared

if TYPE_CHECKING:
    from fcl.data import DataSet

Floats = npt.NDArray[np.float64]
#: Number of chromosome V, and the folders of the other windows and of its own.
V, TRAIN, VALID = 4, "I-IV", "V"
#: Size of generated texts.
TEXT_ROWS, TEXT_WORDS = 50_000, 74_000


@dataclass
class Rows:
    """Rows and labels in memory.

    Parameters
    ----------
    x : array
        Codes, uint8 (n, length), or a dense or CSR matrix: what fcl reads.
    y : array
        Labels (n,).
    features : str
        The family of fcl.
    matrix : array or Path, optional
        All features, CSR, for solvers that need them, or the file that has them; default: ``x``.
    tests, of_tests : arrays, optional
        Test rows, and their labels.
    making : float
        Seconds to make the matrix from what fcl reads.
    notes : dict
        Other figures of the data.
    is_few : bool
        Whether these are the few rows on which everything is loaded or compiled.
    """

    x: Any
    y: Any
    features: str = "columns"
    matrix: Any = None
    tests: Any = None
    of_tests: Any = None
    making: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    is_few: bool = False

    def few(self, n: int = 400) -> Rows:
        """Some rows of each class, for imports and compilation."""
        labels = np.unique(self.y)
        if len(labels) > 50:
            some = np.arange(min(n, len(self.y)))
        else:
            each = max(2, n // len(labels))
            some = np.sort(np.concatenate([np.flatnonzero(self.y == k)[:each] for k in labels]))
        matrix = None if self.matrix is None else self.X[some]
        return replace(self, x=self.x[some], y=self.y[some], matrix=matrix, is_few=True)

    @property
    def X(self) -> Any:
        """All features, as a matrix; read if they are in a file."""
        from scipy import sparse

        if isinstance(self.matrix, Path):
            return sparse.load_npz(self.matrix)
        return self.x if self.matrix is None else self.matrix

    def open(self) -> DataSet:
        """The rows as a data set of fcl."""
        import fcl

        return fcl.open_data(self.x, y=self.y)

    def shuffled(self) -> Rows:
        """The rows in a random order with a seed, as a CSR matrix."""
        from scipy import sparse

        order = np.random.default_rng(0).permutation(len(self.y))
        X = sparse.csr_matrix(self.X, dtype=np.float64)
        return replace(self, x=X[order], matrix=None, y=np.asarray(self.y, float)[order])


# -- windows of C. elegans ---------------------------------------------------------------------------


def windows_folder(folder: str | None = None) -> Path:
    """Return the folder of the windows of C. elegans I-V; make them (1.2 GB) if none is given.

    Raises
    ------
    SystemExit
        With the names of the missing files.
    """
    if folder is not None:
        given = Path(folder)
        if missing := [name for name in ("seq.npy", "y.npy") if not (given / name).exists()]:
            sys.exit(f"{given}: expected seq.npy and y.npy, but {' and '.join(missing)} is missing")
        return given
    target = MADE / "celegans"
    if not (target / "complete").exists():
        script = shared("make_celegans.py")
        shared("celegans_acceptors.npz")
        print("making the windows of C. elegans I-V (1.2 GB, once) ...", file=sys.stderr)
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(script), str(target)], check=True, stdout=sys.stderr)
        (target / "complete").touch()
    return target


def made(name: str, write: Callable[[Path], None], *sources: Path) -> Path:
    """A folder of derived data, written once; its name changes if the sources change."""
    versions = []
    for source in sources:
        found = source.stat()
        shape = np.load(source, mmap_mode="r").shape if source.suffix == ".npy" else found.st_size
        versions.append((str(source.resolve()), shape, found.st_mtime_ns))
    folder = MADE / f"{name}-{hashlib.sha256(repr(versions).encode()).hexdigest()[:10]}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(folder)
        (folder / "complete").touch()
    return folder


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


def windows(folder: str | None = None, every: int = 40, d: int = 8, rows: int = 0) -> Rows:
    """Every k-th window of C. elegans; ``rows`` repeats them up to that number."""
    codes, y = load(windows_folder(folder), every)
    if rows:
        codes, y = np.resize(codes, (rows, codes.shape[1])), np.resize(y, rows)
    return Rows(codes, y, f"kmers:d={d}")


def window_files(folder: str | None = None, every: int = 1) -> Path:
    """A folder with every k-th window of C. elegans."""
    source = windows_folder(folder)
    if every == 1:
        return source

    def write(to: Path) -> None:
        codes, y = load(source, every)
        np.save(to / "seq.npy", codes)
        np.save(to / "y.npy", y)

    return made(f"every-{every}", write, source / "seq.npy", source / "y.npy")


def split_files(folder: str | None = None) -> Path:
    """A folder with the windows of chromosomes I to IV, and of V."""
    source = windows_folder(folder)
    if not (source / "chromosome.npy").exists():
        sys.exit(f"{source}: expected chromosome.npy, which make_celegans.py writes")

    def write(to: Path) -> None:
        chromosome = np.load(source / "chromosome.npy")
        for part, rows in ((TRAIN, chromosome != V), (VALID, chromosome == V)):
            (to / part).mkdir()
            for name in ("seq.npy", "y.npy"):
                np.save(to / part / name, np.load(source / name, mmap_mode="r")[rows])

    names = ("seq.npy", "y.npy", "chromosome.npy")
    return made("beyond", write, *(source / name for name in names))


def example(step: int = 1, every: int = 1, d: int = 8) -> Rows:
    """Windows of examples/celegans, with those of valid.zarr as tests."""
    import zarr

    found = []
    for part, k in (("train.zarr", every), ("valid.zarr", step)):
        group: Any = zarr.open_group(EXAMPLE / part, mode="r")
        found += [np.asarray(group[key])[::k] for key in ("X", "y")]
    codes, y, tests, of_tests = found
    return Rows(codes, y, f"kmers:d={d}", tests=tests, of_tests=of_tests)


def all_kmers(codes: npt.NDArray[np.uint8], d: int) -> Any:
    """Make all positional k-mers with wildcards of windows without unknown letters, CSR float64."""
    from scipy import sparse

    n, length = codes.shape
    per_position = 4 * 5 ** (d - 1)
    columns = []
    for position in range(length - d + 1):
        for mask in range(2 ** (d - 1)):  # which letters after the first are wildcards
            code = codes[:, position].astype(np.int32)
            for k in range(1, d):
                code = 5 * code + (4 if mask >> (k - 1) & 1 else codes[:, position + k])
            columns.append(position * per_position + code)
    indices = np.stack(columns, axis=1)
    indices.sort(axis=1)
    indptr = np.arange(n + 1, dtype=np.int64) * indices.shape[1]
    shape = (n, (length - d + 1) * per_position)
    return sparse.csr_matrix((np.ones(indices.size), indices.ravel(), indptr), shape)


def kmers(folder: str | None = None, every: int = 160, d: int = 4) -> Rows:
    """Every k-th window of C. elegans, and the matrix of all its k-mers."""
    from scipy import sparse

    source = window_files(folder, every)

    def write(to: Path) -> None:
        codes = np.load(source / "seq.npy")
        since = time.perf_counter()
        sparse.save_npz(to / "X.npz", all_kmers(codes, d), False)
        np.save(to / "seconds.npy", time.perf_counter() - since)

    kept = made(f"kmers-{every}-{d}", write, source / "seq.npy", source / "y.npy")
    y = np.load(source / "y.npy").astype(np.float64)
    making = float(np.load(kept / "seconds.npy"))
    codes = np.load(source / "seq.npy")
    return Rows(codes, y, f"kmers:d={d}", matrix=kept / "X.npz", making=making)


def wide_window_files(ratio: float = 16.0, memory: str = "768MiB", every: int = 4) -> Path:
    """A Zarr group of windows whose decoded bytes exceed a budget by a factor.

    The windows lie around every k-th site, with the A of its AG at letter width // 2; letters beyond the
    ends of a chromosome are unknown.
    """
    import zarr

    from fcl.units import parse_size

    cutter, archive, keys, labels = genome_sites(every)
    y = np.concatenate(list(labels.values())).astype(np.int8)
    n = len(y)
    width = -(-int(ratio * parse_size(memory, "memory")) // n)

    def write(to: Path) -> None:
        print(f"making {n:,} windows of {width:,} letters (once) ...", file=sys.stderr)
        group: Any = zarr.open_group(to / "wide.zarr", mode="w", zarr_format=3)
        group.create_array("y", data=y, chunks=(n,))
        rows = max(1, (6 << 20) // width)  # of a chunk, and the number that is held here
        x = group.create_array("X", shape=(n, width), chunks=(rows, width), dtype=np.uint8)
        held, at = np.empty((0, width), np.uint8), 0
        for name, found in keys.items():
            bases = cutter.chromosome(archive, name)
            for start in range(0, len(found), rows):
                part = cut(bases, found[start : start + rows], width)
                held = np.concatenate([held, part])
                if len(held) >= rows:  # only whole chunks are written
                    x[at : at + rows] = held[:rows]
                    held, at = held[rows:].copy(), at + rows
        if len(held):
            x[at:] = held

    sources = shared("celegans_acceptors.npz"), shared("make_celegans.py")
    return made(f"wide-{n}x{width}", write, *sources) / "wide.zarr"


def genome_sites(every: int, unclear: bool = False) -> tuple[Any, Any, Any, Any]:
    """Module of make_celegans.py, its archive, and keys and labels of every k-th site by chromosome."""
    cutter = SimpleNamespace(**runpy.run_path(str(shared("make_celegans.py"))))
    archive = np.load(shared("celegans_acceptors.npz"))
    keys, labels = {}, {}
    for name in cutter.NAMES:
        found = cutter.candidates(cutter.chromosome(archive, name))
        if not unclear:
            found = found[~np.isin(found, archive[f"{name}_unclear"])]
        keys[name] = found[::every]
        labels[name] = np.where(np.isin(keys[name], archive[f"{name}_acceptors"]), 1, -1)
    return cutter, archive, keys, labels


def cut(
    bases: npt.NDArray[np.uint8], keys: npt.NDArray[np.int64], width: int
) -> npt.NDArray[np.uint8]:
    """Cut windows (len(keys), width) around sites; key = 2 * position + (1 on the forward strand)."""
    place, forward = keys >> 1, (keys & 1).astype(bool)
    left = width // 2
    # On the reverse strand the window is read backwards, so its longer side has larger positions.
    first = place - np.where(forward, left, width - 1 - left)
    low, high = int(first.min()), int(first.max()) + width
    stretch = np.full(high - low, 4, np.uint8)
    inside = slice(max(low, 0), min(high, len(bases)))
    stretch[inside.start - low : inside.stop - low] = bases[inside]
    windows = np.lib.stride_tricks.sliding_window_view(stretch, width)[first - low]
    complement = np.array([3, 2, 1, 0, 4], np.uint8)
    windows[~forward] = complement[windows[~forward, ::-1]]
    return windows


def genome_files(rows: int = 50_000_000, seed: int = 1) -> Path:
    """Windows of a generated genome: seq.npy, uint8 (rows, 141), and y.npy, int8.

    Letters are a Markov chain of order 3 with the statistics of C. elegans. Half a per cent of the rows
    are positive. 25 words of 2 to 5 letters have a position and a probability each, with which they are
    written into positive rows. Half of them are also written into as many negative rows, at another
    position, so that they mislead.
    """
    length, positive_share, part_rows = 141, 0.005, 500_000
    source = windows_folder()

    def write(to: Path) -> None:
        real, _ = load(source, 400)
        counts, state = np.ones((64, 4)), np.zeros(len(real), np.int64)
        for k in range(length):
            if k >= 3:
                np.add.at(counts, (state, real[:, k]), 1.0)
            state = (4 * state + real[:, k]) % 64
        chances = (counts / counts.sum(axis=1, keepdims=True)).cumsum(axis=1)[:, :3]
        chances = chances.astype(np.float32)
        random = np.random.default_rng(seed)
        words = []
        for number in range(25):
            size = int(random.integers(2, 6))
            at, elsewhere = random.integers(0, length - size + 1, 2)
            word = random.integers(0, 4, size).astype(np.uint8)
            words.append((int(at), int(elsewhere), word, random.uniform(0.02, 0.2), number % 2))
        seq = np.lib.format.open_memmap(to / "seq.npy", "w+", np.uint8, (rows, length))
        y = np.where(random.random(rows) < positive_share, 1, -1).astype(np.int8)
        for first in range(0, rows, part_rows):
            n = min(part_rows, rows - first)
            part, state = np.empty((length, n), np.uint8), random.integers(0, 64, n)
            for letters in part:
                chance = random.random(n, np.float32)[:, None]
                letters[:] = (chance > chances[state]).sum(axis=1)
                state = (4 * state + letters) % 64
            own = np.ascontiguousarray(part.T)
            label = y[first : first + n]
            for at, elsewhere, word, share, fair in words:
                chosen = np.flatnonzero(label > 0)
                chosen = chosen[random.random(len(chosen)) < share]
                own[chosen, at : at + len(word)] = word
                if not fair:
                    others = np.flatnonzero(label < 0)
                    others = others[random.random(len(others)) < share * positive_share]
                    own[others, elsewhere : elsewhere + len(word)] = word
            seq[first : first + n] = own
        seq.flush()
        np.save(to / "y.npy", y)

    return made(f"genome-{rows}-{seed}", write)


# -- data sets -----------------------------------------------------------------------------------------


def a9a(form: str = "sparse") -> Rows:
    """Census income: 123 binary columns, with its test rows.

    form : "sparse" and "dense" (float64), "dense32", "sparse32" (float32), or "bool"
    """
    from sklearn.datasets import load_svmlight_file

    found: list[Any] = []
    for name in ("a9a.gz", "a9a.t.gz"):
        with gzip.open(shared(name)) as file:
            X, y = load_svmlight_file(file, n_features=123)
        if form.endswith("32"):
            X = X.astype(np.float32)
        if not form.startswith("sparse"):
            X = X.toarray() > 0 if form == "bool" else X.toarray()
        found += [X, y]
    return Rows(found[0], found[1], tests=found[2], of_tests=found[3])


def newsgroups(group: int | None = 0, scale: str = "", split: str = "date", every: int = 1) -> Rows:
    """20 newsgroups: word counts, with test rows.

    Parameters
    ----------
    group : int, optional
        The positive group, or None for 20 classes.
    scale : str
        "": counts; "unit": counts in rows of length 1;
        "stagewise": log(1 + count) of words in at least three texts, float32, in random order.
    split : str
        By "date", or "random" for 15,000 training rows.
    """
    from scipy import sparse

    X = sparse.load_npz(shared("20news_counts.npz")).tocsr().astype(np.float64)
    y = np.load(shared("20news_y.npy")).astype(np.int64)
    held = np.load(shared("20news_is_test.npy")).astype(bool)
    random = np.random.default_rng(0)
    if split == "random":
        held = (np.arange(len(y)) >= 15_000)[random.permutation(len(y))]
    if scale == "stagewise":
        X.data = np.log1p(X.data)
        X = X[:, np.flatnonzero(X.getnnz(axis=0) >= 3)].astype(np.float32)
        X = X[:, random.permutation(X.shape[1])].tocsr()
    elif scale:
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        X = sparse.csr_matrix(sparse.diags(1.0 / np.where(length > 0.0, length, 1.0)) @ X)
    label: Any = y
    if group is not None:
        label = np.where(y == group, 1.0, -1.0)
    train, test = X[~held][::every], X[held]
    return Rows(train, label[~held][::every], tests=test, of_tests=label[held])


def magic_rows() -> tuple[Floats, Floats]:
    with gzip.open(shared("magic04.data.gz"), "rt") as file:
        lines = [line.strip().split(",") for line in file if line.strip()]
    X = np.array([line[:-1] for line in lines], np.float64)
    return X, np.array([1.0 if line[-1] == "g" else -1.0 for line in lines])


def magic(every: int = 1) -> Rows:
    """MAGIC gamma telescope: 10 raw columns with scales from 0.02 to 300; a quarter held out."""
    X, y = magic_rows()
    return _held_out(X[::every], y[::every])


def mnist(rows: int = 0, target: str = "digits", scale: bool = True, every: int = 1) -> Rows:
    """MNIST with its test rows: pixels, from 0 to 1 (float32) or from 0 to 255 (uint8).

    target : "digits", "even" (+1) against odd (-1), or the number of the positive digit
    """
    with np.load(shared("mnist.npz")) as stored:
        x, y, tests, of_tests = (stored[f"{part}_{key}"] for part in ("train", "test")
                                 for key in "xy")  # fmt: skip
    if scale:
        x, tests = (part.astype(np.float32) / 255.0 for part in (x, tests))
    labels = [part.astype(np.int64) for part in (y, of_tests)]
    if target != "digits":
        labels = [np.where(part % 2 == 0 if target == "even" else part == int(target), 1, -1)
                  for part in labels]  # fmt: skip
    some = slice(None, rows or None, every)
    return Rows(x[some], labels[0][some], tests=tests, of_tests=labels[1])


def mnist_cosines(rows: int = 10_000, n: int = 1_000) -> Rows:
    """Random cosines of the first digits, dense float64."""
    from fcl.features import bind_features, parse_features

    digits = mnist(rows, scale=False)
    family: Any = bind_features(parse_features(COSINES.format(n=n)), digits.open().rows)
    block = family.generator.prepare(digits.x.astype(np.float64))
    X = family.generator.columns(np.arange(n), block).astype(np.float64)
    return Rows(X, digits.y)


#: Cosines of digits.
COSINES = "fourier:n={n},pca=50,standardise=true"


def mnist_components(rows: int = 0, n: int = 50) -> Rows:
    """The principal components of pixels, by the training rows."""
    digits = mnist(rows)
    mean = digits.x.mean(axis=0, dtype=np.float64)
    _, vectors = np.linalg.eigh(np.cov(digits.x.astype(np.float64).T))
    axes = vectors[:, : -n - 1 : -1]
    x, tests = (((part - mean) @ axes).astype(np.float32) for part in (digits.x, digits.tests))
    return replace(digits, x=x, tests=tests)


def splice(d: int = 4, known: bool = True, held: bool = False) -> Rows:
    """UCI splice: windows of 60 bases in three classes, and the matrix of their k-mers.

    known : leave out windows with unknown letters, which the matrix needs
    held : hold out a quarter
    """
    with shared("uci_splice.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    codes = np.array([["ACGT".find(c) for c in line["sequence"].strip()] for line in lines])
    codes[codes < 0] = 4
    kinds = [line["label"].strip() for line in lines]
    y = np.unique(kinds, return_inverse=True)[1].astype(np.int64)
    if known:
        some = (codes < 4).all(axis=1)
        codes, y = codes[some], y[some]
    codes = codes.astype(np.uint8)
    if held:
        return replace(_held_out(codes, y), features=f"kmers:d={d}")
    matrix = all_kmers(codes, d) if known and d <= 5 else None
    return Rows(codes, y, f"kmers:d={d}", matrix=matrix)


def _held_out(X: Any, y: Any) -> Rows:
    held = np.random.default_rng(0).random(len(y)) < 0.25
    return Rows(X[~held], y[~held], tests=X[held], of_tests=y[held])


def fasta(positive: str, negative: str) -> Rows:
    """Sequences of two FASTA files as codes, padded with unknown letters."""
    letters = np.full(256, 4, np.uint8)
    letters[np.frombuffer(b"ACGTacgt", np.uint8)] = [0, 1, 2, 3] * 2
    parts = []
    for path in (positive, negative):
        entries = Path(path).read_bytes().split(b">")[1:]
        parts.append([b"".join(entry.split()[1:]) for entry in entries])
    found = parts[0] + parts[1]
    codes = np.full((len(found), max(map(len, found))), 4, np.uint8)
    for row, text in zip(codes, found, strict=True):
        row[: len(text)] = letters[np.frombuffer(text, np.uint8)]
    y = np.repeat([1, 0], [len(part) for part in parts])
    return Rows(codes, y, notes={"files": (positive, negative)})


# -- generated tables ----------------------------------------------------------------------------------


def _texts(random: np.random.Generator, sizes: npt.NDArray[Any]) -> Any:
    """Counts of words of Zipf frequencies in texts of these sizes, CSR float64."""
    from scipy import sparse

    sizes = sizes.astype(np.int64)
    frequency = 1.0 / (np.arange(TEXT_WORDS) + 3.0)
    words = random.choice(TEXT_WORDS, sizes.sum(), p=frequency / frequency.sum())
    rows = np.repeat(np.arange(TEXT_ROWS), sizes)
    return sparse.coo_matrix((np.ones(len(words)), (rows, words)), (TEXT_ROWS, TEXT_WORDS)).tocsr()


def _planted(random: np.random.Generator, X: Any, columns: Any, size: float) -> Floats:
    """Labels of a logistic model with normal weights on some columns, both equally frequent."""
    weights = np.zeros(X.shape[1])
    weights[columns] = random.normal(0.0, size, len(columns))
    margins = X @ weights
    chance = 1.0 / (1.0 + np.exp(np.median(margins) - margins))
    return np.where(random.random(len(margins)) < chance, 1.0, -1.0)


def _kept(name: str, make: Callable[[], tuple[Any, Floats]]) -> Rows:
    """A generated CSR matrix with labels, made once."""
    from scipy import sparse

    def write(to: Path) -> None:
        X, y = make()
        X.sort_indices()
        sparse.save_npz(to / "X.npz", X, False)
        np.save(to / "y.npy", y)

    kept = made(name, write)
    return Rows(sparse.load_npz(kept / "X.npz"), np.load(kept / "y.npy"))


def texts() -> Rows:
    """Texts of 60 to 240 words of Zipf frequencies; 400 of the 20,000 most frequent have a weight."""

    def make() -> tuple[Any, Floats]:
        random = np.random.default_rng(0)
        X = _texts(random, random.integers(60, 241, TEXT_ROWS))
        return X, _planted(random, X, random.choice(20_000, 400, replace=False), 1.5)

    return _kept("texts", make)


def reviews() -> Rows:
    """Texts such as reviews: two balanced classes, and thousands of weak words.

    Lengths are lognormal around 170 words of Zipf frequencies. 6,000 of the words from the 50th to the
    30,000th have a small weight, so that models have thousands of features.
    """

    def make() -> tuple[Any, Floats]:
        random = np.random.default_rng(5)
        X = _texts(random, np.clip(random.lognormal(np.log(170.0), 0.55, TEXT_ROWS), 20, 1500))
        weak = random.choice(np.arange(50, 30_000), 6_000, replace=False)
        return X, _planted(random, X, weak, 0.6)

    return _kept("reviews", make)


def wide(rows: int = 84_700, columns: int = 359_000) -> Rows:
    """A wide sparse table, 0.1 % nonzeros at random places; 1,000 columns have a weight."""
    from scipy import sparse

    def make() -> tuple[Any, Floats]:
        random, each = np.random.default_rng(0), columns // 1_000
        places = random.integers(0, columns, rows * each, dtype=np.int32)
        values, starts = random.normal(size=len(places)), np.arange(0, len(places) + 1, each)
        X = sparse.csr_matrix((values, places, starts), (rows, columns))
        X.sum_duplicates()
        weak = random.choice(columns, 1_000, replace=False)
        return X, _planted(random, X, weak, 4.0)

    return _kept(f"wide-{rows}-{columns}", make)


def wide_files(rows: int = 847_000, columns: int = 359_000, values: str = "f8") -> Path:
    """A wide sparse table as a CSR matrix in Zarr, written part by part.

    Each row has a thousandth of the columns, with normal values; labels follow a planted model of 1,000
    columns. values : type of the values
    """
    import zarr

    part_rows, each = 1 << 15, columns // 1_000

    def write(to: Path) -> None:
        random = np.random.default_rng(0)
        weights = np.zeros(columns)
        weights[random.choice(columns, 1_000, replace=False)] = random.normal(0.0, 4.0, 1_000)
        group: Any = zarr.open_group(to / "table.zarr", mode="w")
        matrix = group.create_group("X")
        matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        matrix.attrs["shape"] = [rows, columns]
        made_as = {"shape": (rows * each,), "chunks": (part_rows * each // 16,)}
        indices = matrix.create_array("indices", dtype="i4", compressors=None, **made_as)
        data = matrix.create_array("data", dtype=values, compressors=None, **made_as)
        matrix.create_array("indptr", data=each * np.arange(rows + 1, dtype=np.int64))
        y = np.empty(rows)
        for first in range(0, rows, part_rows):
            n = min(part_rows, rows - first)
            # one column of each stratum of a thousand, so that no row has a column twice
            places = random.integers(0, 1_000, (n, each), dtype=np.int32)
            places += 1_000 * np.arange(each, dtype=np.int32)
            normal = random.normal(size=(n, each))
            margins = (normal * weights[places]).sum(axis=1)
            chance = 1.0 / (1.0 + np.exp(-margins))
            y[first : first + n] = np.where(random.random(n) < chance, 1, -1)
            own = slice(first * each, (first + n) * each)
            indices[own], data[own] = places.ravel(), normal.ravel()
        group.create_array("y", data=y)

    return made(f"wide-{rows}-{columns}-{values}", write) / "table.zarr"


def numbers(rows: int = 100_000, columns: int = 20) -> Rows:
    """Normal numbers, dense float64; the labels follow a hinge of one column."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, columns))
    return Rows(x, np.where(np.abs(x[:, 0]) + random.normal(size=rows) > 0.8, 1.0, -1.0))


def number_files(rows: int = 1_000_000, inputs: int = 20, classes: int = 10) -> Path:
    """A folder of float32 rows in classes that are neither linear nor quite predictable."""

    def write(to: Path) -> None:
        random = np.random.default_rng(0)
        x = np.lib.format.open_memmap(to / "X.npy", "w+", np.float32, (rows, inputs))
        y = np.empty(rows, np.int64)
        truth = random.normal(size=(2, inputs, classes)).astype(np.float32)
        for first in range(0, rows, 1 << 16):
            some = slice(first, min(first + (1 << 16), rows))
            x[some] = random.standard_normal((some.stop - first, inputs), np.float32)
            scores = np.tanh(x[some] @ truth[0]) + np.sin(x[some] @ truth[1])
            y[some] = (scores + 0.3 * random.gumbel(size=scores.shape)).argmax(axis=1)
        np.save(to / "y.npy", y)

    return made(f"numbers-{rows}-{inputs}-{classes}", write)


def genome_to_score(bases: int = 30_000_000) -> Path:
    """A random genome, a SNV every 2,000 bases, and a random model of 500 patterns of up to 8 letters."""

    def write(to: Path) -> None:
        from fcl.features import KmerFamily
        from fcl.model import Certificate, Model

        random = np.random.default_rng(0)
        codes = random.integers(0, 4, bases, np.uint8)
        letters = np.frombuffer(b"ACGT", np.uint8)[codes].tobytes()
        (to / "g.fa").write_bytes(b">chr1\n" + letters)
        at = np.arange(1000, bases, 2000)
        lines = (f"chr1\t{p + 1}\t.\t{'ACGT'[c]}\t{'CGTA'[c]}\n"
                 for p, c in zip(at, codes[at], strict=True))  # fmt: skip
        (to / "v.vcf").write_text("##fileformat=VCFv4.2\n" + "".join(lines))
        random = np.random.default_rng(1)
        family = KmerFamily(8, 141, 70)
        ids = np.sort(random.choice(family.n_features, 500, replace=False))
        support = np.ones(500, np.int64)
        certificate = Certificate(1.0, 1.0, 0.0, 1.0, 1, passes=1)
        Model(
            family, ids, random.normal(size=500), support, 0.3, "logistic", 1.0, 1.0, (-1, 1), 9,
            9.0, "ab" * 32, certificate,
        ).save(to / "m.fcl")  # fmt: skip

    return made(f"genome-to-score-{bases}", write)


def nothing() -> None:
    """No data."""
