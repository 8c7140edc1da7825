"""
Ten classes, few pixels
=======================

One joint model of ten classes. With ``penalty="group"``, a pixel has weights in all classes or in none,
so that the model says which pixels matter.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import fcl

X, y = load_digits(return_X_y=True)
X = X / 16
train = np.arange(len(y)) % 3 > 0
data = fcl.open_data(X[train], y=y[train])
models = {}
for C in 0.02, 0.05, 1:
    result = fcl.train(data, "columns", C=C, loss="softmax", penalty="group")
    models[C] = result.model
    right = (result.model.predict(X[~train]) == y[~train]).mean()
    gap = result.certificate.gap
    print(f"C = {C}: {len(result.model.ids)} of 64 pixels, gap {gap:.0e}, accuracy {right:.3f}")

# %%
# The weights of each class at the largest C: blue pixels speak for the class, red ones against it.

weights = np.zeros((64, 10))
weights[models[1].ids] = models[1].weights
figure, all_axes = plt.subplots(2, 5, figsize=(8, 3.6), layout="constrained")
largest = abs(weights).max()
for digit, axes in enumerate(all_axes.flat):
    axes.imshow(weights[:, digit].reshape(8, 8), cmap="RdBu", vmin=-largest, vmax=largest)
    axes.set(title=str(digit), xticks=[], yticks=[])
plt.show()

# %%
# The pixels in the model at each C.

figure, all_axes = plt.subplots(1, 3, figsize=(7, 2.6), layout="constrained")
for (C, model), axes in zip(models.items(), all_axes, strict=True):
    used = np.zeros(64)
    used[model.ids] = np.linalg.norm(model.weights, axis=1)
    axes.imshow(used.reshape(8, 8), cmap="Greys")
    axes.set(title=f"C = {C}: {len(model.ids)} pixels", xticks=[], yticks=[])
plt.show()
