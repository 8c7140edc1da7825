"""The file of a result, which never replaces what another process has written meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable

from fcl.errors import OutputExistsError
from fcl.files.atomic import atomic_file
from fcl.store import RemotePath, locate, names_beside

#: Writes a result to a path; the second argument says whether it may replace what is there.
Save = Callable[[str, bool], object]


class Output:
    """The file of a result, which one job writes once or several times.

    The job replaces what it wrote itself, but not what another process has written since the job began:
    then the result gets an unused name beside it, which is ``path`` from then on.

    overwrite : whether the first write may replace what is there, whoever wrote it.
    own : whether what is there now is the job's, which may replace it as long as it does not change.
    """

    def __init__(
        self, path: str | os.PathLike[str], overwrite: bool = False, own: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self._overwrite = overwrite
        self._written = _stamp(self.path) if own else None

    def write(self, save: Save) -> None:
        """Write the result.

        Raises OutputExistsError if another process has taken the name; its ``kept``, and ``path`` from
        now on, is where the result is instead.
        """
        wanted = self.path
        if self._written is None:
            replace = self._overwrite
        else:
            replace = self._written == _stamp(wanted)
        try:
            save(wanted, replace)
        except OutputExistsError as error:
            self.path = error.kept or _save_beside(save, wanted)
            self._written = _stamp(self.path)
            raise OutputExistsError(wanted, self.path) from None
        self._written = _stamp(wanted)


def _stamp(path: str) -> object:
    """What shows whether a file or an object has changed; None if nothing is there."""
    place = locate(path)
    try:
        if isinstance(place, RemotePath):
            return place.info()
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _save_beside(save: Save, path: str) -> str:
    """Write a result to an unused name beside a taken one; returns the name."""
    for name in names_beside(locate(path)):
        try:
            save(os.fspath(name), False)
        except OutputExistsError as error:
            if error.kept is not None:
                return error.kept
            continue
        return os.fspath(name)
    raise AssertionError("names without end")


def saved_bytes(content: bytes) -> Save:
    """A function that writes these bytes, for :meth:`Output.write`."""

    def save(path: str, overwrite: bool) -> None:
        with atomic_file(path, overwrite) as file:
            file.write(content)

    return save
