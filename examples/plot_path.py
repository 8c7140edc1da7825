"""
Choose C along a path
=====================

A path trains at increasing values of C, each from the model before, and scores each model on
other rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

import fcl

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = StandardScaler().set_output(transform="pandas").fit_transform(X)

# %%
# All products of two of the 30 columns are 495 features. Five folds score each value of C.

path = fcl.train_path(
    fcl.open_data(X, y=y), "products:degree=2", points=12, cv=5, select="1se", patience=12
)
print(f"{len(path.models)} models; {path.reason}")
for name, point in ("best", path.best), ("1se", path.one_se):
    print(f"{name:4}  C {point.C:.3g}, {point.active} features, AUPRC {point.score:.4f}")
print("gaps", " ".join(f"{model.certificate.gap:.0e}" for model in path.models))

# %%
# The vertical lines are the best point, and the smallest C whose score is within one standard
# error of the best: far fewer features, with nearly the same score.

points = path.points
figure, (up, down) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
up.errorbar(
    [p.C for p in points], [p.score for p in points], [p.se for p in points], fmt=".-", capsize=3
)
up.set(ylabel="AUPRC in 5 folds", xscale="log")
down.plot([p.C for p in points], [p.active for p in points], ".-")
down.set(xlabel="C", ylabel="features in the model")
for axes in up, down:
    axes.axvline(path.best.C, color="grey", linestyle=":", label="best")
    axes.axvline(path.one_se.C, color="grey", linestyle="--", label="one standard error")
up.legend()
plt.show()
