"""Errors and warnings that users of fcl may meet.

``InputError`` and its kinds say that the input is wrong: the message is written for the user, and
the command line shows it alone and exits with code 2. Any other exception is a bug of fcl.
"""

import errno


class FclError(Exception):
    """Base of all errors raised on purpose by fcl."""


class InputError(FclError, ValueError):
    """The user's data, option or file is wrong; the message says which, and what to do."""


class GeneratorError(InputError):
    """A class of features breaks its contract; the message names class, features and row block."""


class BudgetError(InputError):
    """The memory budget is too small; the message names the smallest that works.

    ``smallest`` is that budget in bytes, or 0 if it is not known.
    """

    def __init__(self, message: str, smallest: int = 0) -> None:
        super().__init__(message)
        self.smallest = smallest


class ModelFileError(InputError):
    """A model file is damaged, not one of ours, or written by a newer version."""


class CheckpointError(FclError):
    """A checkpoint could not be written; the earlier ones are still there."""


class RepeatedDeaths(FclError):
    """A process of the training died again and again; the state was saved before this is raised."""


def reason(error: OSError) -> str:
    """The words of an OSError; with the limit of ``ulimit -f`` if a file is too large."""
    words = error.strerror or str(error)
    if error.errno == errno.EFBIG:
        import resource  # late: few ever need it

        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        if limit != resource.RLIM_INFINITY:
            words += f": this process may write files of at most {limit:,} bytes; raise ulimit -f"
    return words


class ScaleWarning(UserWarning):
    """Columns differ so much in scale that one penalty for all weights means little.

    The message names the columns, their scales, and what to do.
    """


class ConvergenceWarning(UserWarning):
    """Training stopped before the tolerance was reached; the message gives the gap.

    Estimators warn with a kind of this that is scikit-learn's warning of the same name too.
    """
