"""Paths over C, and LS-GKM with its folds."""

from __future__ import annotations

import subprocess
import tempfile
from typing import Any

import numpy as np

from fcl.types import Floats
from tools.bench import common, peers
from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures


def path(
    rows: Rows, clock: Clock, features: str = "", points: int = 20, C_max: float | None = None,
    C_range: str = "", cv: int = 0, driver: str = "", what: str = "path", tol: float = 1e-3,
) -> Figures:  # fmt: skip
    """A path of C; its last point alone, each point alone, or LIBLINEAR at each point.

    what : "path", "last", "singles" or "liblinear" (which needs ``C_range``: smallest;largest)
    """
    import fcl

    features, data = features or rows.features, rows.open()
    strengths = np.empty(0)
    options: dict[str, Any] = {"patience": None}
    if C_range:
        low, high = map(float, C_range.replace(";", ",").split(","))
        strengths = np.geomspace(low, high, points)
        options |= {"alphas": 1.0 / (len(rows.y) * strengths)}
    else:
        options |= {"points": points, "C_max": C_max}
    if what == "liblinear":
        return path_of_liblinear(rows, clock, strengths, cv, tol)
    seen: list[float] = []

    def note(event: Any) -> None:
        if type(event).__name__ == "Prepared":
            seen.append(event.seconds)

    more: dict[str, Any] = {"driver": driver} if driver else {}
    more |= {"cv": cv} if cv else {}
    if rows.is_few:
        fcl.train_path(data, features, points=3, patience=None)
    if what == "path":
        with clock:
            found = fcl.train_path(data, features, progress=note, **options, **more)
        return {"points": len(found.points), "active": found.points[-1].active,
                "reading": sum(seen), "gap": max(p.certificate.gap for p in found.points)}  # fmt: skip
    found = fcl.train_path(data, features, **options)
    alone = found.points if what == "singles" else found.points[-1:]
    with clock:
        for point in alone:
            fcl.train(data, features, C=point.C)
    return {"points": len(alone), "active": found.points[-1].active}


def path_of_liblinear(rows: Rows, clock: Clock, strengths: Floats, cv: int, tol: float) -> Figures:
    """LIBLINEAR anew at each C, and for each fold; the conversion of the rows does not count."""
    from sklearn.model_selection import StratifiedKFold

    n = len(rows.y)
    parts = [np.arange(n)]
    if cv:
        parts += [some for some, _ in StratifiedKFold(cv).split(rows.x, rows.y)]
    for some in parts:
        for C in strengths * n / len(some):  # the total weight of the losses stays
            y = rows.y[some].astype(np.float64)
            peers.liblinear(rows.x[some], y, float(C), tol, clock)
    return {"points": len(strengths) * len(parts)}


def lsgkm(
    rows: Rows, clock: Clock, features: str = "", C: float = 0.3, penalty: str = "l1",
    gkmtrain: str = "gkmtrain",
) -> Figures:  # fmt: skip
    """5-fold cross-validation of fcl; without features, of LS-GKM, with its kernel and its own folds."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    import fcl

    y, folds, active = rows.y, 5, []
    if not features:
        with tempfile.TemporaryDirectory() as folder, clock:
            out = f"{folder}/m"
            command = [gkmtrain, "-x", str(folds), *map(str, rows.notes["files"]), out]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            found = np.loadtxt(f"{out}.cvpred.txt", usecols=(1, 2))
        y, scores = found[:, 1] > 0, found[:, 0]
    else:
        fold, scores = np.random.default_rng(0).permutation(len(y)) % folds, np.empty(len(y))
        for k in range(folds):
            with clock:
                data = fcl.open_data(rows.x[fold != k], y=y[fold != k])
                model: Any = fcl.train(data, features, C=C, penalty=penalty, tol=1e-2).model
                scores[fold == k] = model.margins(fcl.open_data(rows.x[fold == k], y=None))
            active.append(len(model.ids))
    return {"AUROC": float(roc_auc_score(y, scores)), "active": common.median(active),
            "AUPRC": float(average_precision_score(y, scores))}  # fmt: skip
