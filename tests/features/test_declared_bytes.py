"""The bytes that the memory plan counts are those of the arrays that are allocated."""

from __future__ import annotations

from fcl.arrays import Arrays, zeros


def test_a_declaration_gives_bytes_and_arrays() -> None:
    declared = Arrays(("u4", 3, "rows ids")) + Arrays(("f8", (2, 3), "sums"))
    made = declared.allocate(zeros)
    assert declared.nbytes == 2 * 3 * 4 + 6 * 8 == sum(array.nbytes for array in made.values())
    assert [(name, a.dtype.str, a.shape) for name, a in made.items()] == [
        ("rows", "<u4", (3,)),
        ("ids", "<u4", (3,)),
        ("sums", "<f8", (2, 3)),
    ]
    assert not any(array.any() for array in made.values())
