"""Errors and warnings that users of fcl may see.

``InputError`` and its subclasses say that the input is wrong: the message is written for the user, and
the command line prints it without a traceback and exits with code 2. ``StoreError``,
``CheckpointError`` and ``RepeatedDeaths`` report failures of the environment. Exceptions of any other
kind, except Python's own for memory, files and interrupts, are bugs in fcl.
"""

import errno
import os


class FclError(Exception):
    """Base class of all errors that fcl raises on purpose.

    Examples
    --------
    >>> try:
    ...     fcl.load_model("absent.fcl")
    ... except fcl.FclError as error:
    ...     print(error)
    absent.fcl: no such model file
    """


class InputError(FclError, ValueError):
    """The user's data, option or file is wrong; the message says which one, and what to do.

    Examples
    --------
    >>> fcl.open_data(np.eye(2), y=np.array([1, 0, 1]))
    Traceback (most recent call last):
        ...
    fcl.errors.InputError: X has 2 rows, but y has 3 values; they must agree
    """


class GeneratorError(InputError):
    """A feature class breaks its contract; the message names the class, features and row block.

    Examples
    --------
    >>> class Short(fcl.Generator):
    ...     def fit(self, sample):
    ...         self.n_features = 3
    ...     def columns(self, ids, block):
    ...         return block[:2, ids]
    >>> data = fcl.open_data(np.eye(4), y=np.array([0, 0, 1, 1]))
    >>> fcl.train(data, Short(), C=1.0)
    Traceback (most recent call last):
        ...
    fcl.errors.GeneratorError: features Short: columns(3 features, 0 to 2) ... expected shape (4, 3), ...
    """


class BudgetError(InputError):
    """The memory budget is too small; the message names the smallest one that works, if known.

    ``smallest`` is that budget in bytes, or 0 if it is not known.

    Examples
    --------
    >>> data = fcl.open_data(np.eye(100), y=np.arange(100) > 50)
    >>> try:
    ...     fcl.train(data, "columns", C=1.0, memory="1MiB")
    ... except fcl.BudgetError as error:
    ...     smallest = error.smallest
    >>> fcl.train(data, "columns", C=1.0, memory=smallest).converged
    True
    """

    def __init__(self, message: str, smallest: int = 0) -> None:
        super().__init__(message)
        self.smallest = smallest


class ModelFileError(InputError):
    """A file is damaged, not an fcl model, or written by a newer version of fcl.

    Examples
    --------
    >>> np.save("array.npy", np.eye(2))
    >>> try:
    ...     fcl.load_model("array.npy")
    ... except fcl.ModelFileError as error:
    ...     print(error)
    array.npy: not a model file (File is not a zip file)
    """


class OutputExistsError(InputError):
    """The name of an output is taken, and must not be replaced.

    ``kept`` is the file or folder that has the result instead, or None if nothing was written.
    """

    def __init__(self, path: str | os.PathLike[str], kept: str | None = None) -> None:
        self.kept = kept
        name = os.fspath(path)
        if kept is None:
            super().__init__(
                f"{name}: exists already; choose another name or overwrite it on purpose (--overwrite, "
                "in Python overwrite=True)"
            )
        else:
            super().__init__(
                f"{name}: another process has written this file in the meantime; it is kept, and "
                f"this result is in {kept}"
            )


class StoreError(FclError):
    """An object store failed or cannot be reached; the message names the object.

    Examples
    --------
    >>> fcl.open_data("http://127.0.0.1:1/train.zarr", y=None)
    Traceback (most recent call last):
        ...
    fcl.errors.StoreError: http://127.0.0.1:1/train.zarr/zarr.json: the store failed: ...
    """


class StopTraining(Exception):
    """Raised by a ``progress`` callback to end a run with the best model so far.

    fcl raises it itself only if the run has no model by then, as within the folds of a path.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> from fcl.run.events import PassDone
    >>> def stop(event):
    ...     if isinstance(event, PassDone) and event.gap < 0.5:
    ...         raise fcl.StopTraining
    >>> str(fcl.train(data, "columns", C=1.0, progress=stop).reason)
    'callback'
    """


class CheckpointError(FclError):
    """A checkpoint could not be written; earlier checkpoints are kept."""


class RepeatedDeaths(FclError):
    """A training process kept dying; the state of the run was saved before this is raised."""


class ClusterLost(RepeatedDeaths):
    """A cluster is gone, or its workers kept dying; the state of the run was saved before."""


def reason(error: OSError) -> str:
    """The message of an OSError, with the limit of the process (``ulimit``) if that is the cause."""
    import resource  # imported late: rarely needed

    words = error.strerror or str(error)
    if error.errno == errno.EFBIG:
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit != resource.RLIM_INFINITY:
            words += f": this process may write files of at most {limit:,} bytes; raise ulimit -f"
    if error.errno == errno.EMFILE:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        words += f": this process may open {limit:,} at once; raise ulimit -n"
    return words


class ScaleWarning(UserWarning):
    """Columns differ so much in scale that one penalty for all weights means little.

    The message names the columns, their scales, and what to do.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X * [1.0, 1.0, 1.0, 1.0, 1e6], y=X[:, 0] > X[:, 3])
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", fcl.ScaleWarning)
    ...     fcl.train(data, "columns", C=1.0)
    Traceback (most recent call last):
        ...
    fcl.errors.ScaleWarning: features Columns: ... range from 0.9 (x0) to 9.8e+05 (x4) ...
    >>> fcl.train(data, "columns", C=1.0, standardize=True).converged
    True
    """


class ConvergenceWarning(UserWarning):
    """Training stopped before the tolerance was reached; the message gives the gap.

    Estimators issue a subclass that also derives from scikit-learn's warning of the same name.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", fcl.ConvergenceWarning)
    ...     fcl.train(data, "columns", C=1.0, tol=1e-9, max_passes=1)
    Traceback (most recent call last):
        ...
    fcl.errors.ConvergenceWarning: reached max_passes: relative gap ..., requested 1e-09; ...
    """
