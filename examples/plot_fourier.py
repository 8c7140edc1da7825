"""
A curved boundary from random Fourier features
==============================================

Random cosines approximate a Gaussian kernel. The L1 norm selects few of them, and the certificate
covers all that were drawn.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import fcl

X, y = make_moons(800, noise=0.25, random_state=0)
test_X, test_y = make_moons(4000, noise=0.25, random_state=1)
grid = np.linspace(-2, 3, 120)
points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)

figure, all_axes = plt.subplots(
    1, 3, figsize=(9, 3.2), layout="constrained", sharex=True, sharey=True
)
for C, axes in zip((0.1, 1, 10), all_axes, strict=True):
    result = fcl.train(fcl.open_data(X, y=y), "fourier:n=20000", C=C)
    model = result.model
    accuracy = (model.predict(test_X) == test_y).mean()
    chosen = f"{len(model.ids)} of {result.certificate.n_priced:,} features"
    print(f"C = {C}: {chosen}, gap {result.certificate.gap:.0e}, accuracy {accuracy:.3f}")
    margins = model.margins(points).reshape(120, 120)
    axes.contourf(grid, grid, margins, levels=20, cmap="RdBu_r", alpha=0.6)
    axes.contour(grid, grid, margins, levels=[0], colors="black")
    axes.scatter(*X.T, c=y, cmap="RdBu_r", s=4)
    axes.set(title=f"C = {C}: {len(model.ids)} features", xlim=(-2, 3), ylim=(-1.5, 2))
plt.show()
