"""
Your own features
=================

A class of 20 lines defines the steps 1[x > q] of the columns of a table. We predict the progress
of diabetes of 442 patients, and explain one prediction.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import fcl

# %%
# The class must be in a module, where a saved model can find it:
# ``examples/generators/thresholds.py``, which :doc:`the tutorial </tutorials/own_features>` explains.

folder = next(path for path in (Path("generators"), Path("examples/generators")) if path.exists())
sys.path.insert(0, str(folder.absolute()))
from thresholds import Thresholds  # noqa: E402

rows = load_diabetes(as_frame=True)
X, y = rows.data.to_numpy(), rows.target.to_numpy()
test = np.arange(len(X)) % 4 == 0
family = Thresholds(n=100)  # 100 quantiles of each of the 10 columns
result = fcl.train(fcl.open_data(X[~test], y=y[~test]), family, C=1e-3, loss="squared")
model = result.model
print(
    f"{len(model.ids)} features selected, relative gap {result.certificate.gap:.1e} over all features"
)
for feature in model.describe(top=5):
    print(f"{feature.weight:+8.2f}  {feature.feature}")

error = np.abs(model.margins(X[test]) - y[test]).mean()
constant = np.abs(y[~test].mean() - y[test]).mean()
print(f"mean absolute error on held-out rows {error:.1f}; of a constant {constant:.1f}")

# %%
# The sum of the steps of a column is a step function: the effect of the column on the prediction.

names = rows.data.columns
effect = {name: np.zeros(len(X)) for name in names}
columns = model.columns(X).toarray()
for j, feature in enumerate(model.ids):
    effect[names[feature // 100]] += model.weights[j] * columns[:, j]
largest = sorted(names, key=lambda name: np.ptp(effect[name]))[-3:]
figure, all_axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for axes, name in zip(all_axes, reversed(largest), strict=True):
    order = np.argsort(X[:, names.get_loc(name)])
    axes.step(X[order, names.get_loc(name)], effect[name][order])
    axes.set(xlabel=name)
all_axes[0].set(ylabel="effect on the prediction")
plt.show()

# %%
# ``explain`` divides one prediction among the features: intercept and contributions add up to it.

why = model.explain(X[test], top=4)
print(f"held-out row 1: measured {y[test][1]:.1f}, predicted {why.margins[1]:.1f}")
print(f"{model.intercept:+8.2f}  intercept")
for part in why.row(1):
    print(f"{part.contribution:+8.2f}  {part.feature}")
print(f"{why.others[1]:+8.2f}  all other features")
