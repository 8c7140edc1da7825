"""How far from the optimum are the models of other programs? One certificate for each.

python examples/any_model.py

Needs scikit-learn 1.8, in which l1_ratio alone asks LogisticRegression for the L1 penalty.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler

import fcl

C = 0.1


def main():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    data = fcl.open_data(X, y=y)
    optimum = fcl.train(data, "columns", C=C, tol=1e-6).model
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


if __name__ == "__main__":
    main()
