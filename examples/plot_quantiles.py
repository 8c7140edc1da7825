"""
Quantile regression with splines
================================

The pinball loss models quantiles: an interval that has about 80 % of the targets, and that is
wider where the targets spread more.
"""

import matplotlib.pyplot as plt
import numpy as np

import fcl

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, 2000))
y = np.sin(x) + (0.1 + 0.1 * x) * rng.normal(size=len(x))
X = x[:, None]
data = fcl.open_data(X, y=y)

# %%
# `hinges:n=32` has the linear splines with knots at 32 quantiles of the column. The width, over
# which the kink of the loss is smoothed, is small beside the spread of the targets.

curves = {}
for tau in 0.1, 0.5, 0.9:
    result = fcl.train(data, "hinges:n=32", C=0.5, loss=f"pinball:tau={tau},width=0.05")
    curves[tau] = result.model.margins(X)
    below = (y <= curves[tau]).mean()
    knots = len(result.model.ids)
    print(
        f"tau {tau}: {knots} knots, gap {result.certificate.gap:.0e}, {below:.1%} of the targets below"
    )

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(x, y, ".", color="silver", markersize=3)
axes.fill_between(x, curves[0.1], curves[0.9], alpha=0.3, label="10 % to 90 %")
axes.plot(x, curves[0.5], label="median")
axes.set(xlabel="x", ylabel="y")
axes.legend()
plt.show()
