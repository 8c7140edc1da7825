"""A path of adelie's multinomial group lasso, by an interpreter that has adelie and no fcl.

    PYTHON tools/bench/adelie_path.py FOLDER OPTIONS

FOLDER holds x, and perhaps test_x, as .npy or as .npz of a CSR matrix, y.npy and perhaps test_y.npy;
w and b of the last point go to solution.npz. OPTIONS is JSON: tol, and lmda, or size and ratio of the
path. The output is JSON: seconds, processor, and [lambda, test error, processor seconds, seconds] of each
point.
"""

import json
import sys
import time
from pathlib import Path

import adelie as ad
import numpy as np
from scipy.sparse import load_npz


def main() -> None:
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    x, y = read(folder / "x"), np.load(folder / "y.npy")
    K = int(y.max()) + 1
    if isinstance(x, np.ndarray):
        matrix = np.asfortranarray(x, np.float64)
    else:
        matrix = ad.matrix.sparse(x.tocsc().astype(np.float64), method="naive")
    given: dict = {"early_exit": False, "progress_bar": False}
    if "lmda" in options:
        given |= {"lmda_path": np.array(options["lmda"]), "penalty": np.ones(x.shape[1])}
        given |= {"tol": options["tol"], "irls_tol": options["tol"]}
    else:
        given |= {"lmda_path_size": options["size"], "min_ratio": options["ratio"]}
    clock, processor = time.perf_counter(), time.process_time()
    glm = ad.glm.multinomial(y=np.asfortranarray(np.eye(K)[y]))
    path = ad.grpnet(matrix, glm, **given)
    spent = np.array([time.process_time() - processor, time.perf_counter() - clock])
    # the parts that adelie times for each lambda, scaled to the whole
    parts = ("screen", "fit_screen", "fit_active", "kkt", "invariance")
    steps = np.sum([getattr(path, f"benchmark_{part}") for part in parts], axis=0)
    share = np.cumsum(steps)[-len(path.lmdas) :] / steps.sum()
    points = []
    if (folder / "test_y.npy").exists():
        test_x, test_y = read(folder / "test_x"), np.load(folder / "test_y.npy")
        for k, lmda in enumerate(path.lmdas):
            weights = path.betas[k].toarray().reshape(test_x.shape[1], -1)
            wrong = (test_x @ weights + path.intercepts[k]).argmax(axis=1) != test_y
            points.append([float(lmda), float(wrong.mean()), *(share[k] * spent)])
    w = np.asarray(path.betas[-1].todense()).reshape(-1, K)
    np.savez(folder / "solution.npz", w=w, b=np.asarray(path.intercepts[-1]))
    print(json.dumps({"processor": spent[0], "seconds": spent[1], "points": points}))


def read(path: Path):  # type: ignore[no-untyped-def]
    """A dense or CSR matrix."""
    sparse = path.with_suffix(".npz")
    return load_npz(sparse) if sparse.exists() else np.load(path.with_suffix(".npy"))


if __name__ == "__main__":
    main()
