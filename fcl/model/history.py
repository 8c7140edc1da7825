"""The passes of a training, as records and as a data frame."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.files.passes import PASS_TABLE
from fcl.model.frames import import_pandas

if TYPE_CHECKING:
    import pandas as pd


class History(list[Mapping[str, Any]]):
    """The passes of a training in order, one mapping for each.

    Pass 0 prices the null model, or the weights from which the training started. In a path, training at
    a point starts from the weights of the previous point.
    The keys are the fields of :class:`fcl.run.events.PassDone`. Numbers that are unknown or not
    finite are None.

    ==================  =====================================================================
    ``number``          0, 1, 2, ...
    ``seconds``         seconds since the start of the run, or of the point of a path; a resumed run
                        starts at 0 again
    ``objective``       objective of the anchor, the best model so far
    ``bound``           lower bound on the optimum
    ``gap``             (objective - bound) / objective
    ``max_violation``   largest violation of the optimality conditions, as computed in float64; 1 at the
                        optimum. The certificate of the model says whether rounding may change it
    ``priced``          features whose gradients the pass computed
    ``scope``           these features in words
    ``cached``          features whose columns are in the cache
    ``active``          features with a nonzero weight
    ``evicted``         columns dropped from the cache since the pass before
    ``cache_bytes``     bytes of the cache in use, and ``cache_capacity``: of the whole cache
    ``rows_per_second`` speed of the pass
    ``memory_bytes``    peak memory of all processes so far
    ``beta``            share of the proposed step that the line search took
    ``validation``      {metric: score, "n_rows": rows} if the anchor was validated
    ``time_left``       seconds to the end, as estimated after the pass
    ``busy``            processor time over elapsed time of each process (``processes`` driver)
    ``resumed``         True for the first pass of a resumed run; no other pass has this key
    ==================  =====================================================================

    What a file says besides, or in another type, is left out.
    """

    def __init__(self, passes: Iterable[Mapping[str, Any]] = ()) -> None:
        if not isinstance(passes, History):
            passes = [PASS_TABLE(f"history[{at}]", each) for at, each in enumerate(passes)]
        super().__init__(passes)

    def to_dataframe(self) -> pd.DataFrame:
        """One row for each pass, with the keys as columns.

        ``validation`` and ``busy`` become columns such as ``validation.auprc`` and ``busy.writer 0``;
        ``elapsed`` is :meth:`elapsed`.

        Raises InputError: pandas is not installed.
        """
        pd = import_pandas()
        records = [
            {key: value for key, value in record.items() if key != "event"} for record in self
        ]
        return pd.json_normalize(records).assign(elapsed=self.elapsed())

    def column(self, key: str) -> npt.NDArray[np.float64]:
        """The numbers of one key, float64 (passes,); NaN where a pass has no number."""
        return np.array([_number(record.get(key)) for record in self], np.float64)

    def elapsed(self) -> npt.NDArray[np.float64]:
        """Seconds of work up to the end of each pass, float64 (passes,), over all resumed runs.

        Work that a run did after its last recorded pass does not count.
        """
        seconds = self.column("seconds")
        for at in self.restarts()[::-1]:
            seconds[at:] += seconds[at - 1]
        return seconds

    @property
    def starts_empty(self) -> bool:
        """Whether pass 0 had no features; also True if their number is unknown."""
        return not self or not self.column("active")[0] > 0.0

    def since(self, begun: float) -> History:
        """The same passes, with seconds that count from ``begun`` on: 0 for earlier passes.

        begun : seconds since the start of the run.
        """
        return History({**each, "seconds": max(each["seconds"] - begun, 0.0)} for each in self)

    def restarts(self) -> npt.NDArray[np.intp]:
        """Indices of the first passes of resumed runs, increasing: int (runs - 1,)."""
        resumed = np.array([record.get("resumed", False) for record in self[1:]], np.bool_)
        fell = np.diff(self.column("seconds")) < 0.0  # files of version 0.1.0 have no mark
        return np.flatnonzero(resumed | fell) + 1

    def validation(self) -> tuple[str, npt.NDArray[np.float64]]:
        """The name of the validation metric, and its scores, float64 (passes,).

        The name is empty if no pass was validated; scores are NaN for passes that were not.
        """
        scores = [record.get("validation") or {} for record in self]
        names = (name for score in scores for name in score if name != "n_rows")
        metric = next(names, "")
        return metric, np.array([_number(score.get(metric)) for score in scores], np.float64)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
