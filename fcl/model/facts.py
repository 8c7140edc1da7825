"""The facts of a model: its problem, what is proved about it, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from fcl.checks import listed, shortened
from fcl.facts import (
    LISTED_OUTPUTS,
    LONGEST_FACT,
    C_fact,
    Fact,
    active_fact,
    class_weight_text,
    short_fact,
    whole,
)
from fcl.features.base import is_sampled
from fcl.files.model import FORMAT, file_version
from fcl.model.certificate import Certificate, Scope
from fcl.model.history import History
from fcl.objective import Limits, stored_penalty
from fcl.units import counted, format_share

if TYPE_CHECKING:
    from fcl.features import Family

#: The :class:`fcl.Model`, whose module imports this one.
Model: TypeAlias = Any


def model_facts(model: Model) -> list[Fact]:
    """All facts of a model, without its features and covariates."""
    family = _family_text(model.family.to_config())
    size = f"{model.family.n_features:,} of them"
    if is_sampled(model.family):
        size = "sampled from an unlimited number"
    version = file_version(model.covariates, model.intercept, model.encoding)
    minimised = f"{penalty_text(model)}{_factors(model)} + C sum_i s_i {model.task.formula}"
    facts = [
        Fact("file", f"{FORMAT} {version}, written by fcl {model.fcl_version} at {model.created}"),
        *_encoding_facts(model),
        Fact("features", f"{family}, {size}"),
        *hashing_facts(model.family),
        Fact("loss", model.loss + (", margins with an offset" if model.has_offset else "")),
        Fact("minimises", minimised),
        C_fact(model.C, model.alpha),
        *_limits_facts(model),
        labels_fact(model),
        _rows_fact(model),
        *proof_facts(model),
        Fact("passes", passes_text(model.certificate.passes, model.history)),
        intercept_fact(model),
        Fact("data", f"fingerprint {model.fingerprint}", model.fingerprint),
    ]
    return [short_fact(*fact) for fact in facts]


def trained_facts(model: Model) -> list[Fact]:
    """What a training found: certificate, intercept, C, and the parts of the problem that are unusual."""
    smallest = model.options.get("C_min")
    least = "" if smallest is None else f", C_min {smallest:.4g}: the model is empty for C <= C_min"
    C = C_fact(model.C, model.alpha)
    facts = [*proof_facts(model), intercept_fact(model), C._replace(text=C.text + least)]
    penalty = stored_penalty(model.options)
    if not penalty.pure_l1 or model.options.get("standardize"):
        words = f"{penalty_text(model)}{_factors(model).rstrip(',')}"
        facts.append(Fact("penalty", f"{words}: {penalty.share_text}", penalty.rho))
    facts += _limits_facts(model)
    if text := class_weight_text(model.options.get("class_weight")):
        facts.append(Fact("classes", text.removeprefix("class ")))
    return facts


def proof_facts(model: Model) -> list[Fact]:
    """The certificate, and how many of its features have a weight."""
    certificate = model.certificate
    if certificate.scope is Scope.UNKNOWN:
        return [*certificate.facts(), Fact("active", f"{model.n_active:,}", model.n_active)]
    return [*certificate.facts(), active_fact(model.n_active, certificate.n_priced)]


def hashing_facts(family: Family) -> list[Fact]:
    """What a hashed model stands for; nothing for exact features."""
    from fcl.features.hashed import HashedFamily

    if not isinstance(family, HashedFamily):
        return []
    words = (
        f"{family.inner.n_features:,} features share {family.n_features:,} weights, which have no names; "
        "the certificate covers the hashed features, not the optimum over exact ones"
    )
    return [Fact("hashing", words)]


def intercept_fact(model: Model) -> Fact:
    """The intercept, of a few outputs."""
    values = model.intercepts.tolist()
    if model.n_outputs == 1:
        return Fact("intercept", f"{values[0]:.10g}", values[0])
    pairs = zip(model.output_labels, values, strict=True)
    texts = [f"{whole(label)} {b:.6g}" for label, b in pairs]
    return Fact("intercept", listed(texts, LISTED_OUTPUTS, str), values)


def _rows_fact(model: Model) -> Fact:
    """The training rows, with the sum of their weights unless each has the weight 1."""
    weights = f", sum of weights {model.sum_weights:.10g}" * (model.sum_weights != model.n_rows)
    return Fact("rows", f"{model.n_rows:,}{weights}", model.n_rows)


def labels_fact(model: Model) -> Fact:
    """The labels of the outputs, with class weights."""
    text = model.task.labels_text(model.labels, model.n_outputs)
    weights = class_weight_text(model.options.get("class_weight"))
    return Fact("labels", f"{text}, {weights}" if weights else text)


def passes_text(number: int, history: History) -> str:
    """The number of passes; ``--max-passes`` does not count the first."""
    first = "the empty model" if history.starts_empty else "the starting weights"
    return f"{counted(number, 'pass', 'passes')}, the first of {first}"


def penalty_text(model: Model) -> str:
    """The formula of the penalty."""
    return stored_penalty(model.options).formula(model.n_outputs)


def proof(certificate: Certificate) -> str:
    """What the certificate proves, in a sentence for everybody."""
    if certificate.scope is Scope.UNKNOWN:
        return f"Nothing is proved about this model: {certificate.scope_text}."
    if certificate.scope is Scope.NOTHING:
        return "Nothing is proved about this model: it is newer than the last pricing."
    if not certificate.has_gap:
        return "Nothing is proved about this model: no lower bound of the objective is known."
    n = f"{certificate.n_priced:,}"
    others = "; nothing is proved about the others"
    which, more = {
        Scope.FAMILY: (f"all {n} features", ""),
        Scope.SUPPORT: (f"the {n} features that another model had chosen", others),
        Scope.SAMPLE: (f"a sample of {n} features", others),
        Scope.SAMPLE_BEFORE: (f"a sample of {n} features, priced one point earlier,", others),
    }[certificate.scope]
    return (
        f"It is proved that no weights for {which} lower the training objective by more than "
        f"{proved_share(certificate.gap)}{more}."
    )


def proved_share(gap: float) -> str:
    """A gap in percent; smaller ones are rounding, and have too many zeros to be read."""
    return format_share(gap) if gap > 1e-8 else "0.000001 %"


def _encoding_facts(model: Model) -> list[Fact]:
    """How a compact model was rounded, and the losses that were measured; nothing for full weights."""
    encoding = model.encoding
    if encoding is None:
        return []
    facts = [Fact("encoding", encoding.text)]
    if encoding.loss is not None and encoding.loss_full is not None:
        text = f"{encoding.loss:.8g}, before rounding {encoding.loss_full:.8g}"
        facts.append(Fact("mean loss", text, encoding.loss))
    return facts


def _limits_facts(model: Model) -> list[Fact]:
    text = Limits.from_stored(model.options.get("limits")).text
    return [Fact("limits", text)] if text else []


def _factors(model: Model) -> str:
    """Words for standardization, and for penalty factors if any factor differs from 1."""
    words = []
    if model.certificate.scope is Scope.SUPPORT:
        words.append("each term j times the variance of its feature")
    elif (model.family.penalty_factors(model.ids) != 1.0).any():
        words.append("each term j times its penalty factor")
    if model.options.get("standardize"):
        words.append("each w_j times the standard deviation of its feature")
    return f", {' and '.join(words)}," if words else ""


def _family_text(config: Mapping[str, Any]) -> str:
    """Describe a family from its configuration; of a concatenation, each member and its factor."""
    if config["family"] == "concat":
        pairs = zip(config["members"], config["factors"], strict=True)
        return " + ".join(f"{_family_text(member)} * {factor:.10g}" for member, factor in pairs)
    if config["family"] == "hashed":
        return f"{_family_text(config['inner'])} hashed to 2^{config['bits']} weights"
    # learnt values may be long
    options = config.get("options", {k: v for k, v in config.items() if k != "family"})
    details = ", ".join(f"{key}={value}" for key, value in options.items() if value is not None)
    text = f"{config['family']} ({details})" if details else config["family"]
    return shortened(text, LONGEST_FACT)
