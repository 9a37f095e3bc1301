"""What must work wherever skdp has been installed: run by `.ci/wheel`, with the wheel alone."""

import pickle
import time

start = time.perf_counter()
import skdp  # noqa: E402

imported = time.perf_counter() - start

import numpy as np  # noqa: E402
import sklearn  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 3))
y = (X[:, 0] + 0.3 * rng.standard_normal(400) > 0).astype(int)
FACTS = {"epsilon": 5.0, "delta": 1e-5, "classes": [0, 1]}
MODELS = [
    skdp.DPVariationalLogisticRegression(**FACTS),
    skdp.DPVariationalLogisticRegression(**FACTS, secure=True),
    skdp.DPSGDClassifier(**FACTS, max_iter=20),
    skdp.DPSGLDClassifier(**FACTS, max_iter=20),
    skdp.OPSPosteriorSampler(**FACTS),
]

for model in MODELS:
    model.set_params(n_samples=len(X))
    pipeline = make_pipeline(skdp.BoundedScaler([-1] * 3, [1] * 3), model)
    with skdp.PrivacyLedger() as ledger:
        pipeline.fit(X, y)
    report = skdp.privacy_of(pipeline)
    assert len(ledger.entries) == 1
    assert report.valid
    assert report.epsilon <= 5.0
    kept = pickle.loads(pickle.dumps(pipeline))
    assert np.array_equal(kept.predict_proba(X), pipeline.predict_proba(X))
    print(f"{type(model).__name__}: accuracy {pipeline.score(X, y):.2f}, {report.epsilon=:.3f}")

scaler = skdp.DPStandardScaler([-1] * 3, [1] * 3)
split = skdp.split_budget(make_pipeline(scaler, MODELS[0]), epsilon=5.0, delta=1e-5).fit(X, y)
assert skdp.privacy_of(split).epsilon <= 5.0
with skdp.PrivacyLedger() as ledger:
    GridSearchCV(MODELS[0], {"epsilon": [1.0, 2.0]}, cv=2).fit(X, y)
assert len(ledger.entries) == 5
print(f"skdp {skdp.__version__}, scikit-learn {sklearn.__version__}; import {imported:.2f} s; good")
