#!/usr/bin/env python3
"""Accuracy against time with more features than fit in memory: fcl on all, other solvers on some.

    python tools/bench/beyond.py fcl [--d 8] [--C 0.03] [--memory 6GiB]
    python tools/bench/beyond.py peers [--every 10] [--letters 1,2,3] [--sampled 30000,100000]
    python tools/bench/beyond.py peers --every 1 --letters "" --sampled 150000 --methods liblinear

Both train on chromosomes I-IV of C. elegans (6,206,429 windows) and validate on V (2,117,310) by the area
under the precision-recall curve. ``fcl`` prints the scores of its anchors over time, from the start of
the command. The ``peers`` train on every k-th row at k times C, and are scored on every fourth row of V.
Their features are all k-mers with wildcards of so few letters that the matrix fits, or a random sample of
the features of d letters, as in the paper; the third line is a sample that fills most of a memory of 24
GB. ``matrix`` is the time to make the matrix; ``solve`` is the
time of the solver alone at its own default tolerance. Needs the extra ``peers``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import cases, common, jobs, peers

if TYPE_CHECKING:
    from fcl.features.base import Ids
    from fcl.solve.state import Floats

#: Number of chromosome V, and the folders of the other windows and of its own.
V = 4
TRAIN, VALID = "I-IV", "V"
#: Default tolerances of the peers; for Vowpal Wabbit 1 / passes.
TOLERANCES = {"liblinear": 1e-2, "celer": 1e-4, "skglm": 1e-4, "saga": 1e-3, "vw": 1 / 2}
#: The models of the peers are scored on every k-th row of V, in blocks of rows.
SCORED_EVERY = 4
SCORED_ROWS = 1 << 16


def split(folder: Path) -> Path:
    """Write the windows of I-IV and of V once; return the folder of both."""
    if not (folder / "chromosome.npy").exists():
        sys.exit(f"{folder}: expected chromosome.npy, which make_celegans.py writes; it is missing")
    names = ("seq.npy", "y.npy", "chromosome.npy")
    parts = common.derived("beyond", *(folder / name for name in names))
    if (parts / "complete").exists():
        return parts
    chromosome = np.load(folder / "chromosome.npy")
    for part, rows in ((TRAIN, chromosome != V), (VALID, chromosome == V)):
        (parts / part).mkdir(parents=True, exist_ok=True)
        for name in ("seq.npy", "y.npy"):
            np.save(parts / part / name, np.load(folder / name, mmap_mode="r")[rows])
    (parts / "complete").touch()
    return parts


# -- fcl -------------------------------------------------------------------------------------------


def curve(args: argparse.Namespace) -> None:
    """Train on I-IV and validate every anchor on V; print the run of median time."""
    jobs.warm()
    options = ["--features", f"kmers:d={args.d}", "--C", str(args.C), "--tol", str(args.tol)]
    options += ["--memory", args.memory, "--valid", str(args.parts / VALID)]
    options += ["--max-time", args.max_time]
    runs = [jobs.train(args.parts / TRAIN, options) for _ in range(args.repeat)]
    job = jobs.middle(runs)
    print(
        f"d = {args.d}, C = {args.C:g}, {args.memory}; the median of {len(runs)} runs by time "
        f"({common.spread([job.wall for job in runs])} s); first line after {job.first_line:.2f} s, "
        f"prepared after {job.prepared:.1f} s\n"
    )
    rows = [
        [
            f"{p['time']:.3g}",
            f"{p['objective']:.2f}",
            f"{p['gap']:.1e}",
            f"{p['active']:,}",
            f"{p['validation']['auprc']:.4f}" if p["validation"] else "",
        ]
        for p in job.passes
    ]
    print(common.table(["s", "objective", "gap", "active", "AUPRC on V"], rows))
    print(f"\npeak {job.peak / 2**20:,.0f} MiB; ended by {job.reason} after {job.wall:.0f} s")


# -- peers -----------------------------------------------------------------------------------------


def sampled_kmers(codes: np.ndarray, d: int, ids: Ids) -> Any:
    """Make columns of the k-mers with wildcards of windows (n, L) without unknown letters, CSR float64.

    ids : the columns, sorted. For each position, a table lists the chosen patterns of each word of d
    letters, so that a row takes one look-up for each position, however many patterns a word has.
    """
    from scipy import sparse

    n, length = codes.shape
    positions, each, n_words = length - d + 1, 4 * 5 ** (d - 1), 4**d
    letters = np.arange(n_words)[:, None] // 4 ** np.arange(d - 1, -1, -1) % 4
    patterns = np.empty((n_words, 2 ** (d - 1)), np.int32)
    for mask in range(2 ** (d - 1)):  # which letters after the first are wildcards
        pattern = letters[:, 0]
        for k in range(1, d):
            pattern = 5 * pattern + (4 if mask >> (k - 1) & 1 else letters[:, k])
        patterns[:, mask] = pattern
    lists, lengths = [], np.empty((positions, n_words), np.int64)
    for position in range(positions):
        first, last = np.searchsorted(ids, [position * each, (position + 1) * each])
        column = np.full(each, -1, np.int32)
        column[ids[first:last] - position * each] = np.arange(first, last)
        found = column[patterns]
        words, which = np.nonzero(found >= 0)
        some = found[words, which]
        lists.append(some[np.lexsort((some, words))])
        lengths[position] = np.bincount(words, minlength=n_words)
    every = np.concatenate(lists)
    counts = lengths.ravel()
    starts = np.cumsum(counts) - counts
    indices, indptr = [], np.zeros(n + 1, np.int64)
    for at in range(0, n, SCORED_ROWS):
        block = codes[at : at + SCORED_ROWS]
        words = np.zeros((len(block), positions), np.int64)
        for k in range(d):
            words = 4 * words + block[:, k : k + positions]
        places = (words + n_words * np.arange(positions)).ravel()
        own = counts[places]
        ends = np.cumsum(own)
        indices.append(every[np.repeat(starts[places] - (ends - own), own) + np.arange(ends[-1])])
        indptr[at + 1 : at + len(block) + 1] = indptr[at] + ends[positions - 1 :: positions]
    joined = np.concatenate(indices)
    return sparse.csr_matrix((np.ones(len(joined)), joined, indptr), (n, len(ids)))


def make_matrix(codes: np.ndarray, letters: int, ids: Ids | None) -> Any:
    """Make the k-mer matrix of windows (n, L), CSR float64; ids : sorted, None for all features."""
    return cases.all_kmers(codes, letters) if ids is None else sampled_kmers(codes, letters, ids)


def peer(args: argparse.Namespace) -> None:
    """Run one solver on one set of features, and print its figures as JSON."""
    from scipy import sparse
    from sklearn.metrics import average_precision_score

    letters, sampled = args.letters_of
    ids = None
    if sampled:
        positions = 141 - letters + 1
        n_features = positions * 4 * 5 ** (letters - 1)
        ids = np.sort(np.random.default_rng(0).choice(n_features, sampled, replace=False))
    folder, train = args.parts / f"every-{args.every}-{letters}-{sampled}", args.parts / TRAIN
    if not (folder / "y.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        codes = np.load(train / "seq.npy", mmap_mode="r")[:: args.every]
        begun = time.perf_counter()
        X = make_matrix(np.ascontiguousarray(codes), letters, ids)
        np.save(folder / "seconds.npy", time.perf_counter() - begun)
        sparse.save_npz(folder / "X.npz", X, False)
        del X  # it may fill half of the memory, which the solver needs
        np.save(folder / "y.npy", np.load(train / "y.npy")[:: args.every].astype(np.float64))
    problem = peers.Problem(folder, C_of(args), TOLERANCES[args.run], letters)
    w, b = peers.solve(problem, args.run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    X, valid = problem.matrix(), args.parts / VALID
    figures = {
        "solver": args.run,
        "features": X.shape[1],
        "rows": X.shape[0],
        "nonzeros": X.nnz,
        "matrix": float(np.load(folder / "seconds.npy")),
        "solve": problem.solve,
        "peak": peak / 2**20,  # GiB
        "objective": problem.objective(X, w, b),
        "active": int(np.count_nonzero(w)),
        "auprc": float(
            average_precision_score(
                np.load(valid / "y.npy")[::SCORED_EVERY] > 0,
                scores(valid, letters, ids, w),
            )
        ),
    }
    print(json.dumps(figures))


def C_of(args: argparse.Namespace) -> float:
    """C of the peers, scaled so that their losses have the same total weight as all rows' losses."""
    return float(args.C * args.every)


def scores(valid: Path, letters: int, ids: Ids | None, w: Floats) -> Floats:
    """Margins of the scored rows of V, without the bias."""
    codes = np.load(valid / "seq.npy", mmap_mode="r")[::SCORED_EVERY]
    used = np.flatnonzero(w)
    if not len(used):
        return np.zeros(len(codes))
    parts = []
    for at in range(0, len(codes), SCORED_ROWS):
        part = np.ascontiguousarray(codes[at : at + SCORED_ROWS])
        if ids is None:
            parts.append(make_matrix(part, letters, None) @ w)
        else:
            parts.append(make_matrix(part, letters, ids[used]) @ w[used])
    return np.concatenate(parts)


def compare(args: argparse.Namespace) -> None:
    """Run all peers on all sets of features, each in a separate process; print a table."""
    sets = [(int(k), 0) for k in args.letters.split(",") if k]
    sets += [(args.d, int(k)) for k in args.sampled.split(",") if k]
    rows = []
    for letters, sampled in sets:
        for method in args.methods.split(","):
            command = [sys.executable, __file__, "peers", "--run", method, "--C", str(args.C)]
            command += ["--letters-of", f"{letters},{sampled}", "--every", str(args.every)]
            command += ["--parts", str(args.parts)]
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=args.limit
                )
            except subprocess.TimeoutExpired:
                rows.append([method, _named(letters, sampled), f"> {args.limit:.0f} s in total"])
                continue
            if done.returncode:
                last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
                rows.append([method, _named(letters, sampled), last])
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            print(json.dumps(found), file=sys.stderr, flush=True)
            rows.append(
                [
                    method,
                    _named(letters, sampled),
                    f"{found['features']:,}",
                    f"{found['rows']:,}",
                    f"{found['nonzeros'] / 1e6:,.0f} M",
                    f"{found['matrix']:.3g}",
                    f"{found['solve']:.3g}",
                    f"{found['peak']:.3g}",
                    f"{found['active']:,}",
                    f"{found['auprc']:.4f}",
                ]
            )
    header = ["solver", "which", "features", "rows", "nonzeros", "matrix, s", "solve, s"]
    header += ["peak, GiB", "active", "AUPRC on V"]
    print(
        f"every {args.every}th row of I-IV; C = {C_of(args):g}, which is {args.every} x {args.C:g}\n"
    )
    print(common.table(header, [row + [""] * (len(header) - len(row)) for row in rows]))


def _named(letters: int, sampled: int) -> str:
    return f"sampled of d = {letters}" if sampled else f"all of d = {letters}"


def main() -> None:
    """Split the windows, and run the chosen measurement."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("what", choices=["fcl", "peers"])
    parser.add_argument("--data", type=Path, help="folder of all windows, with chromosome.npy")
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.03)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--memory", default="6GiB")
    parser.add_argument("--max-time", default="20m", help="time limit of fcl")
    parser.add_argument("--every", type=int, default=10, help="peers get every k-th row")
    parser.add_argument("--letters", default="1,2,3", help="letters of complete k-mer families")
    parser.add_argument(
        "--sampled", default="30000,100000", help="sizes of random samples of k-mers of d letters"
    )
    parser.add_argument("--methods", default="liblinear,celer,skglm,vw")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one run of a peer")
    parser.add_argument("--repeat", type=int, default=1, help="runs of fcl (default 1)")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--parts", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--letters-of",
        type=lambda text: tuple(int(k) for k in text.split(",")),
        help=argparse.SUPPRESS,
    )
    args = parser.parse_args()
    if args.run:
        peer(args)
        return
    args.parts = split(common.windows_folder(args.data))
    print(common.machine())
    if args.what == "fcl":
        curve(args)
    else:
        compare(args)


if __name__ == "__main__":
    main()
