"""Docstrings of the public names are complete, and their examples run.

The public names are those of the page docs/reference/api.md. Examples have `fcl` and `np`.
"""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
#: An entry that stands for all other parameters of another class.
OTHERS = re.compile(r"^others\n +As in :class:`(\w+)`\.$", re.MULTILINE)


def named_on_the_page() -> Iterator[tuple[str, Any]]:
    module: Any = fcl
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
            module = importlib.import_module(found[1])
        elif found := re.fullmatch(r"   (\w+)", line):
            yield f"{module.__name__}.{found[1]}", getattr(module, found[1])


PUBLIC = dict(named_on_the_page())
CLASSES = [name for name, thing in PUBLIC.items() if inspect.isclass(thing)]
FUNCTIONS = [name for name in PUBLIC if name not in CLASSES]
each_name = pytest.mark.parametrize("name", PUBLIC)


def with_methods(name: str) -> dict[str, Any]:
    """A public name, and the public methods that fcl defines for it or for its base classes."""
    found = {name: PUBLIC[name]}
    if name in CLASSES:
        for method, value in inspect.getmembers(PUBLIC[name], inspect.isroutine):
            if method[0] != "_" and getattr(value, "__module__", "").startswith("fcl."):
                found[f"{name}.{method}"] = value
    return found


def sections(thing: Any) -> dict[str, str]:
    """The sections of a docstring by title; the text before them has no title."""
    parts = re.split(r"^(\w+)\n-+$", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(section: str) -> set[str]:
    """The names that a section describes."""
    heads = re.findall(r"^(\S.*?)(?: : .*)?$", section, re.MULTILINE)
    names = [name.strip("*") for head in heads for name in re.split(r", | and ", head)]
    assert len(names) == len(set(names)), names
    return set(names)


def parameters(thing: Any) -> set[str]:
    return set(inspect.signature(thing).parameters) - {"self"}


def test_the_page_has_all_public_names() -> None:
    on_page = {name.removeprefix("fcl.") for name in PUBLIC}
    assert set(fcl.__all__) - {"__version__"} <= on_page


@each_name
def test_summary_is_one_sentence_on_one_line(name: str) -> None:
    for owner, thing in with_methods(name).items():
        summary = sections(thing)[""].strip().split("\n\n")[0]
        assert summary.endswith(".") and "\n" not in summary, (owner, summary)


@each_name
def test_parameters_are_those_of_the_signature(name: str) -> None:
    for owner, thing in with_methods(name).items():
        text = sections(thing).get("Parameters", "")
        if text or owner in FUNCTIONS:
            described, expected = entries(text), parameters(thing)
            if other := OTHERS.search(text):
                described -= {"others"}
                described |= expected & parameters(getattr(fcl, other[1]))
            assert described == expected, owner


@pytest.mark.parametrize("name", CLASSES)
def test_classes_describe_what_they_have(name: str) -> None:
    """Classes that users make have parameters, all others attributes."""
    thing, found = PUBLIC[name], sections(PUBLIC[name])
    if dataclasses.is_dataclass(thing) and "Parameters" not in found:
        assert entries(found["Attributes"]) >= {field.name for field in dataclasses.fields(thing)}
    if not issubclass(thing, Exception):
        assert found.keys() & {"Parameters", "Attributes"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_they_return(name: str) -> None:
    if inspect.signature(PUBLIC[name]).return_annotation != "None":
        assert re.match(r"\n\S.*\n    \S", sections(PUBLIC[name])["Returns"])


@each_name
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fcl.store.clients._FIRST_PAUSE", 0.001)  # of a store that is not there
    # a class of features must be in a module that can be imported
    module = types.ModuleType("examples_here")
    (tmp_path / "examples_here.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    parser, printed = doctest.DocTestParser(), list[str]()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    tried = {}
    for owner, thing in with_methods(name).items():
        vars(module).update(fcl=fcl, np=np)
        test = parser.get_doctest(inspect.getdoc(thing) or "", vars(module), owner, None, None)
        test.globs = vars(module)  # the parser copies them
        tried[owner] = runner.run(test, out=printed.append, clear_globs=False).attempted
    assert not runner.failures, "".join(printed)
    assert tried[name], f"{name} has no example"
