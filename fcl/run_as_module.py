"""Drops the working folder from the path of imports if Python runs ``python -m fcl``.

Python puts it first, so that a file such as ``csv.py`` beside a stranger's data would be imported in
place of the library of that name. This module imports only what Python has loaded before.
"""

import os
import sys

#: Options of Python that take no value and may stand before ``m`` in one word, as in ``-Bm``.
_FLAGS = "bBdEhiIOPqRsSuvVx?"


def runs_module(arguments: list[str], package: str) -> bool:
    """Whether a command line of Python runs a module of a package by ``-m``."""
    for at, word in enumerate(arguments):
        name = word[1:].lstrip(_FLAGS)
        if word.startswith("-") and name.startswith("m"):
            module = name[1:] or "".join(arguments[at + 1 : at + 2])
            return module.partition(".")[0] == package
    return False


def without_working_folder(path: list[str], home: str) -> list[str]:
    """The path of imports without its first folder; the folder of fcl itself becomes the last one."""
    first, rest = path[0], path[1:]
    return [*rest, first] if os.path.realpath(first) == os.path.realpath(home) else rest


# Python sets the first argument to "-m" while it looks for the module
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path and runs_module(sys.orig_argv, "fcl"):
    sys.path[:] = without_working_folder(
        sys.path, os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    )
