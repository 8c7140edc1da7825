"""A path of adelie's multinomial group lasso, by an interpreter that has adelie and no fcl.

    PYTHON tools/bench/adelie_path.py FOLDER OPTIONS

FOLDER holds x, as .npy or as .npz of a CSR matrix, and y.npy; w and b of the last point go to
solution.npz. OPTIONS is JSON: lmda, the path, and tol. The output is JSON: seconds and processor.
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
    y = np.load(folder / "y.npy")
    K = int(y.max()) + 1
    if (folder / "x.npz").exists():
        x = load_npz(folder / "x.npz").tocsc().astype(np.float64)
        matrix = ad.matrix.sparse(x, method="naive")
    else:
        x = matrix = np.asfortranarray(np.load(folder / "x.npy"), np.float64)
    glm = ad.glm.multinomial(y=np.asfortranarray(np.eye(K)[y]))
    clock, processor = time.perf_counter(), time.process_time()
    path = ad.grpnet(
        matrix, glm, penalty=np.ones(x.shape[1]), lmda_path=np.array(options["lmda"]),
        tol=options["tol"], irls_tol=options["tol"], early_exit=False, progress_bar=False,
    )  # fmt: skip
    found = {"processor": time.process_time() - processor, "seconds": time.perf_counter() - clock}
    w = np.asarray(path.betas[-1].todense()).reshape(-1, K)
    np.savez(folder / "solution.npz", w=w, b=np.asarray(path.intercepts[-1]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
