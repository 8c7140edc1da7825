"""
Limits of weights: a curve that only rises
==========================================

With weights of at least 0 on steps, the model cannot fall. The certificate is about all models
within the limits.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import fcl

folder = next(path for path in (Path("generators"), Path("examples/generators")) if path.exists())
sys.path.insert(0, str(folder.absolute()))
from thresholds import Thresholds  # noqa: E402

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, 400))
dose = np.log1p(x) + 0.5 * rng.normal(size=len(x))
X = x[:, None]

# %%
# ``Thresholds`` has the steps 1[x > q] for 64 quantiles q.

models = {}
for name, limits in ("free", None), ("weights of at least 0", "0:"):
    result = fcl.train(
        fcl.open_data(X, y=dose), Thresholds(n=64), C=5, loss="squared", limits=limits
    )
    models[name] = result.model
    proved = result.certificate
    print(
        f"{name}: {len(result.model.ids)} steps, objective {proved.objective:.3f}, gap {proved.gap:.0e}"
    )
    print(f"  smallest weight {result.model.weights.min():+.3f}")

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(x, dose, ".", color="silver")
for name, model in models.items():
    axes.step(x, model.margins(X), label=name)
axes.set(xlabel="dose", ylabel="response")
axes.legend()
plt.show()
