"""
Splice sites of a worm
======================

Which patterns of letters tell splice acceptor sites from other places with the letters AG? We
train on windows of the genome of *C. elegans*, watch the certificate close, and look at the
effect of each letter.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import zarr

import fcl

# %%
# The windows
# -----------
# Each window has 141 letters, as codes 0 to 3; the A of its AG is at index 70. We take every
# tenth row.

folder = next(path for path in (Path("celegans"), Path("examples/celegans")) if path.exists())


def windows(name):
    """Load codes (n, 141) and labels (n,)."""
    group = zarr.open_group(folder / name, mode="r")
    return group["X"][::10], group["y"][::10]


X, y = windows("train.zarr")
print(f"{len(X):,} windows, {(y > 0).sum()} of them acceptor sites")

# %%
# Train
# -----
# The family has all patterns of up to five letters, with wildcards, at each position. ``progress``
# gets an event after each pass over the data.

passes = []
result = fcl.train(
    fcl.open_data(X, y=y), fcl.Kmers(d=5, origin=70), C=0.3, tol=1e-5, progress=passes.append
)
passes = [event for event in passes if type(event).__name__ == "PassDone"]

certificate = result.certificate
print(f"{len(result.model.ids)} of {certificate.n_priced:,} features, gap {certificate.gap:.1e}")
for feature in result.model.describe(top=5):
    print(f"{feature.weight:+8.3f}  {feature.feature}")

# %%
# No model has an objective below the bound. Both lines meet at the optimum.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
number = [event.number for event in passes]
left.plot(number, [event.objective for event in passes], ".-", label="objective of the model")
left.plot(number, [event.bound for event in passes], ".-", label="bound for every model")
left.set(xlabel="pass", ylabel="objective")
left.legend()
right.semilogy(number, [event.gap for event in passes], ".-")
right.set(xlabel="pass", ylabel="relative gap")
plt.show()

# %%
# The effect of letters
# ---------------------
# Patterns overlap, so one weight says little. The effect of a letter at a position is the mean
# margin of the windows that have it, minus the mean margin of all windows.

X_valid, y_valid = windows("valid.zarr")
margins = result.model.margins(X_valid)
print(f"AUPRC on another chromosome {fcl.average_precision(y_valid, margins):.3f}")

positions = np.arange(-20, 10)
effects = np.array(
    [
        [
            margins[X_valid[:, 70 + p] == letter].mean() - margins.mean() if p not in (0, 1) else 0
            for p in positions
        ]
        for letter in range(4)
    ]
)
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
for letter, name in enumerate("ACGT"):
    axes.plot(positions, effects[letter], ".-", label=name)
axes.axhline(0, color="grey", linewidth=0.5)
axes.set(xlabel="position from the A of the AG", ylabel="effect on the margin")
axes.legend(ncols=4)
plt.show()
