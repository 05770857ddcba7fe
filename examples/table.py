"""A table: how a disease goes on in a year (442 patients of scikit-learn), at hospitals that see other ages each."""

import numpy as np
from sklearn.datasets import load_diabetes

import fedmuon_app as fm
from fedmuon_app.models.mlp import MLP

X, y = load_diabetes(return_X_y=True)
X, y = (X / X.std(0)).astype(np.float32), ((y - y.mean()) / y.std()).astype(np.float32)
train, test = np.arange(len(X)) % 5 != 4, np.arange(len(X)) % 5 == 4
by_age = np.array_split(np.flatnonzero(train)[np.argsort(X[train, 0])], 6)  # the first column is the age

run = fm.train(
    MLP(num_classes=1, in_features=10, widths=[32]),
    clients=[(X[patients], y[patients]) for patients in by_age],
    test=(X[test], y[test]),
    task="regression",
    rounds=60,
    lr=0.003,
    batch_size=16,
    overrides=["algorithm.schedule=cosine"],
)
print(run.log[["round", "test_loss", "test_mae", "train_loss"]].to_string(index=False))
