"""Find k-mers around splice sites: train, read the certificate, and predict.

python examples/dna_windows.py
"""

from pathlib import Path

import zarr

import fcl

HERE = Path(__file__).parent
EVERY = 20  # take every 20th row; 1 for all rows


def windows(name):
    """Load codes (n, 141) and labels (n,) of some windows."""
    group = zarr.open_group(HERE / "celegans" / name, mode="r")
    return group["X"][:][::EVERY], group["y"][:][::EVERY]


def main():
    X, y = windows("train.zarr")
    # all patterns of up to 4 letters at each position, with wildcards: 69,000 features
    family = fcl.Kmers(d=4, origin=70)
    result = fcl.train(fcl.open_data(X, y=y), family, C=0.3, memory="1GiB", driver="inline")

    certificate = result.certificate
    print(f"{len(X):,} windows, {certificate.n_priced:,} features")
    print(f"objective {certificate.objective:.4f}; no model is below {certificate.bound:.4f}")
    for feature in result.model.describe(top=5):
        print(f"{feature.weight:+8.3f}  {feature.feature}")

    X, y = windows("valid.zarr")
    margins = result.model.margins(X)
    print(f"AUPRC on another chromosome: {fcl.average_precision(y, margins):.3f}")


if __name__ == "__main__":
    main()
