"""``fcl certify``: how far a model is from the optimum, whoever trained it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from fcl.cli.common import messages, show
from fcl.cli.job import OutputFiles
from fcl.cli.opening import open_rows
from fcl.cli.options import EXIT_CODES, FILE, TableCommand
from fcl.cli.report import certify_lines
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.numerals import read_number
from fcl.options import PROBLEM, options_of_command
from fcl.options.option import CERTIFY
from fcl.run.events import Compiling, Event, StepProgress

if TYPE_CHECKING:
    from fcl.drivers.optimality import Optimality
    from fcl.model import Model

EPILOG = (
    """\
\b
Examples:
  fcl certify model.fcl train.zarr
  fcl certify readable.txt train.zarr --C 0.1 --bound-from optimum.fcl
  fcl certify coef.npy train.zarr --intercept -0.7 --C best
  fcl certify weights.tsv train.zarr --features kmers:d=6 --out model.fcl

MODEL is a model of fcl train; a model of Vowpal Wabbit written with --readable_model or
--invert_hash; an .npy of coefficients, or an .npz of coef and intercept; or a table of names and
weights, separated by tabs, with names as fcl inspect --tsv writes them and perhaps a row (intercept).
A model of fcl has features, loss and penalty in its file; for other models give --features, --loss and
the like.
"""
    + EXIT_CODES
)


#: Options that the command passes on as they are.
_PASSED = options_of_command(CERTIFY).keys() & (
    {*PROBLEM, "radius", "memory", "scratch", "top"} - {"features", "intercept"}
)


@click.command("fcl certify", cls=TableCommand, epilog=EPILOG)
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
def command(model: str, data: str, **options: Any) -> int:
    """Say how far the file MODEL is from the optimum on DATA, by one pass.

    The pass computes the gradients of all features of the family at the model, which give a lower
    bound on the objective of any model. The bound of a poor model is poor, too: the bound of an optimum
    (--bound-from) says more.
    """
    outputs = OutputFiles(
        options["overwrite"], model=model, data=data, **{"the optimum": options["bound_from"]}
    )
    outputs.add("--out", options["out"], "model")
    outputs.add("--json", options["as_json"], "result")
    found, notes = _certify(model, data, options)
    if found.model is not None:
        outputs.write("--out", found.model.save)
    text = json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n"
    outputs.write("--json", text.encode())
    if not options["quiet"]:
        written = [Fact("written", path) for what, path in outputs.written if what == "model"]
        show(certify_lines(found, model, [*notes, *written]))
    return outputs.exit_code


def _certify(path: str, data: str, options: dict[str, Any]) -> tuple[Optimality, list[Fact]]:
    """The result, and further facts for the summary."""
    from fcl.drivers.certify import run_certify
    from fcl.drivers.model_to_certify import linear_model
    from fcl.features import parse_features
    from fcl.model.facts import hashing_facts

    to_certify = linear_model(path, options["imports"], options["namespace"])
    if options["intercept"] is not None:
        to_certify = to_certify.with_intercept(options["intercept"])
    bound = None if options["bound_from"] is None else _optimum(options)
    messages.note(f"reading {data}")
    covariates = None if to_certify.model is None else to_certify.model.covariate_names or None
    arrays = {name: options[name] for name in ("x", "y", "weights", "offset")}
    rows = open_rows(data, covariates=covariates, **arrays)
    problem = {name: options[name] for name in _PASSED}
    if options["features"] is not None:
        problem["features"] = parse_features(options["features"])
    if options["no_intercept"]:
        problem["intercept"] = False
    found = run_certify(
        model=to_certify,
        data=rows,
        C=_strength(options["strength"]),
        bound=bound,
        keep_model=options["out"] is not None,
        progress=None if options["quiet"] else _say,
        **problem,
    )
    return found, [] if to_certify.model is None else hashing_facts(to_certify.model.family)


def _strength(text: str | None) -> float | str | None:
    if text is None or text == "best":
        return text
    number = read_number(text)
    if number is None:
        raise InputError(f"--C: expected a number above 0, or best, got {text!r}")
    return number


def _optimum(options: dict[str, Any]) -> Model:
    from fcl.model import Model, load_model

    found = load_model(options["bound_from"], options["imports"])
    if not isinstance(found, Model):
        raise InputError(
            f"--bound-from {options['bound_from']}: expected a model of fcl train, got a stagewise one"
        )
    return found


def _say(event: Event) -> None:
    """Say what takes long."""
    if isinstance(event, Compiling):
        messages.say(f"compiling kernels, once, about {event.seconds:.0f} s")
    elif isinstance(event, StepProgress):
        messages.say(f"{event.step}, {100.0 * event.share:.0f} %")
