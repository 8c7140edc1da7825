"""Select from all products of two columns of a table, in a scikit-learn pipeline and grid search.

python examples/table_sklearn.py    (also needs pandas)
"""

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcl import FCLClassifier


def main():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    train_X, test_X, train_y, test_y = train_test_split(X, y, random_state=0, stratify=y)
    scale = StandardScaler().set_output(transform="pandas")  # keeps the names of the columns
    pipeline = make_pipeline(scale, FCLClassifier("products:degree=2"))
    search = GridSearchCV(pipeline, {"fclclassifier__C": [0.03, 0.1]}, cv=3)
    search.fit(train_X, train_y)

    model = search.best_estimator_[-1]
    print(f"C = {model.C}, accuracy on held-out rows {search.score(test_X, test_y):.3f}")
    print(f"{model.n_nonzero_} products selected, relative gap {model.dual_gap_:.1e}")
    strongest = abs(model.coef_[0]).argsort()[::-1][:5]
    for j in strongest:
        print(f"{model.coef_[0][j]:+8.3f}  {model.feature_names_out_[j]}")


if __name__ == "__main__":
    main()
