"""The codec of messages: encodes dataclasses as frames of bytes, and decodes them.

A frame is the length (uint32) of a JSON object, and the object: the class name under ``""``, and the
fields by name. Floats are preserved bit for bit, infinite ones too; so are enumerations and tuples.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, dataclass_transform, get_type_hints

_LENGTH = struct.Struct("=I")
_CLASSES: dict[str, type] = {}
_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True)
def message(cls: type[_Class]) -> type[_Class]:
    """Decorator: make a class a frozen dataclass, and register it with the codec.

    The class is a message or a part of one.
    """
    made = dataclass(frozen=True)(cls)
    if _CLASSES.setdefault(cls.__name__, made) is not made:
        raise ValueError(f"expected one message class of each name, got two named {cls.__name__}")
    return made


def pack(value: Any) -> bytes:
    """Encode a message as a frame."""
    data = json.dumps(_encoded(value)).encode("ascii")
    return _LENGTH.pack(len(data)) + data


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Add bytes of the stream; return the messages that are complete with them."""
        rest, messages, start = self._rest, [], _LENGTH.size
        rest += data
        while len(rest) >= start:
            stop = start + _LENGTH.unpack_from(rest)[0]
            if len(rest) < stop:
                break
            messages.append(json.loads(rest[start:stop], object_hook=_decoded))
            del rest[:stop]
        return messages


def _encoded(value: Any) -> Any:
    if is_dataclass(value):
        name = type(value).__name__
        if name not in _CLASSES:
            raise TypeError(f"expected a class declared to the codec, got {name}")
        return {"": name, **{f.name: _encoded(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    return value


def _decoded(found: dict[str, Any]) -> Any:
    cls = _CLASSES[found.pop("")]
    enums = _enums(cls)
    for name, value in found.items():
        if name in enums:
            found[name] = enums[name](value)
        elif isinstance(value, list):
            found[name] = tuple(value)
    return cls(**found)


@cache
def _enums(cls: type) -> dict[str, type[Enum]]:
    """The fields of a class that are enumerations, and their types."""
    hints = get_type_hints(cls)
    return {k: v for k, v in hints.items() if isinstance(v, type) and issubclass(v, Enum)}
