"""A model over windows with many random weights, a small genome, and scores by plain loops over text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fcl.features import KmerFamily
from fcl.model import Certificate, Model

LENGTH, ORIGIN = 11, 4
OTHER = dict(zip("ACGTN", "TGCAN", strict=True))


def random_model(labels: tuple[object, object] | None = (-1, 1), loss: str = "logistic") -> Model:
    """A model of 3-mers over windows of 11 letters whose origin is letter 4."""
    rng = np.random.default_rng(8)
    family = KmerFamily(3, LENGTH, ORIGIN)
    ids = np.sort(rng.choice(family.n_features, 300, replace=False))
    certificate = Certificate(1.0, 1.0, 0.0, 1.0, family.n_features, passes=1)
    return Model(
        family, ids, rng.normal(size=300), np.ones(300, np.int64), 0.3, loss, 1.0, 1.0, labels, 9, 9.0,
        "ab" * 32, certificate,
    )  # fmt: skip


def reverse(text: str) -> str:
    return "".join(OTHER[letter] for letter in reversed(text))


def write_genome(path: Path, seed: int = 1, sizes: tuple[int, ...] = (260, 90)) -> dict[str, str]:
    """Write a FASTA file of contigs c1, c2 with a few N; returns their letters."""
    rng = np.random.default_rng(seed)
    letters, shares = list("ACGTN"), [0.3, 0.2, 0.3, 0.19, 0.01]
    contigs = {f"c{i}": "".join(rng.choice(letters, n, p=shares)) for i, n in enumerate(sizes, 1)}
    path.write_text(
        "".join(f">{name} x\n{t[:50]}\n{t[50:].lower()}\n" for name, t in contigs.items())
    )
    return contigs
