"""Other programs, imported when they are used: solvers, classifiers and online learners.

A solver is a function ``(X, y, C, tol, clock) -> w, b`` that minimises |w|_1 + C sum of logistic losses
with a free intercept; of several classes, w is (columns, K). Only the work inside ``with clock:``
counts, not the conversion of the rows. All are in the extra ``peers``, except adelie, which needs a NumPy
below 2: the variable FCL_BENCH_ADELIE names a Python that has it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tools.bench.runner import Clock

Floats = npt.NDArray[np.float64]
Solution = tuple[Any, Any]
#: Vowpal Wabbit: values of --l1 that are tried, relative to the penalty of the mean loss.
VW_SHARES = (1.0, 1e-1, 1e-2, 1e-3)


# -- solvers of two classes ----------------------------------------------------------------------------


def liblinear(X: Any, y: Floats, C: float, tol: float, clock: Clock) -> Solution:
    """LIBLINEAR -s 6 -B 1 -R, logistic loss; the bias is not penalised."""
    from liblinear.liblinearutil import parameter, problem, train
    from scipy import sparse

    made = problem(y, sparse.csr_matrix(X, dtype=np.float64))
    with clock:
        model = train(made, parameter(f"-s 6 -c {C} -e {tol} -B 1 -R -q"))
    w, b = model.get_decfun()
    return np.array(w), float(b)


def celer(X: Any, y: Floats, C: float, tol: float, clock: Clock) -> Solution:
    """celer's working sets; a column of large constants replaces the intercept."""
    from celer import LogisticRegression
    from scipy import sparse

    # With a constant of 1e3 the penalty is only a thousandth of |b|.
    constant = sparse.csc_matrix(np.full((len(y), 1), 1e3))
    X = sparse.hstack([X, constant], format="csc")
    model = LogisticRegression(C=C, tol=tol, max_iter=1000, fit_intercept=False)
    with clock:
        model.fit(X, y)
    return model.coef_[0, :-1], 1e3 * float(model.coef_[0, -1])


def skglm(X: Any, y: Floats, C: float, tol: float, clock: Clock) -> Solution:
    """skglm's proximal Newton with working sets."""
    from skglm import SparseLogisticRegression

    X = X.tocsc()
    options = {"alpha": 1.0 / (len(y) * C), "fit_intercept": True, "max_iter": 1000}
    with clock:
        model = SparseLogisticRegression(tol=tol, **options).fit(X, y)
    return model.coef_.ravel(), float(np.ravel(model.intercept_)[0])


def vowpal_wabbit(X: Any, y: Floats, C: float, tol: float, clock: Clock) -> Solution:
    """Vowpal Wabbit: online truncated gradient in several passes over the rows; ``tol`` is 1 / passes.

    With adaptive rates its ``--l1`` has another unit, so several values are tried; the one with the best
    objective counts, with its time alone.
    """
    from vowpalwabbit import Workspace

    found: list[tuple[float, Clock, Solution]] = []
    with tempfile.TemporaryDirectory() as folder:
        rows, model = Path(folder) / "rows.vw", Path(folder) / "model.txt"
        write_vw(X, y, rows)
        for share in VW_SHARES:
            options = vw_options(X.shape[1], share / (len(y) * C), rows, model)
            own = Clock()
            with own:
                passes = str(round(1.0 / tol))
                Workspace(arg_list=[*options, "--passes", passes, "-k"]).finish()
            w, b = read_vw(model.read_text(), X.shape[1])
            losses = np.logaddexp(0.0, -y * (X @ w + b)).sum()
            found.append((float(np.abs(w).sum() + C * losses), own, (w, b)))
    _, best, solution = min(found, key=lambda one: one[0])
    clock.seconds, clock.processor = best.seconds, best.processor
    return solution


def vw_options(columns: int, l1: float, rows: Path, model: Path) -> list[str]:
    """Options of Vowpal Wabbit for a logistic model with a penalty."""
    options = ["--loss_function", "logistic", "--l1", repr(l1)]
    options += ["-b", str(max(18, int(columns).bit_length())), "-d", str(rows), "--cache"]
    return [*options, "--holdout_off", "--quiet", "--readable_model", str(model)]


def write_vw(X: Any, y: Any, path: Path) -> None:
    """Write CSR or dense rows as text, with the column numbers as feature names."""
    from scipy import sparse

    X = sparse.csr_matrix(X)
    with path.open("w") as file:
        for i, label in enumerate(y):
            of_row = slice(X.indptr[i], X.indptr[i + 1])
            cells = zip(X.indices[of_row].tolist(), X.data[of_row].tolist(), strict=True)
            words = (f"{j}" if x == 1.0 else f"{j}:{x:.9g}" for j, x in cells)
            file.write(f"{label:g} | {' '.join(words)}\n")


def read_vw(text: str, columns: int) -> tuple[Floats, float]:
    """Read the weights of a readable model, and apply the truncation that is still due."""
    state = re.search(r"^l1_state (\S+)", text, re.MULTILINE)
    gravity = float(state.group(1)) if state else 0.0
    w, b = np.zeros(columns), 0.0
    for index, value in re.findall(r"^(\d+):([^:\s]+)", text, re.MULTILINE):
        truncated = np.sign(float(value)) * max(abs(float(value)) - gravity, 0.0)
        if int(index) < columns:
            w[int(index)] = truncated
        else:
            b = truncated
    return w, b


# -- solvers of two or several classes -----------------------------------------------------------------


def saga(X: Any, y: Any, C: float, tol: float, clock: Clock) -> Solution:
    """scikit-learn's SAGA."""
    from sklearn.linear_model import LogisticRegression

    model: Any = LogisticRegression(
        l1_ratio=1.0, C=C, solver="saga", tol=tol, max_iter=100_000, random_state=0
    )
    with clock:
        model.fit(X, y)
    if len(model.classes_) == 2:
        return model.coef_[0], float(model.intercept_[0])
    return model.coef_.T, model.intercept_


def one_against_rest(X: Any, y: Any, C: float, tol: float, clock: Clock) -> Solution:
    """LIBLINEAR, one class against the others: another objective than softmax's."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    one = LogisticRegression(l1_ratio=1.0, C=C, solver="liblinear", tol=tol, max_iter=10_000)
    model = OneVsRestClassifier(one)
    with clock:
        model.fit(X, y)
    w = np.stack([part.coef_[0] for part in model.estimators_], axis=1)
    return w, np.array([part.intercept_[0] for part in model.estimators_])


def adelie(X: Any, y: Any, C: float, tol: float, clock: Clock) -> Solution:
    """adelie's path from the null model down to C, with the group norm, which is its only one.

    Its loss is the mean over rows, divided by the number of classes. ``adelie_path.py`` runs it, by the
    Python of FCL_BENCH_ADELIE.
    """
    from scipy.sparse import issparse, save_npz

    n, K = X.shape[0], int(y.max()) + 1
    share = np.bincount(y, minlength=K) / n
    top = np.linalg.norm(np.asarray(X.T @ (np.eye(K)[y] - share)), axis=1).max() / (n * K)
    last = 1.0 / (C * n * K)
    path = np.geomspace(top, last, 20) if last < top else np.array([last])
    python = os.environ.get("FCL_BENCH_ADELIE", sys.executable)
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as name:
        folder = Path(name)
        (save_npz if issparse(X) else np.save)(folder / "x", X)
        np.save(folder / "y.npy", y)
        script = Path(__file__).with_name("adelie_path.py")
        command = [python, str(script), name, json.dumps({"tol": tol, "lmda": path.tolist()})]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise ModuleNotFoundError(f"{python}: {done.stderr[-500:]}", name="adelie")
        found = json.loads(done.stdout.splitlines()[-1])
        with np.load(folder / "solution.npz") as solution:
            w, b = solution["w"], solution["b"]
    clock.seconds, clock.processor = found["seconds"], found["processor"]
    return w, b


SOLVERS: dict[str, Callable[..., Solution]] = {
    "liblinear": liblinear,
    "celer": celer,
    "skglm": skglm,
    "saga": saga,
    "vw": vowpal_wabbit,
    "one-against-rest": one_against_rest,
    "adelie": adelie,
}


# -- classifiers, whose test error is compared ---------------------------------------------------------

#: What is done between two points of a classifier that iterates.
STEPS = {
    "lbfgs": (10, 30, 100),
    "saga": (1, 3, 10),
    "sgd": (1, 3, 10, 20),
    "liblinear": (5, 20),
    "vw": (1, 3, 10),
}
#: The six solvers of liblinear in figure 2a of "Least squares revisited", by their number there, as
#: options of LinearSVC; None: logistic regression.
LIBLINEAR: dict[str, dict[str, Any] | None] = {
    "liblinear-0": None,
    "liblinear-1": {"loss": "squared_hinge", "dual": True},
    "liblinear-2": {"loss": "squared_hinge", "dual": False},
    "liblinear-3": {"loss": "hinge", "dual": True},
    "liblinear-4": {"multi_class": "crammer_singer"},
    "liblinear-5": {"penalty": "l1", "loss": "squared_hinge", "dual": False},
}
Fits = Iterator[tuple[str, Callable[[Any], Any] | None]]


def ridge(x: Any, y: Any) -> Fits:
    """Squared loss and penalty, solved exactly."""
    from sklearn.linear_model import RidgeClassifier

    yield "exact solution", RidgeClassifier(alpha=1.0).fit(x, y).predict


def logistic(x: Any, y: Any, solver: str = "lbfgs") -> Fits:
    """scikit-learn's logistic regression; saga continues, lbfgs starts over."""
    from sklearn.linear_model import LogisticRegression

    done = 0
    model = LogisticRegression(solver=solver, C=1.0, tol=1e-6, warm_start=solver == "saga")
    for steps in STEPS[solver]:
        model.set_params(max_iter=steps - (done if solver == "saga" else 0)).fit(x, y)
        done = steps
        yield f"{steps} iterations", model.predict


def sgd_classifier(x: Any, y: Any) -> Fits:
    """scikit-learn's stochastic gradient descent."""
    from sklearn.linear_model import SGDClassifier

    model, done = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0), 0
    order = np.random.default_rng(0)
    for steps in STEPS["sgd"]:
        for _ in range(steps - done):
            some = order.permutation(len(y))
            model.partial_fit(x[some], y[some], classes=np.unique(y))
        done = steps
        yield f"{steps} epochs", model.predict


def linear_svc(x: Any, y: Any, name: str) -> Fits:
    """A solver of liblinear, one class against the rest."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    options = LIBLINEAR[name]
    for steps in STEPS["liblinear"]:
        if options is None:
            one = LogisticRegression(solver="liblinear", C=1.0, max_iter=steps)
            model = OneVsRestClassifier(one)
        else:
            model = LinearSVC(C=1.0, max_iter=steps, random_state=0, **options)
        yield f"{steps} iterations", model.fit(x, y).predict


def vw_classifier(x: Any, y: Any) -> Fits:
    """Vowpal Wabbit, one class against all others with the logistic loss."""
    from vowpalwabbit import Workspace

    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as name:
        folder = Path(name)
        write_vw(x, y + 1, folder / "rows.vw")
        yield "rows written", None  # as in the paper, making the file does not count

        def predict(tests: Any) -> Any:
            write_vw(tests, np.zeros(tests.shape[0]), folder / "test.vw")
            options = ["-d", f"{name}/test.vw", "-i", f"{name}/model", "-t", "--quiet"]
            Workspace(arg_list=[*options, "-p", f"{name}/predictions"]).finish()
            return np.loadtxt(folder / "predictions", ndmin=2)[:, 0].astype(int) - 1

        for passes in STEPS["vw"]:
            options = ["-d", f"{name}/rows.vw", "-f", f"{name}/model", "--quiet", "--holdout_off"]
            options += ["--oaa", str(int(y.max()) + 1), "--loss_function", "logistic"]
            Workspace(arg_list=[*options, "--cache", "-k", "--passes", str(passes)]).finish()
            yield f"{passes} passes", predict


def classifier(name: str) -> Callable[[Any, Any], Fits]:
    """A function that yields, after some work in words, a function that predicts.

    None in its place: work that does not count.
    """
    if name in LIBLINEAR:
        return lambda x, y: linear_svc(x, y, name)
    if name in ("lbfgs", "saga"):
        return lambda x, y: logistic(x, y, name)
    return {"ridge": ridge, "sgd": sgd_classifier, "vw": vw_classifier}[name]
