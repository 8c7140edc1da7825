"""Errors and warnings that users of fcl may see.

``InputError`` and its subclasses say that the input is wrong: the message is written for the user, and
the command line prints it without a traceback and exits with code 2. ``StoreError``,
``CheckpointError`` and ``RepeatedDeaths`` report failures of the environment. Exceptions of any other
kind, except Python's own for memory, files and interrupts, are bugs in fcl.
"""

import errno
import os


class FclError(Exception):
    """Base class of all errors that fcl raises on purpose."""


class InputError(FclError, ValueError):
    """The user's data, option or file is wrong; the message says which one, and what to do."""


class GeneratorError(InputError):
    """A feature class breaks its contract; the message names the class, features and row block."""


class BudgetError(InputError):
    """The memory budget is too small; the message names the smallest one that works, if known.

    ``smallest`` is that budget in bytes, or 0 if it is not known.
    """

    def __init__(self, message: str, smallest: int = 0) -> None:
        super().__init__(message)
        self.smallest = smallest


class ModelFileError(InputError):
    """A file is damaged, not an fcl model, or written by a newer version of fcl."""


class OutputExistsError(InputError):
    """The name of an output is taken, and must not be replaced.

    ``kept`` is the file or folder that has the result instead, or None if nothing was written.
    """

    def __init__(self, path: str | os.PathLike[str], kept: str | None = None) -> None:
        self.kept = kept
        name = os.fspath(path)
        if kept is None:
            super().__init__(
                f"{name}: exists already; choose another name or overwrite it on purpose (--overwrite)"
            )
        else:
            super().__init__(
                f"{name}: another process has written this file in the meantime; it is kept, and "
                f"this result is in {kept}"
            )


class StoreError(FclError):
    """An object store failed or cannot be reached; the message names the object."""


class StopTraining(Exception):
    """Raised by a ``progress`` callback to end a run with the best model so far.

    fcl raises it itself only if the run has no model by then, as within the folds of a path.
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
    """


class ConvergenceWarning(UserWarning):
    """Training stopped before the tolerance was reached; the message gives the gap.

    Estimators issue a subclass that also derives from scikit-learn's warning of the same name.
    """
