"""Families as text: lists as options, and classes in place of instances."""

from __future__ import annotations

import numpy as np
import pytest

import fcl
from fcl.errors import InputError
from fcl.features import Columns, parse_features, spell_features


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
