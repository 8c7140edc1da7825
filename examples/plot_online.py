"""
One pass, a few passes, the optimum
===================================

``fcl.train_online`` learns row by row. Its certificate says how far a pass, or ten of them, are
from the optimum.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse

import fcl

rng = np.random.default_rng(0)
X = scipy.sparse.random_array((20000, 1000), density=0.02, format="csr", rng=rng)
truth = np.where(np.arange(1000) < 50, rng.normal(size=1000) * 4, 0)
y = (X @ truth + rng.logistic(size=20000) * 0.5 > 0).astype(int)
data = fcl.open_data(X, y=y)
C = 0.1
optimum = fcl.train(data, "columns", C=C, tol=1e-6)
print(f"optimum: objective {optimum.certificate.objective:.2f}, {len(optimum.model.ids)} weights")

passes = [1, 2, 5, 10, 20]
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for method in "ftrl", "truncated-gradient":
    distances = []
    for count in passes:
        learnt = fcl.train_online(data, "columns", C=C, method=method, passes=count, seed=0)
        distances.append(learnt.model.certificate.objective / optimum.certificate.objective - 1)
        print(
            f"{method}, passes {count}: {distances[-1]:.1%} above, {len(learnt.model.ids)} weights"
        )
    axes.loglog(passes, distances, ".-", label=method)
axes.set(xlabel="passes over the rows", ylabel="objective above the optimum")
axes.legend()
plt.show()
