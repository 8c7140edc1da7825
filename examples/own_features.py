"""Train on features of your own: a class that makes columns is enough.

python examples/own_features.py
"""

import tempfile
from pathlib import Path

import numpy as np
from generators.thresholds import Thresholds  # in a module, so that a saved model finds it again
from sklearn.datasets import load_diabetes

import fcl


def main():
    X, y = load_diabetes(return_X_y=True)
    test = np.arange(len(X)) % 4 == 0
    # 1[x_j > q] for 100 quantiles q of each of the 10 columns
    family = Thresholds(n=100)
    data = fcl.open_data(X[~test], y=y[~test])
    result = fcl.train(data, family, C=1e-3, loss="squared", driver="inline", memory="1GiB")

    gap = result.certificate.gap
    print(f"{len(result.model.ids)} steps chosen, relative gap {gap:.1e} over all features")
    for feature in result.model.describe(top=5):
        print(f"{feature.weight:+8.2f}  {feature.feature}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.fcl")
        result.model.save(path)
        # a file runs no code: its module was imported above, or is named by trusted=[...]
        model = fcl.load_model(path)
    error = np.abs(model.margins(X[test]) - y[test]).mean()
    constant = np.abs(y[~test].mean() - y[test]).mean()
    print(f"mean error on held-out rows {error:.1f}, of the mean alone {constant:.1f}")


if __name__ == "__main__":
    main()
