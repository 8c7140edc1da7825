"""Data frames; pandas is imported only when a frame is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fcl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from fcl.model.model import Model

__all__ = ["features_frame", "import_pandas"]


def import_pandas() -> Any:
    """The module pandas; raises InputError if it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise InputError("a data frame needs pandas; install it: pip install pandas") from error
    return pandas


def features_frame(model: Model) -> pd.DataFrame:
    """The active features of a model; see :meth:`Model.to_dataframe`."""
    pd = import_pandas()
    rows = model.describe()
    frame = pd.DataFrame(rows, columns=["id", "feature", "weight", "support"])
    motifs = [model.family.motif(row.id) for row in rows]
    if any(motifs):
        frame["motif"] = [motif and motif.pattern for motif in motifs]
        positions = [motif and motif.position for motif in motifs]
        frame["position"] = pd.array(positions, dtype="Int64")
        frame["strand"] = [motif and motif.strand for motif in motifs]
    return frame
