"""Test errors of adelie's multinomial group lasso along a path, in an interpreter that has adelie.

    PYTHON tools/bench/stagewise_adelie.py FOLDER SIZE RATIO

adelie needs an older numpy than fcl, so tools/bench/stagewise.py runs this script with --adelie PYTHON.
FOLDER holds x and test_x, as .npy or as .npz of a CSR matrix, y.npy and test_y.npy. The last line of the
output is a list of [lambda, test error, processor seconds, seconds] in JSON.
"""

import json
import sys
import time
from pathlib import Path

import adelie as ad
import numpy as np
from scipy.sparse import load_npz


def main() -> None:
    folder, size, ratio = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    x, test_x = _rows(folder / "x"), _rows(folder / "test_x")
    y, test_y = np.load(folder / "y.npy"), np.load(folder / "test_y.npy")
    clock, processor = time.perf_counter(), time.process_time()
    if isinstance(x, np.ndarray):
        matrix = np.asfortranarray(x, np.float64)
    else:
        matrix = ad.matrix.sparse(x.tocsc().astype(np.float64), method="naive")
    glm = ad.glm.multinomial(np.eye(y.max() + 1)[y])
    path = ad.grpnet(
        matrix, glm, lmda_path_size=size, min_ratio=ratio, early_exit=False, progress_bar=False
    )
    spent = np.array([time.process_time() - processor, time.perf_counter() - clock])
    # the parts that adelie times for each lambda, scaled to the whole
    parts = ("screen", "fit_screen", "fit_active", "kkt", "invariance")
    steps = np.sum([getattr(path, f"benchmark_{part}") for part in parts], axis=0)
    share = np.cumsum(steps)[-len(path.lmdas) :] / steps.sum()
    points = []
    for k, lmda in enumerate(path.lmdas):
        weights = path.betas[k].toarray().reshape(test_x.shape[1], -1)
        wrong = (test_x @ weights + path.intercepts[k]).argmax(axis=1) != test_y
        points.append([float(lmda), float(wrong.mean()), *(share[k] * spent)])
    print(json.dumps(points))


def _rows(path: Path):  # type: ignore[no-untyped-def]
    return (
        load_npz(path.with_suffix(".npz"))
        if path.with_suffix(".npz").exists()
        else np.load(path.with_suffix(".npy"))
    )


if __name__ == "__main__":
    main()
