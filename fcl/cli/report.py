"""Summaries of a model, a training and a memory plan, as aligned lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fcl.cli.progress import class_weight_text, limits_text, share_text, validation_text
from fcl.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from fcl.drivers.result import TrainResult
    from fcl.features import Family
    from fcl.files.compact import Encoding
    from fcl.model import Certificate, History, Model
    from fcl.model.frames import FeatureRow, OutputFeature
    from fcl.objective import Penalty

Items = list[tuple[str, str]]


def aligned(items: Iterable[tuple[str, str]]) -> list[str]:
    """Format each item as ``name   text``, with the texts in one column."""
    return [f"{name:<12} {text}" for name, text in items]


def certificate_items(certificate: Certificate, active: int) -> Items:
    """The lines of a certificate: objective, bound, gap and scope, violation, active features."""
    from fcl.model.certificate import Scope

    if certificate.scope is Scope.UNKNOWN:
        return [("certificate", certificate.scope_text), ("active", f"{active:,}")]
    if math.isinf(certificate.objective):
        words = "unknown: the model was rounded, and these are not its training data"
        return [
            ("objective", words),
            ("bound", f"{certificate.bound:.10g}"),
            ("active", f"{active:,} of {counted(certificate.n_priced, 'priced feature')}"),
        ]
    items = [
        ("objective", f"{certificate.objective:.10g}"),
        ("bound", f"{certificate.bound:.10g}"),
        ("gap", f"{certificate.gap:.3g} relative, over {certificate.scope_text}"),
    ]
    # a slope is in units of the L1 norm, of which a refit has next to nothing
    if certificate.scope is not Scope.SUPPORT:
        items.append(("violation", certificate.violation_text))
    return [*items, ("active", f"{active:,} of {counted(certificate.n_priced, 'priced feature')}")]


def hashing_items(family: Family) -> Items:
    """A line that says what a hashed model stands for; nothing for exact features."""
    from fcl.features.hashed import HashedFamily

    if not isinstance(family, HashedFamily):
        return []
    words = (
        f"{family.inner.n_features:,} features share {family.n_features:,} weights, which have no names; "
        "the certificate covers the hashed features, not the optimum over exact ones"
    )
    return [("hashing", words)]


#: Outputs whose features and intercepts are listed.
LISTED_OUTPUTS = 20


def strongest_lines(model: Model, top: int) -> list[str]:
    """A table of the `top` features of largest |weight|; of several outputs, a table for each."""
    from fcl.model.multi_output import output_texts

    if model.n_outputs == 1:
        return _table(model.describe(top))
    lines: list[str] = []
    for label in output_texts(model.labels, model.n_outputs)[:LISTED_OUTPUTS]:
        table = _table(model.describe(top, label))
        lines += [
            f"{_noun(model)} {_whole(label)}: {'' if table else 'no features'}".rstrip(),
            *table,
        ]
    if model.n_outputs > LISTED_OUTPUTS:
        lines.append(f"... and {model.n_outputs - LISTED_OUTPUTS:,} more; --tsv writes all")
    return lines


def _loss_formula(model: Model) -> str:
    return (model.task or model.loss_object).formula


def _noun(model: Model) -> str:
    return "output" if model.task is None else model.task.noun


def _intercepts(model: Model) -> str:
    """The intercepts as text, of a few outputs."""
    from fcl.model.multi_output import output_texts

    if model.n_outputs == 1:
        return f"{model.intercept:.10g}"
    labels = output_texts(model.labels, model.n_outputs)
    pairs = list(zip(labels, model.intercepts, strict=True))[:LISTED_OUTPUTS]
    more = ", ..." * (model.n_outputs > LISTED_OUTPUTS)
    return ", ".join(f"{_whole(label)} {b:.6g}" for label, b in pairs) + more


def _table(rows: Sequence[FeatureRow | OutputFeature]) -> list[str]:
    if not rows:
        return []
    from fcl.checks import shortened

    words = [shortened(row.feature) for row in rows]
    width = max(map(len, words))
    lines = [f"{'weight':>12}  {'feature':<{width}}  {'rows':>12}"]
    lines += [
        f"{row.weight:>+12.5g}  {text:<{width}}  {row.support:>12,}"
        for row, text in zip(rows, words, strict=True)
    ]
    return [line.rstrip() for line in lines]


def _family_text(config: Mapping[str, Any]) -> str:
    """Describe a family from its configuration; of a concatenation, each member and its factor."""
    from fcl.checks import shortened

    if config["family"] == "concat":
        pairs = zip(config["members"], config["factors"], strict=True)
        return " + ".join(f"{_family_text(member)} * {factor:.10g}" for member, factor in pairs)
    if config["family"] == "hashed":
        return f"{_family_text(config['inner'])} hashed to 2^{config['bits']} weights"
    # learnt values may be long
    options = config.get("options", {k: v for k, v in config.items() if k != "family"})
    details = ", ".join(f"{key}={value}" for key, value in options.items() if value is not None)
    return shortened(f"{config['family']} ({details})" if details else config["family"], 400)


def model_lines(model: Model, path: str, top: int) -> list[str]:
    """The summary of ``fcl-inspect``."""
    from fcl.checks import shortened, shown
    from fcl.features.base import is_sampled
    from fcl.files.model import FORMAT, file_version

    family = _family_text(model.family.to_config())
    size = f"{model.family.n_features:,} of them"
    if is_sampled(model.family):
        size = "sampled from an unlimited number"
    labels = "none (regression)"
    if model.n_outputs > 1:
        names = [shown(_whole(label)) for label in model.labels or ()][:LISTED_OUTPUTS]
        labels = f"{model.n_outputs:,} ({_noun(model)} each)"
        labels += f": {', '.join(names)}" * bool(names)
    elif model.labels is not None:
        low, high = (shown(_whole(label)) for label in model.labels)
        labels = f"{low} is -1, {high} is +1"
    version = file_version(model.covariates, model.intercept, model.encoding)
    items = [
        ("model", path),
        ("file", f"{FORMAT} {version}, written by fcl {model.fcl_version} at {model.created}"),
        *encoding_items(model.encoding),
        ("features", f"{family}, {size}"),
        *hashing_items(model.family),
        ("loss", model.loss + (", margins with an offset" if model.has_offset else "")),
        (
            "minimises",
            f"{_penalty(model).formula(model.n_outputs)}{_factors(model)} + C sum_i s_i "
            f"{_loss_formula(model)}",
        ),
        ("C", f"{model.C:.10g} (alpha {model.alpha:.10g})"),
        *_limits_items(model),
        ("labels", labels + class_weight_text(model.options.get("class_weight"))),
        ("rows", f"{model.n_rows:,}, sum of weights {model.sum_weights:.10g}"),
        *certificate_items(model.certificate, model.n_active),
        ("passes", _passes(model.certificate.passes, model.history)),
        ("intercept", _intercepts(model)),
        ("data", f"fingerprint {model.fingerprint}"),
    ]
    lines = aligned((name, shortened(text, 400)) for name, text in items)
    if strongest := strongest_lines(model, top):
        lines += ["", *strongest]
    return [*lines, *covariate_lines(model)]


def encoding_items(encoding: Encoding | None) -> list[tuple[str, str]]:
    """How a compact model was rounded, and the losses that were measured; nothing for full weights."""
    if encoding is None:
        return []
    items = [("encoding", encoding.text)]
    if encoding.loss is not None and encoding.loss_full is not None:
        items.append(
            ("mean loss", f"{encoding.loss:.8g}, before rounding {encoding.loss_full:.8g}")
        )
    return items


def _whole(label: Any) -> Any:
    """A label without the fraction .0, which the type of the stored array adds."""
    return int(label) if isinstance(label, float) and label.is_integer() else label


def covariate_lines(model: Model) -> list[str]:
    """A table of the unpenalised covariates, after an empty line; nothing without covariates."""
    from fcl.checks import shortened, shown

    rows, head = model.covariate_rows, "covariate, not penalised"
    if not rows:
        return []
    if rows[0][1] is None:  # one output
        lines = [f"{value:>+12.5g}  {shortened(name)}" for name, _, value in rows]
        return ["", f"{'coefficient':>12}  {head}", *lines]
    texts = [shortened(shown(_whole(output))) for _, output, _ in rows]
    width = max(map(len, [model.noun, *texts]))
    lines = [
        f"{value:>+12.5g}  {text:<{width}}  {shortened(name)}"
        for (name, _, value), text in zip(rows, texts, strict=True)
    ]
    return ["", f"{'coefficient':>12}  {model.noun:<{width}}  {head}", *lines]


def _passes(number: int, history: History) -> str:
    """The number of passes; ``--max-passes`` does not count the first."""
    first = "the empty model" if history.starts_empty else "the starting weights"
    return f"{counted(number, 'pass', 'passes')}, the first of {first}"


def _factors(model: Model) -> str:
    """Words for standardization, and for penalty factors if any factor differs from 1."""
    from fcl.model.certificate import Scope

    words = []
    if model.certificate.scope is Scope.SUPPORT:
        words.append("each term j times the variance of its feature")
    elif (model.family.penalty_factors(model.ids) != 1.0).any():
        words.append("each term j times its penalty factor")
    if model.options.get("standardize"):
        words.append("each w_j times the standard deviation of its feature")
    return f", {' and '.join(words)}," if words else ""


def _limits_items(model: Model) -> list[tuple[str, str]]:
    text = limits_text(model.options.get("limits"))
    return [("limits", text)] if text else []


def _penalty(model: Model) -> Penalty:
    from fcl.objective import stored_penalty

    return stored_penalty(model.options)


def warning_line(result: TrainResult, tol: float) -> str | None:
    """A warning if the run ended above its tolerance: both gaps, and the option to change."""
    from fcl.drivers.result import StopReason

    if result.converged:
        return None
    knobs = {
        StopReason.MAX_TIME: "raise --max-time, or accept it with a larger --tol",
        StopReason.MAX_PASSES: "raise --max-passes, or accept it with a larger --tol",
        StopReason.INTERRUPTED: "run it longer, or accept it with a larger --tol",
        StopReason.STALLED: "rounding of float64 allows no smaller gap; accept it with a larger --tol",
        StopReason.NO_PROGRESS: "scale the columns, lower --C, or accept it with a larger --tol",
        StopReason.MEMORY: result.message,
    }
    return (
        f"warning: stopped early ({result.reason}) with gap {result.certificate.gap:.3g} where "
        f"{tol:.3g} was requested; {knobs.get(result.reason, 'see --tol')}"
    )


def _smallest(model: Model) -> str:
    smallest = model.options.get("C_min")
    return "" if smallest is None else f", C_min {smallest:.4g}: the model is empty for C <= C_min"


def result_lines(
    result: TrainResult,
    written: str,
    memory: int,
    validation: Mapping[str, Any] | None,
    checkpoint: str | None = None,
    top: int = 10,
) -> list[str]:
    """The summary at the end of training; `checkpoint` is the folder to resume from, if any."""
    model = result.model
    items = [
        ("stopped", result.message),
        *certificate_items(result.certificate, model.n_active),
        ("intercept", _intercepts(model)),
        ("C", f"{model.C:.8g} (alpha {model.alpha:.8g}){_smallest(model)}"),
    ]
    penalty = _penalty(model)
    if not penalty.pure_l1 or model.options.get("standardize"):
        words = f"{penalty.formula(model.n_outputs)}{_factors(model).rstrip(',')}"
        items.append(("penalty", f"{words}: {share_text(penalty.rho)}"))
    items += _limits_items(model)
    if text := class_weight_text(model.options.get("class_weight")):
        items.append(("classes", text.removeprefix(", class ")))
    if text := validation_text(validation):
        rows = (validation or {}).get("n_rows")
        items.append(
            ("validation", text if rows is None else f"{text} over {counted(rows, 'row')}")
        )
    steps = ", ".join(f"{step} {format_seconds(spent)}" for step, spent in result.seconds.items())
    items += [
        ("time", f"{steps} ({_passes(result.passes, model.history)})"),
        ("memory", f"peak {format_bytes(result.peak_memory)} of {format_bytes(memory)}"),
        ("model", written),
    ]
    if checkpoint is not None:
        items.append(("checkpoint", f"{checkpoint} (resume with: fcl-train --resume {checkpoint})"))
    lines = aligned(items)
    if strongest := strongest_lines(model, top):
        lines += ["strongest features:", *strongest]
    return lines
