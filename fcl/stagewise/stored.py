"""Stagewise models and the weights of their rounds, to files and back."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features import family_from_config
from fcl.features.generator.family import GeneratedFamily
from fcl.files.bundle import HEADER, Bundle, open_bundle, to_vector, write_bundle
from fcl.files.columns import record_from_header
from fcl.files.compact import Encoding, packed_weights, unpacked_weights
from fcl.files.stagewise import ARRAYS, COMPACT, STAGEWISE, file_version
from fcl.plain import plain
from fcl.stagewise.certify import JointGap
from fcl.stagewise.learner import RoundWeights, block_count, rounds_of
from fcl.stagewise.settings import Settings
from fcl.units import counted


def write_stagewise(
    path: str | os.PathLike[str],
    header: Mapping[str, Any],
    weights: RoundWeights,
    overwrite: bool = False,
) -> None:
    """Write a model's header and weights, completely or not at all.

    Raises InputError if the path exists and ``overwrite`` is false, or cannot be written to.
    """
    encoding = header.get("encoding")
    version = file_version(header["settings"]["update"], encoding)
    members = {HEADER: STAGEWISE.encode(plain(header), version), **weight_members(weights)}
    if encoding is not None:
        del members["features.npy"]
        members[COMPACT] = packed_weights(weights.features, encoding.m, encoding.codec)
    write_bundle(path, members.items(), overwrite)


def weight_members(weights: RoundWeights, prefix: str = "") -> dict[str, np.ndarray | bytes]:
    """The weights of all rounds as members of a file."""
    return {f"{prefix}{name}.npy": to_vector(getattr(weights, name), "<f8") for name in ARRAYS}


def read_weights(
    bundle: Bundle, D: int, K: int, settings: Settings, number: int, prefix: str = ""
) -> RoundWeights:
    """The weights in a file; raises ValueError for other lengths or infinite values.

    number : visits of blocks that the weights come from.
    """
    blocks = block_count(D, settings.block)
    columns = max(1, rounds_of(number, blocks, settings)) * K
    ended = number // (blocks * settings.n_visits) if settings.calibrates else 0
    shapes = {
        "features": (D, columns),
        "intercepts": (blocks + 1, columns),
        "calibration": (ended, 1 + settings.degree * K, K),
    }
    found = {}
    for name, shape in shapes.items():
        if name == "features" and "encoding" in bundle.header:
            encoding = Encoding(**bundle.header["encoding"])
            values = unpacked_weights(bundle.member(COMPACT), D * columns, encoding, COMPACT)
        else:
            values = bundle.vector(prefix + name, "<f8")
        if len(values) != int(np.prod(shape, dtype=object)) or not np.isfinite(values).all():
            raise ValueError(f"{prefix}{name}.npy: expected finite values of shape {shape}")
        found[name] = values.reshape(shape)
    return RoundWeights(**found)


def read_stagewise(path: str | os.PathLike[str], trusted: Collection[str] = ()) -> dict[str, Any]:
    """The fields of the model in a file; parameters and errors are as of :func:`fcl.load_model`."""
    trusted = (trusted,) if isinstance(trusted, str) else trusted
    with open_bundle(path, STAGEWISE) as bundle:
        header = dict(bundle.header)
        family = family_from_config(header["family"], trusted)
        if not isinstance(family, GeneratedFamily):
            raise InputError(f"expected a family of generated columns, got {family.name}")
        K, labels, is_classes = header.pop("n_outputs"), header["labels"], header.pop("classifies")
        if is_classes != (header["noun"] == "class"):
            raise InputError(
                f"classifies: expected {not is_classes} for noun {shown(header['noun'])}"
            )
        if (labels is None and is_classes) or (labels is not None and len(set(labels)) != K):
            raise InputError(
                f"labels: expected {counted(K, 'different label')}, got {shown(labels)}"
            )
        settings = Settings(**header["settings"]).checked()
        if "encoding" in header:
            header["encoding"] = Encoding(**header["encoding"])
        certificate, record = header["certificate"], record_from_header(header)
        record.check(family.row_width)
        weights = read_weights(bundle, family.n_features, K, settings, header["best_number"])
        return header | {
            "family": family,
            "weights": weights,
            "settings": settings,
            "labels": None if labels is None else tuple(labels),
            "column_record": record,
            "certificate": None if certificate is None else JointGap(**certificate),
        }
