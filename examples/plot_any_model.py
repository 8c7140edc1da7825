"""
Certify the models of other programs
====================================

How far from the optimum are the models of scikit-learn? ``fcl.certify`` says so for any linear
model, in one pass. Needs scikit-learn 1.8.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler

import fcl

C = 0.1
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
data = fcl.open_data(X, y=y)
optimum = fcl.train(data, "columns", C=C, tol=1e-6).model

# %%
# Two ways to fit the same problem with scikit-learn. liblinear penalises the intercept, so it
# cannot reach this optimum.

models = {
    "liblinear": LogisticRegression(l1_ratio=1, solver="liblinear", C=C, random_state=0),
    "SGD": SGDClassifier("log_loss", penalty="l1", alpha=1 / (C * len(y)), random_state=0),
}
print(f"{'':9}  objective  own gap      gap  smallest own gap at C")
for name, model in models.items():
    model.fit(X, y)
    found = fcl.certify((model.coef_, model.intercept_), data, C, bound=optimum)
    numbers = f"{found.objective:9.4f}  {found.own_gap:7.2g}  {found.gap:7.2g}"
    print(f"{name:9}  {numbers}  {found.best_gap:.2g} at {found.best_C:.3g}")
print("the strongest violators of the last model:")
for row in found.violators[:5]:
    print(f"|C g| = {row.slope:6.3f} of {row.feature}, which has the weight {row.weight:+.3f}")

# %%
# How fast does the solver saga come near? Its own stopping rule does not say; the certificate does.

steps = [1, 3, 10, 30, 100, 300, 1000]
gaps = []
for limit in steps:
    with warnings.catch_warnings(action="ignore"):  # it has not converged, which is what we look at
        saga = LogisticRegression(
            l1_ratio=1, solver="saga", C=C, tol=0, max_iter=limit, random_state=0
        ).fit(X, y)
    gaps.append(fcl.certify((saga.coef_, saga.intercept_), data, C, bound=optimum).gap)

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.loglog(steps, gaps, ".-")
axes.set(xlabel="passes of saga over the rows", ylabel="relative gap")
plt.show()
