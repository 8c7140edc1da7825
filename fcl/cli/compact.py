"""``fcl convert model.fcl small.fcl``: compact models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from fcl.cli.common import messages, show
from fcl.cli.job import OutputFiles
from fcl.errors import InputError
from fcl.facts import Fact, aligned
from fcl.options.convert import READING, ROUNDING
from fcl.store import locate
from fcl.units import counted, format_bytes, format_gap

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.scoring.compact import Compacted

#: Options of other inputs that also hold for models.
_SHARED = ("x", "y", "weights", "overwrite", "quiet")


def is_compaction(inputs: Sequence[str], options: Mapping[str, Any]) -> bool:
    """Whether the input is a model; raises InputError for options of the other kind of input."""
    from fcl.convert.files import is_pipe
    from fcl.model.formats import is_model

    one = len(inputs) == 1 and inputs[0] != "-" and not is_pipe(inputs[0])
    found = one and is_model(inputs[0])
    others = [name for name in READING if name not in _SHARED] if found else list(ROUNDING)
    table = READING if found else ROUNDING
    for name in others:
        default = table[name].default
        if name in options and options[name] != (default and table[name].kind.read(default)):
            takes = "inputs other than models" if found else "models"
            raise InputError(f"{table[name].spelled} is an option for {takes}; leave it out")
    return found


def compact_file(path: str, out: str, options: Mapping[str, Any]) -> int:
    """Write a compact copy of a model file, and say what was saved and lost; returns the exit code."""
    from fcl.model import load_model
    from fcl.scoring.compact import compact_model

    outputs = OutputFiles(options["overwrite"], model=path, data=options["data"])
    if (options["bits"] is None) == (options["max_loss"] is None):
        raise InputError(f"{path}: give --bits M, or --max-loss SHARE with --data DATA")
    if options["max_loss"] is not None and options["data"] is None:
        raise InputError("--max-loss: expected --data DATA, to measure losses on")
    outputs.add("OUT", out, "compact model")
    messages.note(f"reading {', '.join(filter(None, [path, options['data']]))}")
    model = load_model(path, options["imports"])
    data = None if options["data"] is None else _open(model, options)
    found = compact_model(
        model,
        data,
        bits=options["bits"],
        max_loss=options["max_loss"],
        rounding=options["rounding"],
        seed=options["seed"] or 0,
    )
    outputs.write("OUT", found.model.save, "the model")
    if not options["quiet"]:
        show(_lines(model, found, path, outputs["OUT"].path))
    return outputs.exit_code


def _open(model: Any, options: Mapping[str, Any]) -> DataSet:
    from fcl.cli.opening import open_rows

    return open_rows(
        options["data"],
        options["y"] or "y",
        x=options["x"] or "X",
        weights=options["weights"],
        offset=options["offset"],
        covariates=model.covariate_names or None,
    )


def _lines(model: Any, found: Compacted, path: str, out: str) -> list[str]:
    """The table of what was measured."""

    compact, encoding = found.model, found.model.encoding
    before, after = (locate(name).stat().st_size for name in (path, out))
    ratio = f"{before / after:.1f}x"
    facts = [
        Fact("model", out),
        Fact("encoding", f"{encoding.text}, {encoding.codec}"),
        Fact("weights", _weights(model, compact, out)),
        Fact(
            "size", f"{format_bytes(before)} before, {format_bytes(after)} after ({ratio})", after
        ),
    ]
    for tried in found.tries:
        words = f"{tried.loss:.8g} with {tried.m} bits, {tried.rounding}: {_rise(tried)}"
        facts.append(Fact("tried", words))
    if encoding.loss is not None:
        rows = counted(encoding.rows, "row")
        words = f"{encoding.loss_full:.8g} before, {encoding.loss:.8g} after: {_rise(encoding)}"
        facts.append(Fact("mean loss", f"{words}, over {rows}"))
    if encoding.promise is not None:
        words = (
            f"random rounding raises the mean loss by at most {encoding.promise:.3g} in the mean"
        )
        facts.append(Fact("promise", words))
    if encoding.margin_bound is not None and encoding.rounding == "random":
        words = (
            f"move by at most {encoding.margin_bound:.3g} in all rows, with probability 1 - 1/rows"
        )
        facts.append(Fact("margins", words))
    return aligned([*facts, _gap(model.certificate, compact.certificate)])


def _weights(model: Any, compact: Any, out: str) -> str:
    """Number of weights, bits a weight in the file, and the entropy of their values."""
    import numpy as np

    from fcl.files.bundle import open_archive

    values = compact.weights if hasattr(compact, "C") else compact.weights.features
    given = model.weights if hasattr(model, "C") else model.weights.features
    with open_archive(out) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    stored = sizes.get("weights.q", sizes.get("features.q", 0))
    counts = np.unique(values, return_counts=True)[1] / max(values.size, 1)
    entropy = abs(float((counts * np.log2(counts)).sum()))
    bits = 8.0 * stored / max(values.size, 1)
    kept = np.count_nonzero(values)
    return (
        f"{kept:,} of {np.count_nonzero(given):,} are not 0; {bits:.2f} bits each of {values.size:,} "
        f"stored (entropy {entropy:.2f})"
    )


def _rise(encoding: Any) -> str:
    full, rise = encoding.loss_full, encoding.loss - encoding.loss_full
    return f"{100.0 * rise / full:+.3g} %" if full > 0.0 else f"{rise:+.3g}"


def _gap(full: Any, rounded: Any) -> Fact:
    """The certificate before and after."""
    before = "unknown"
    if full is not None and isfinite(full.gap):
        before = format_gap(full.gap)
    if rounded is None or not isfinite(rounded.gap):
        why = (
            "the model has no certificate"
            if full is None
            else "that needs its training data, --data"
        )
        return Fact("gap", f"{before} before, unknown after: {why}")
    after = format_gap(rounded.gap)
    return Fact("gap", f"{before} before, {after} after, relative", rounded.gap)
