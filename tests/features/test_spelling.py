"""Families as text: options, lists among them, unions, and classes in place of instances."""

from __future__ import annotations

import numpy as np
import pytest

import fcl
from fcl.errors import InputError
from fcl.features import (
    Bag,
    Columns,
    Concat,
    Fourier,
    Hinges,
    Kmers,
    parse_features,
    spell_features,
)

#: Texts, what they stand for, and how this is spelled, if not in the same way.
TEXTS = [
    ("kmers:d=8,origin=70", Kmers(8, 70), ""),
    (" kmers : origin = -3 , d = 2 ", Kmers(2, -3), "kmers:d=2,origin=-3"),
    ("bag:d=6", Bag(6), ""),
    ("bag:d=4,value=presence,strands=both", Bag(4, "presence", "both"), ""),
    ("bag:d=5,strands=both,wildcards=true", Bag(5, strands="both", wildcards=True), ""),
    ("hinges", Hinges(16), "hinges:n=16,scale=true"),
    ("hinges:n=3,scale=false", Hinges(3, scale=False), ""),
    ("fourier:n=100000,kernel=gaussian,gamma=0.01", Fourier(n=100000, gamma=0.01), None),
    ("fourier:n=100,dtype=int8", Fourier(n=100, dtype="int8"), None),
    ("fourier:per_pass=1000,kernel=laplace", Fourier(None, "laplace", per_pass=1000), None),
    ("kmers:d=6 + bag:d=3", Concat([Kmers(6), Bag(3)]), ""),
    ("kmers:d=6,origin=70 * 2", Concat([(Kmers(6, 70), 2.0)]), ""),
    ("columns + columns * 0.1", Concat([Columns(), (Columns(), 0.1)]), None),
    ("kmers:d=2 * 1", Concat([Kmers(2)]), None),
    ("bag:d=3,value=presence,strands=both * 1.5 + kmers:d=4",
     Concat([(Bag(3, "presence", "both"), 1.5), Kmers(4)]), ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "spec", "spelled"), TEXTS)
def test_texts(text: str, spec: object, spelled: str | None) -> None:
    assert parse_features(text) == spec
    found = spell_features(spec)
    assert parse_features(found) == spec
    assert spelled is None or found == (spelled or text)


def test_defaults_of_a_later_version_are_not_spelled() -> None:
    """Checkpoints of earlier versions are resumed by their text."""
    assert "dtype" not in spell_features(Fourier(n=100))
    assert Fourier().per_pass == 65536 and Fourier(n=3).per_pass is None
    assert Fourier(n=100, dtype="int8") != Fourier(n=100)


class Lists(Columns):
    """The columns, with any list as an option."""

    name = ""

    def __init__(self, names: list[object] | None = None, n: int = 3) -> None:
        super().__init__()
        self.names, self.n = names, n

    def options(self) -> dict[str, object]:
        return {"names": self.names, "n": self.n}


@pytest.mark.parametrize(
    "names",
    [[], [1, 2.5, "inf"], ["a b], + c * 2", 'd"e[,', "back\\", "\\u0020", "é"], [True, None]],
)
def test_lists_come_back(names: list[object]) -> None:
    spec = Lists(names, 7)
    text = spell_features(spec)
    again = parse_features(text)
    assert again == spec and again.names == names and again.n == 7  # type: ignore[union-attr]
    both = f"{text} * 2 + kmers:d=3"
    assert spell_features(parse_features(both)) == both


def test_a_class_is_not_an_instance_and_numbers_are_plain() -> None:
    X = np.eye(8)
    data = fcl.open_data(X, y=np.where(X[:, 0] > 0, 1, -1))
    with pytest.raises(InputError, match=r"got the class Columns; give Columns\(...\)"):
        fcl.train(data, Columns, C=1.0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"got -0\.5$"):
        fcl.train(data, Columns(), C=np.float64(-0.5))
    model = fcl.train(data, Columns(), C=1.0).model
    assert repr(model).startswith("<Model columns: ") or repr(model).startswith("<Model Columns: ")
    assert "array" not in repr(model) and len(repr(model)) < 80
