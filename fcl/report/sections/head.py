"""The head: in one paragraph how good the model is, how small, and what is proved about it."""

from __future__ import annotations

from typing import cast

import numpy as np

from fcl.facts import chosen
from fcl.features.base import is_sampled
from fcl.model import Model
from fcl.model.facts import proof, proved_share
from fcl.report.contract import Context, Section, name_text
from fcl.report.sections.path import score_of_choice
from fcl.report.sections.scores import errors_of
from fcl.stagewise.model import StagewiseModel
from fcl.units import counted, format_score

#: Names of the facts below the paragraph.
FACTS = ("outputs", "labels", "features", "blocks", "rows", "weights")
NO_GAIN = "The model is not clearly better than a model without features."


def section(context: Context) -> Section:
    """The head of the page; it has no conditions."""
    model = context.predictor
    facts = [(fact.name, fact.text) for fact in chosen(model.facts(), *FACTS)]
    if context.measured is not None:
        n = counted(context.measured.data.n_rows, "row")
        facts.append(("rows of this report", f"{n} of {name_text(context.measured.data.name)}"))
    sentences = (
        [_size(model), proof(model.certificate)]
        if isinstance(model, Model)
        else _stagewise(context)
    )
    text = " ".join([*_quality(context), *sentences])
    return Section("head", "Summary", text, facts)


def _quality(context: Context) -> list[str]:
    """How good the model is, beside a model without features."""
    model = context.predictor
    if isinstance(model, Model) and not model.n_active:
        first = "The model has no features"
        if not model.covariate_names:
            return [f"{first}: it predicts the same for every row."]
        scores = [text for text in _scores(context) if text != NO_GAIN]
        return [f"{first}: it predicts from the covariates alone.", *scores]
    return _scores(context)


def _scores(context: Context) -> list[str]:
    if context.measured is None:
        return _claimed(context) or ["How good the model is takes rows of data to say (--data)."]
    predictions = context.measured.predictions
    kind = "its training" if context.measured.is_training else "the"
    rows = f"{counted(predictions.n_counted, 'row')} of {kind} data"
    answers = predictions.answers
    if not answers:
        computed = predictions.n_counted and not predictions.overflows
        errors = errors_of(context, predictions)[:1] if computed else []
        found = [f"On {rows}: {name} {text}." for name, text in errors]
        return found or [f"On {rows}, no score can be computed."]
    # of several scores the first one decides: AUROC is high even where few positive rows are found
    first = [NO_GAIN] * answers[0].no_gain
    if context.measured.is_training and (claimed := _claimed(context)):
        first = claimed  # scores of rows that the model did not see come first
    sentence = f"On {rows}: {' and '.join(f'{a.name} {a.text}' for a in answers)}."
    if any(answer.interval for answer in answers):
        sentence += " The intervals assume that rows are independent."
    return [*first, sentence]


def _claimed(context: Context) -> list[str]:
    """What the training says about the quality on rows that it held out; empty if there were none."""
    choice = score_of_choice(context)
    if choice is not None:
        words, no_gain = choice
        return [*[NO_GAIN] * no_gain, words]
    model = context.predictor
    metric, scores = model.history.validation() if isinstance(model, Model) else ("", np.zeros(0))
    known = scores[np.isfinite(scores)]
    if metric and len(known):
        return [f"On the validation rows of its training: {format_score(metric, known[-1])}."]
    return []


def _size(model: Model) -> str:
    size = counted(model.family.n_features, "possible feature")
    if is_sampled(model.family):
        size = "an unlimited number of features"
    return f"The model uses {model.n_active:,} of {size}."


def _stagewise(context: Context) -> list[str]:
    model = cast("StagewiseModel", context.predictor)
    size = f"The model uses {model.n_blocks:,} of {counted(model.all_blocks, 'block')} of features."
    found = model.certificate
    if found is None:
        return [size, "Nothing is proved about it: the gap to the joint optimum was not computed."]
    return [
        size,
        f"It is proved that no weights for all {found.n_features:,} features together lower its "
        f"objective by more than {proved_share(found.gap)}.",
    ]
