"""Results of commands: written to their files or, if that is impossible, elsewhere, but never lost."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from fcl.cli.common import messages
from fcl.errors import FclError, OutputExistsError, reason

if TYPE_CHECKING:
    from fcl.files.result_file import Output, Save


class KeptState:
    """The folder of checkpoints of a job, if it has one, as it was when the job began."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._before = self._files()

    @property
    def is_newer(self) -> bool:
        """Whether the job has saved a checkpoint."""
        return self._files() != self._before

    def _files(self) -> list[tuple[str, int]]:
        if self._folder is None or not os.path.isdir(self._folder):
            return []
        with os.scandir(self._folder) as entries:
            files = [entry for entry in entries if entry.name.endswith(".fcl-ckpt")]
            return sorted(
                (each.name, each.stat(follow_symlinks=False).st_mtime_ns) for each in files
            )


def save_result(
    output: Output,
    save: Save,
    what: str = "the model",
    wait: float = 0.0,
    should_stop: Callable[[], bool] = lambda: False,
    hint: str = "",
) -> bool:
    """Write a result; returns whether it is elsewhere than wanted, which is said with the place.

    ``output.path`` is then where the result is.

    save : writes the result to a path, which it may replace or not.
    what : the result in words.
    wait : seconds for which to retry while the disk is full, unless ``should_stop`` returns True.
    hint : what to do if the result could not be written anywhere, which raises FclError.
    """
    from fcl.files.atomic import retry_while_full
    from fcl.files.result_file import Output

    out = output.path
    try:
        retry_while_full(
            lambda: output.write(save),
            wait,
            lambda text: messages.say(f"{what} cannot be written to {out} yet: {text}"),
            should_stop,
        )
        return False
    except OutputExistsError as error:
        messages.say(f"error: {error}")
        return True
    except Exception as error:  # not even a bug in fcl may lose a result
        why = reason(error) if isinstance(error, OSError) else error
        messages.say(f"error: {what} could not be written: {why}")
    for place in (tempfile.gettempdir(), ".", os.path.expanduser("~")):
        try:
            rescue = tempfile.mkdtemp(prefix="fcl-result-", dir=place)
        except OSError:
            continue
        try:
            # the name may have been too long
            elsewhere = Output(os.path.join(rescue, os.path.basename(out)[-60:]))
            elsewhere.write(save)
        except Exception:
            shutil.rmtree(rescue, ignore_errors=True)
            continue
        output.path = elsewhere.path
        messages.say(f"it was written to {output.path} instead; move it from there")
        return True
    raise FclError(f"{what} could not be written anywhere{hint and '; '}{hint}")
