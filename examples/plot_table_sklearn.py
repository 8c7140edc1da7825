"""
Products of columns in a scikit-learn pipeline
==============================================

``FCLClassifier`` selects from all products of two columns of a table, in a pipeline and a grid
search.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcl import FCLClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
train_X, test_X, train_y, test_y = train_test_split(X, y, random_state=0, stratify=y)
scale = StandardScaler().set_output(transform="pandas")  # keeps the names of the columns
pipeline = make_pipeline(scale, FCLClassifier("products:degree=2"))
search = GridSearchCV(pipeline, {"fclclassifier__C": [0.03, 0.1]}, cv=3)
search.fit(train_X, train_y)

model = search.best_estimator_[-1]
print(f"C = {model.C}, accuracy on held-out rows {search.score(test_X, test_y):.3f}")
print(f"{model.n_nonzero_} products selected, relative gap {model.dual_gap_:.1e}")

# %%
# The names of the columns are in the names of the features.

weights = model.coef_[0]
strongest = abs(weights).argsort()[-10:]
for j in strongest[::-1]:
    print(f"{weights[j]:+8.3f}  {model.feature_names_out_[j]}")

figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
colours = ["tab:blue" if weights[j] > 0 else "tab:red" for j in strongest]
axes.barh([model.feature_names_out_[j] for j in strongest], weights[strongest], color=colours)
axes.set(xlabel="weight")
plt.show()
