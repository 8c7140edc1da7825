"""Features of a model as rows and as a data frame; pandas is imported only for the frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fcl.checks import shortened
from fcl.extras import import_extra
from fcl.model.effects import Effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from fcl.features.motif import Motif


class FeatureRow(NamedTuple):
    """One active feature: id, description, weight, and number of training rows where it is not 0."""

    id: int
    feature: str
    weight: float
    support: int

    def cells(self) -> list[str]:
        """The texts of the feature in a table."""
        return [shortened(self.feature), f"{self.weight:+.5g}", f"{self.support:,}"]


class OutputFeature(NamedTuple):
    """A nonzero weight of a feature in one output.

    Attributes
    ----------
    id : int
    feature : str
        Description of the feature.
    output : object
        The label of the output, or its number from 0 if outputs have no labels.
    weight : float
    support : int
        Number of training rows in which the feature is not 0.
    """

    id: int
    feature: str
    output: Any
    weight: float
    support: int

    def cells(self) -> list[str]:
        """The texts of the weight in a table."""
        output = shortened(str(self.output))
        return [shortened(self.feature), output, f"{self.weight:+.5g}", f"{self.support:,}"]


def import_pandas() -> Any:
    """The module pandas; raises InputError if it is not installed."""
    return import_extra("a data frame needs", "pandas", "pandas")


def features_frame(
    rows: Sequence[FeatureRow | OutputFeature],
    motifs: Sequence[Motif | None],
    effects: Sequence[Effect],
    unpenalised: Sequence[tuple[str, Any, float]],
) -> pd.DataFrame:
    """The features of a model and what they are; see :meth:`fcl.Model.to_dataframe`.

    effects : of each row; empty if no feature is a variant.
    unpenalised : name, output and value of further rows.
    """
    pd = import_pandas()
    fields = rows[0]._fields if rows else FeatureRow._fields
    frame = pd.DataFrame(rows, columns=fields)
    if any(motifs):
        frame["motif"] = [motif and motif.pattern for motif in motifs]
        positions = [motif and motif.position for motif in motifs]
        frame["position"] = pd.array(positions, dtype="Int64")
        frame["strand"] = [motif and motif.strand for motif in motifs]
    if effects:
        frame = frame.join(pd.DataFrame(effects, columns=Effect._fields))
        frame["position"] = frame["position"].astype("Int64")
    if unpenalised:
        added = pd.DataFrame(unpenalised, columns=["feature", "output", "weight"])
        frame = pd.concat(
            [frame, added[[name for name in added if name in frame]]], ignore_index=True
        )
        frame = frame.astype({"id": "Int64", "support": "Int64"})
    return frame
