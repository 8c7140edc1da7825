"""Train on features that you define with a class that makes columns, and explain a prediction.

python examples/own_features.py [PICTURE.svg]    (the picture needs the extra "report")
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from generators.thresholds import Thresholds  # in a module, where a saved model can find it
from sklearn.datasets import load_diabetes

import fcl


def main(pictures):
    X, y = load_diabetes(return_X_y=True)
    test = np.arange(len(X)) % 4 == 0
    # 1[x_j > q] for 100 quantiles q of each of the 10 columns
    family = Thresholds(n=100)
    data = fcl.open_data(X[~test], y=y[~test])
    result = fcl.train(data, family, C=1e-3, loss="squared", driver="inline", memory="1GiB")

    gap = result.certificate.gap
    print(f"{len(result.model.ids)} features selected, relative gap {gap:.1e} over all features")
    for feature in result.model.describe(top=5):
        print(f"{feature.weight:+8.2f}  {feature.feature}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.fcl")
        result.model.save(path)
        # Loading runs no code from a file: import its module first, or name it in trusted=[...].
        model = fcl.load_model(path)
        for picture in pictures:
            draw_effects(path, fcl.open_data(X[test], y=y[test]), picture)
    error = np.abs(model.margins(X[test]) - y[test]).mean()
    constant = np.abs(y[~test].mean() - y[test]).mean()
    print(f"mean absolute error on held-out rows {error:.1f}; of a constant {constant:.1f}")

    why = model.explain(X[test], top=4)
    print(f"held-out row 1: measured {y[test][1]:.1f}, predicted {why.margins[1]:.1f}")
    print(f"{model.intercept:+8.2f}  intercept")
    for part in why.row(1):
        print(f"{part.contribution:+8.2f}  {part.feature}")
    print(f"{why.others[1]:+8.2f}  all other features")


def draw_effects(path, data, picture):
    """Write the picture of the features that move the predictions most."""
    from fcl.report.make import make_report

    Path(picture).write_text(make_report(path, data).plots["effects.svg"], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
