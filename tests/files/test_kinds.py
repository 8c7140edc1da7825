"""What holds for every kind of bundle: versions, formats, and keys that no table declares."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fcl.errors import ModelFileError
from fcl.files import schema
from fcl.files.bundle import DamagedFile, FileKind
from fcl.files.checkpoint import CHECKPOINT
from fcl.files.model import MODEL
from fcl.files.stagewise import STAGEWISE, STAGEWISE_CHECKPOINT


@pytest.mark.parametrize("kind", [MODEL, CHECKPOINT, STAGEWISE, STAGEWISE_CHECKPOINT])
def test_formats_and_versions(kind: FileKind) -> None:
    """A damaged checkpoint is skipped for the one before, one of a newer version is not."""

    def refused(message: str, **header: Any) -> bool:
        with pytest.raises(ModelFileError, match=message) as caught:
            kind.decode(json.dumps(header).encode())
        return isinstance(caught.value, DamagedFile)

    own = {"format": kind.format, "version": kind.version}
    newer = own | {"version": kind.version + 1, "fcl_version": "9.9"}
    assert not refused(r"made by a newer fcl.*says '9\.9'", **newer)
    for version in (0, -1, 1.0, True, "1", None):
        assert refused("version must be an integer from 1", **own | {"version": version})
    for other in ("fcl-other", None, 3, ["fcl-model"]):
        assert refused(f"not a {kind.noun}: format is ", **own | {"format": other})
    assert refused(r"header\.json: .* is missing", **own)
    for content in (b"", b"{", b"[]", b"3", b'{"a": ' + b"[" * 99_999, b"\xff"):
        with pytest.raises(DamagedFile, match=r"^header\.json is not usable JSON: "):
            kind.decode(content)


TOY = FileKind(
    "toy",
    3,
    "toy file",
    schema.record(n=schema.whole(), more=schema.Maybe(schema.record(x=schema.finite)),
                  old=schema.Maybe(schema.flag, False)),
    upgrade=lambda header: header | {"twice": 2 * header["n"]},
)  # fmt: skip


def test_what_is_written_is_what_is_read() -> None:
    content = TOY.encode({"n": 3, "more": {"x": 0.1}}, 2)
    assert json.loads(content) == {"format": "toy", "version": 2, "n": 3, "more": {"x": 0.1}}
    assert TOY.decode(content) == {"n": 3, "more": {"x": 0.1}, "old": False, "twice": 6}
    for header, message in (
        ({"n": -1}, "n: expected a whole number from 0"),
        ({"n": 1, "y": 2}, r"undeclared in the header\.json of a toy file: y"),
        ({"n": 1, "more": {"x": 0.5, "z": 1}}, r"undeclared .*: more\.z"),
        ({"n": 1, "more": {"x": float("nan")}}, "not JSON compliant"),
    ):
        with pytest.raises(ValueError, match=message):
            TOY.encode(header)
