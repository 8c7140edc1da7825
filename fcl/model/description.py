"""What a linear model says of itself: facts, features by size, covariates, tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.facts import Fact, chosen, rows_html, table_html
from fcl.model.effects import effects_of
from fcl.model.facts import model_facts
from fcl.model.frames import FeatureRow, OutputFeature, features_frame
from fcl.model.linear import LinearModel
from fcl.types import Floats

if TYPE_CHECKING:
    import pandas as pd

#: Features that a notebook shows.
TOP = 10


class DescribedModel(LinearModel):
    """A base of :class:`fcl.Model`: facts, features and tables."""

    def facts(self) -> list[Fact]:
        """What is known about the model: its problem, certificate and origin, as data and in words.

        Returns
        -------
        list of Fact
            Each with a ``name``, a ``text``, and a JSON ``value``.

        Examples
        --------
        >>> {fact.name: fact.text for fact in model.facts()}["gap"]  # doctest: +SKIP
        '0.000343 relative, over all features of the family'
        """
        return model_facts(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self, facts: Iterable[Fact] = ()) -> str:
        """Tables of the certificate, of more facts, and of the strongest features."""
        names = ("features", "loss", "C", "labels", "objective", "bound", "gap", "active")
        lines = [*chosen(self.facts(), *names, "certificate"), *facts]
        head = [*self.row_type._fields[1:-1], "rows"]
        features = [row.cells() for row in self.describe(TOP)]
        covariates = [
            [name if output is None else f"{name}, {output}", f"{value:+.5g}"]
            for name, output, value in self.covariate_rows
        ]
        return (
            table_html("fcl model", lines)
            + rows_html("strongest features", head, features)
            + rows_html("covariates, not penalised", ["covariate", "coefficient"], covariates)
        )

    # -- features

    @property
    def row_type(self) -> type[FeatureRow] | type[OutputFeature]:
        """The rows of :meth:`describe`, which name the output if there is a choice."""
        return FeatureRow if self.output_labels == [None] else OutputFeature

    def describe(
        self, top: int | None = None, output: Any = None
    ) -> list[FeatureRow | OutputFeature]:
        """The active features by decreasing |weight|, ties by id; at most `top` features.

        For several outputs, an :class:`OutputFeature` for each nonzero weight: of all outputs together,
        or of the one whose label (its number from 0, if outputs have no labels) is ``output``.

        Examples
        --------
        >>> data = fcl.open_data(["ACG", "ACT", "TCG", "TCT"], y=np.array([1, 1, 0, 0]))
        >>> for row in fcl.train(data, "kmers:d=1", C=10.0, tol=1e-9).model.describe():
        ...     print(row.id, row.feature, round(row.weight, 2), row.support)
        0 A at 0 3.0 2
        3 T at 0 -2.89 2
        """
        return list(self._described(top, output))

    def iter_features(self, top: int | None = None) -> Iterator[FeatureRow]:
        """Iterate over the features that :meth:`describe` returns for a model of one output."""
        self.require_one_output("iter_features", "use describe")
        for row in self._described(top, None):
            assert isinstance(row, FeatureRow)
            yield row

    def _described(self, top: int | None, output: Any) -> Iterator[FeatureRow | OutputFeature]:
        """Yield the nonzero weights by decreasing size; ties by id, then by output."""
        weights, labels, row_type = self.weights_by_output, self.output_labels, self.row_type
        rows, outputs = np.nonzero(weights)
        if output is not None:
            only = outputs == self.output_number(output)
            rows, outputs = rows[only], outputs[only]
        order = np.argsort(-np.abs(weights[rows, outputs]), kind="stable")[:top]
        for i, k in zip(rows[order].tolist(), outputs[order].tolist(), strict=True):
            known = {"id": int(self.ids[i]), "feature": self.feature_text(i), "output": labels[k]}
            known |= {"weight": float(weights[i, k]), "support": int(self.support[i])}
            yield row_type._make(known[name] for name in row_type._fields)

    def to_dataframe(self, unpenalised: bool = False) -> pd.DataFrame:
        """The active features by decreasing |weight|: id, feature, weight, support.

        If features are patterns of letters, the columns motif, position (relative to the origin of the
        family, missing if the pattern matches anywhere) and strand (``.`` for either) follow; if they
        are variants of PLINK data, chromosome, position, effect_allele, other_allele and
        effect_per_allele, which is the weight of one more copy of the effect allele.

        Parameters
        ----------
        unpenalised : bool
            Whether rows for the covariates and the intercept, without id and support, follow.

        Raises
        ------
        InputError
            pandas is not installed.

        Examples
        --------
        >>> data = fcl.open_data(["ACG", "ACT", "TCG", "TCT"], y=np.array([1, 1, 0, 0]))
        >>> frame = fcl.train(data, "kmers:d=1,origin=1", C=10.0, tol=1e-9).model.to_dataframe()
        >>> frame[["feature", "support", "motif", "position"]]
           feature  support motif  position
        0  A at -1        2     A        -1
        1  T at -1        2     T        -1
        """
        rows = self.describe()
        motifs = [self.family.motif(row.id) for row in rows]
        added = self.unpenalised_rows if unpenalised else []
        return features_frame(rows, motifs, effects_of(rows, self.column_record), added)

    # -- unpenalised coefficients

    @property
    def covariate_rows(self) -> list[tuple[str, Any, float]]:
        """Name, output and coefficient of each column of the covariates; a single output is None."""
        return [row for term in self.covariates for row in term.listed(self.output_labels)]

    @property
    def unpenalised_rows(self) -> list[tuple[str, Any, float]]:
        """Name, output and coefficient of each column of the covariates, and of the intercepts."""
        intercepts = zip(self.output_labels, self.intercepts.tolist(), strict=True)
        return [*self.covariate_rows, *(("(intercept)", name, value) for name, value in intercepts)]


def feature_sizes(weights: Floats, group: bool) -> Floats:
    """The sizes of features, float64 (k,): the norm of a row of weights (k, K), or its largest |weight|.

    group : whether the penalty is the sum of the norms.
    """
    if group:
        return np.linalg.norm(weights, axis=1)
    return np.abs(weights).max(axis=1, initial=0.0)
