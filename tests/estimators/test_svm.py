"""`DPSVMClassifier`: what it minimises, without noise and with it."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.svm import LinearSVC

from skdp import DPSVMClassifier
from skdp.estimators.svm import Hinge, SquaredHinge

X, Y = make_blobs(600, 2, centers=[(-1, 0), (1, 0), (0, 1.5)], cluster_std=0.5, random_state=0)


def test_the_loss_is_the_margin_that_is_missing():
    outputs = torch.tensor([[2.0, 0.5, -1.0], [0.0, 0.25, 0.0], [1.0, 3.0, 0.0]])
    targets = torch.tensor([0, 1, 2])
    assert Hinge()(outputs, targets).tolist() == [0.0, 0.75, 4.0]
    assert SquaredHinge()(outputs, targets).tolist() == [0.0, 0.5625, 16.0]


@pytest.mark.parametrize(("n_classes", "loss"), [(2, "hinge"), (3, "hinge"), (3, "squared_hinge")])
def test_without_noise_it_is_a_support_vector_machine_and_with_it_nearly(n_classes, loss):
    rows = n_classes > Y
    x, y, facts = X[rows], Y[rows], {"classes": range(n_classes), "n_samples": int(rows.sum())}
    exact = LinearSVC(multi_class="crammer_singer", max_iter=10**5, random_state=0).fit(x, y)
    free = DPSVMClassifier(float("inf"), loss=loss, random_state=0, **facts).fit(x, y)
    assert (free.predict(x) == exact.predict(x)).mean() > 0.98
    assert free.decision_function(x).shape == exact.decision_function(x).shape
    private = DPSVMClassifier(3.0, loss=loss, **facts).fit(x, y)
    assert private.score(x, y) > exact.score(x, y) - 0.05
    assert not hasattr(private, "predict_proba")
    with pytest.raises(ValueError, match="one class"):
        private.fit(x, np.eye(3)[y])
