"""Settings of the package for this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fcl.checks import whole

_config = {"verbose": 1}
_said: set[str] = set()


def set_config(*, verbose: int | None = None) -> None:
    """Change settings of this process.

    Parameters
    ----------
    verbose : int, optional
        0: functions write nothing to standard error unless they are asked to. 1 (default): they say when
        they compile kernels, which takes a while on the first call. The environment variable
        ``FCL_QUIET``, if it is not empty, has the effect of 0.

    Raises
    ------
    InputError
        A value that is not a whole number from 0 on.

    Examples
    --------
    >>> fcl.set_config(verbose=0)
    >>> fcl.get_config()
    {'verbose': 0}
    >>> fcl.set_config(verbose=1)
    """
    if verbose is not None:
        _config["verbose"] = whole("verbose", verbose, 0)


def get_config() -> dict[str, int]:
    """The settings that :func:`set_config` changes.

    Returns
    -------
    dict of str to int
        The value of each setting.

    Examples
    --------
    >>> fcl.get_config()
    {'verbose': 1}
    """
    return dict(_config)


def say(text: str) -> None:
    """Write a line to standard error, unless the user wants silence."""
    if _config["verbose"] and not os.environ.get("FCL_QUIET") and sys.stderr is not None:
        sys.stderr.write(f"fcl: {text}\n")
        sys.stderr.flush()


def say_once(text: str) -> None:
    """Like :func:`say`, but once in this process."""
    if text not in _said:
        _said.add(text)
        say(text)


@contextmanager
def silence() -> Iterator[None]:
    """Say nothing meanwhile."""
    before = get_config()
    set_config(verbose=0)
    try:
        yield
    finally:
        _config.update(before)
