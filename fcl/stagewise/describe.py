"""What a stagewise model is, in words: for the summary of a model file, and for reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from fcl.checks import listed, shown
from fcl.facts import Fact, short_fact
from fcl.features.plain import Columns
from fcl.files.stagewise import file_version
from fcl.run.reasons import StopReason
from fcl.units import counted, format_gap

#: The model of :mod:`fcl.stagewise.model`, which imports this module.
StagewiseModel: TypeAlias = Any

#: Labels that a line lists.
_MOST_LABELS = 10


def stagewise_facts(model: StagewiseModel) -> list[Fact]:
    """All facts of a model besides its blocks and weights."""
    version = file_version(model.settings.update, model.encoding)
    facts = [
        Fact(
            "file",
            f"{model.format} {version}, written by fcl {model.fcl_version} at {model.created}",
        ),
        *_problem(model),
        *_validation(model),
        *_certificate(model),
        Fact("data", f"fingerprint {model.fingerprint}", model.fingerprint),
    ]
    return [short_fact(*fact) for fact in facts]


def _problem(model: StagewiseModel) -> list[Fact]:
    """Outputs, loss, features and blocks."""
    settings, n_features = model.settings, model.family.n_features
    rows = f"{counted(model.n_rows, 'training row')}" + ", with an offset" * model.has_offset
    found = [
        Fact("outputs", _outputs(model), model.n_outputs),
        Fact("loss", f"{settings.loss}, update {settings.update}, ridge alpha {settings.alpha:g}"),
        Fact("rows", rows, model.n_rows),
        Fact("features", f"{counted(n_features, 'feature')} of {_family(model)}", n_features),
        Fact(
            "blocks",
            f"{model.all_blocks:,} of {min(settings.block, n_features):,} features (ids 0 to "
            f"{n_features - 1:,}), {counted(settings.n_visits, 'visit')} each; predictions use "
            f"{model.n_blocks:,}",
            model.all_blocks,
        ),
    ]
    if model.noun == "class":
        found.append(Fact("probabilities", model.link.meaning))
    if settings.calibrates:
        space = "simplex" if model.noun == "class" else "cube"
        rounds = f"{counted(model.n_rounds, 'round')} of at most {settings.n_rounds:,}"
        text = f"{settings.calibration}, projected onto the {space}; predictions use {rounds}"
        found.append(Fact("calibration", text))
    if settings.class_weight is not None:
        found.append(Fact("class weights", shown(settings.class_weight)))
    return found


def _family(model: StagewiseModel) -> str:
    """The family with its options and the numbers that it learnt, such as a bandwidth."""
    generator = model.family.generator
    known = {**generator.options(), **generator.state()}
    plain = {name: value for name, value in known.items() if np.ndim(value) == 0}
    details = [f"{name}={value}" for name, value in plain.items() if value is not None]
    return f"{model.family.name} ({', '.join(details)})" if details else model.family.name


def _outputs(model: StagewiseModel) -> str:
    names = listed(model.labels or (), _MOST_LABELS, str)
    noun = counted(model.n_outputs, model.noun, "classes" if model.noun == "class" else "")
    return f"{noun}: {names}" if names else noun


def place(number: int, n_blocks: int, visits_of_round: int = 0) -> str:
    """Where a training is after so many blocks, such as "visit 2, block 1 of 4".

    visits_of_round : visits of each block in a round of cls; 0 for other updates.
    """
    visits, block = divmod(number - 1, n_blocks)
    found = f"block {block + 1:,} of {n_blocks:,}"
    if visits_of_round:
        rounds, visits = divmod(visits, visits_of_round)
        within = f"visit {visits + 1:,}, " * (visits_of_round > 1)
        return f"round {rounds + 1:,}, {within}{found}"
    return f"visit {visits + 1:,}, {found}"


def scores_text(row: Mapping[str, Any]) -> str:
    """The scores of a visit, such as ``loss 0.31, validation loss 0.35``."""
    names = {"loss": "loss", "valid_loss": "validation loss", "valid_error": "validation error"}
    values = {words: row[name] for name, words in names.items() if row[name] is not None}
    return ", ".join(f"{words} {value:.5g}" for words, value in values.items())


def place_of(model: StagewiseModel, number: int) -> str:
    """Where the training of a model was after so many blocks."""
    return place(number, model.all_blocks, model.settings.visits_of_round)


def end_in_words(model: StagewiseModel, reason: StopReason) -> str:
    """Why and where a training ended."""
    done, n_blocks = len(model.history), model.all_blocks
    noun = "rounds" if model.settings.calibrates else "visits"
    words = {
        StopReason.DONE: f"all {noun} done",
        StopReason.PATIENCE: f"patience ran out, {counted(done - model.best_number, 'block')} without a "
        "lower validation loss",
        StopReason.MAX_TIME: "time limit reached",
    }.get(reason, reason.sentence)
    left = n_blocks - done
    other = f"; the other {counted(left, 'block')} were never visited" if left > 0 else ""
    return f"{words}, after {place_of(model, done)}{other}"


def unvisited(model: StagewiseModel) -> str | None:
    """A warning if the patience ran out before each block was visited; else None."""
    history, n_blocks = model.history, model.all_blocks
    if len(history) >= n_blocks:
        return None
    last, best = (history[at - 1]["valid_error"] for at in (len(history), model.best_number))
    error = ""
    if last is not None and last < best:
        error = f"; yet the validation error fell, from {best:.4g} there to {last:.4g} at the end"
    return (
        f"the patience of {counted(model.settings.most_waits, 'block')} ran out in the first visit: the "
        f"model uses {model.n_blocks:,} of {counted(n_blocks, 'block')}, and the features of "
        f"{n_blocks - len(history):,} were never visited{error}; raise patience or alpha "
        "(--patience, --alpha)"
    )


def _validation(model: StagewiseModel) -> list[Fact]:
    """After how many visits the weights were taken, and the scores then."""
    history, best = model.history, model.best_number
    if not 0 < best <= len(history):
        return []
    row = history[best - 1]
    words = {
        "loss": "training loss", "error": "training error",
        "valid_loss": "validation loss", "valid_error": "validation error",
    }  # fmt: skip
    values = [f"{text} {row[name]:.5g}" for name, text in words.items() if row[name] is not None]
    where = f"after {place_of(model, best)}"
    if best < len(history):
        where += f"; training went on to {place_of(model, len(history))}"
    return [Fact("weights", f"{where}: {', '.join(values)}", best)]


def _certificate(model: StagewiseModel) -> list[Fact]:
    """Objective, bound and gap, or how to get them."""
    found = model.certificate
    if found is None and model.settings.calibrates:
        return [Fact("gap", "none: the update cls has no joint objective")]
    if found is None:
        how = "; fcl stagewise --certify computes it" if model.settings.alpha else ": alpha is 0"
        return [Fact("gap", f"to the joint optimum unknown{how}")]
    features = counted(found.n_features, "feature")
    return [
        Fact("objective", f"{found.objective:.10g}", found.objective),
        Fact("bound", f"{found.bound:.10g}", found.bound),
        Fact(
            "gap",
            f"{format_gap(found.gap)} relative, to the joint optimum over {features}",
            found.gap,
        ),
    ]


def strongest(model: StagewiseModel, top: int) -> Iterator[list[tuple[str, float]]]:
    """For each output, the features of largest |weight| with their weights.

    Empty unless the features are the columns of the data: descriptions of generated features, such as
    random cosines, say nothing. Also empty for several rounds, between which predictions are calibrated.
    """
    if not isinstance(model.family.generator, Columns) or model.n_rounds > 1 or not top:
        return
    visited = model.weights.features[: model.n_blocks * model.settings.block]
    for weights in visited.T:
        order = np.argsort(-np.abs(weights), kind="stable")[:top]
        chosen = [int(i) for i in order if weights[i]]
        yield [(feature_text(model, i), float(weights[i])) for i in chosen]


def feature_text(model: StagewiseModel, feature: int) -> str:
    """The description of a feature; of a column of the data, its name if it has one."""
    names = model.column_names or {}
    if isinstance(model.family.generator, Columns) and feature in names:
        return names[feature]
    return model.family.describe(feature)
