"""Every fit is counted, wherever it runs, and a ceiling stops the one that would break it."""

import copy
import multiprocessing
import os
import pickle
import tempfile
import threading
import time

import joblib
import numpy as np
import pytest
from bundles import bundled
from processes import in_child, started
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline

from skdp import BoundedScaler, DPSGDClassifier, DPVariationalLogisticRegression
from skdp.model_selection import PrivacyLedgerCallback
from skdp.privacy import BudgetExceededError, PrivacyLedger, _process_tree
from skdp.privacy.events import dp_sgd_event
from skdp.privacy.ledger import _open

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
GRID = {"prior_scale": [1.0, 2.0, 3.0]}
HAS_CALLBACKS = hasattr(GridSearchCV, "set_callbacks")
needs_callbacks = pytest.mark.skipif(not HAS_CALLBACKS, reason="no callbacks")
X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
Y = (X[:, 0] > 0).astype(int)


def classifier(epsilon=0.3, **parameters):
    return DPVariationalLogisticRegression(
        epsilon,
        **{"classes": [0, 1], "n_samples": 40, "max_iter": 1, "inference": "dpvi", **parameters},
    )


def search(n_jobs=None, estimator=None, **parameters):
    grid = (
        GRID
        if estimator is None
        else {f"{list(estimator.named_steps)[-1]}__prior_scale": [1, 2, 3]}
    )
    return GridSearchCV(estimator or classifier(), grid, cv=3, n_jobs=n_jobs, **parameters)


@pytest.fixture(params=["callback", "ledger"])
def counted(request):
    """Fit with a callback where scikit-learn has them, or inside a ledger; return the ledger."""

    def fit(estimator, *arguments):
        if request.param == "callback":
            callback = PrivacyLedgerCallback(*arguments)
            estimator.set_callbacks(callback).fit(X, Y)
            return callback.records
        with PrivacyLedger(*arguments) as ledger:
            estimator.fit(X, Y)
        return ledger.entries

    if request.param == "callback" and not HAS_CALLBACKS:
        pytest.skip("this scikit-learn has no callbacks")
    return fit


@pytest.fixture(autouse=True)
def forked_workers():
    """Workers of joblib are forked: those of its default backend import all packages anew."""
    with joblib.parallel_config("multiprocessing"):
        yield


@pytest.mark.parametrize("what", ["alone", "in workers", "in threads", "in a pipeline"])
def test_nine_fits_and_a_refit_are_ten(counted, what):
    steps = make_pipeline(BoundedScaler(), classifier()) if what == "in a pipeline" else None
    with joblib.parallel_backend("threading" if what == "in threads" else "multiprocessing"):
        assert len(counted(search(1 if what == "alone" else 2, steps))) == 10


@pytest.mark.thorough
def test_workers_of_the_default_backend_are_counted_if_they_are_older_than_the_ledger_too():
    with joblib.parallel_backend("loky"):
        search(2).fit(X, Y)  # joblib keeps its workers
        with PrivacyLedger() as ledger:
            search(2).fit(X, Y)
        search(2).fit(X, Y)  # and they forget it
        assert len(ledger.entries) == 10
        if HAS_CALLBACKS:
            callback, of_clones = PrivacyLedgerCallback(), PrivacyLedgerCallback()
            search(2).set_callbacks(callback).fit(X, Y)
            assert len(callback.records) == 10
            search(2).set_params(estimator=classifier().set_callbacks(of_clones)).fit(X, Y)
            assert len(of_clones.records) == 10


@pytest.mark.thorough
def test_the_total_is_that_of_ten_fits():
    with PrivacyLedger() as ledger:
        search(2).fit(X, Y)
    with PrivacyLedger() as alone:
        for _ in range(10):
            classifier().fit(X, Y)
    assert ledger.total(1e-5) == alone.total(1e-5)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_ceiling_of_one_lets_one_of_five_through(n_jobs):
    with PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        scores = cross_val_score(classifier(1.0), X, Y, cv=5, n_jobs=n_jobs)
    assert np.isfinite(scores).sum() == 1
    assert len(ledger.entries) == 1
    assert ledger.total(1e-5) <= 1.0


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_search_meets_the_ceiling_and_its_refit_is_refused(counted):
    one = GridSearchCV(classifier(1.0), {"prior_scale": [1.0]}, cv=4)
    with pytest.warns(FitFailedWarning, match="3 fits failed"), pytest.raises(BudgetExceededError):
        counted(one, 1.0, 1e-5)
    assert not hasattr(one.best_estimator_, "coef_")
    assert _open == []


MANY = {
    "cross_val_score": (lambda c: cross_val_score(c, X, Y, cv=3, n_jobs=2), 3),
    "cross_validate": (lambda c: cross_validate(c, X, Y, cv=4), 4),
    "cross_val_predict": (lambda c: cross_val_predict(c, X, Y, cv=3), 3),
    "learning_curve": (lambda c: learning_curve(c, X, Y, cv=2, train_sizes=[0.5, 1.0]), 4),
    "permutation_test": (lambda c: permutation_test_score(c, X, Y, cv=2, n_permutations=3), 8),
    "validation_curve": (
        lambda c: validation_curve(c, X, Y, param_name="prior_scale", param_range=[1, 2], cv=2),
        4,
    ),
    "randomized": (lambda c: RandomizedSearchCV(c, GRID, n_iter=2, cv=2).fit(X, Y), 5),
    "halving": (lambda c: HalvingGridSearchCV(c, GRID, cv=2, min_resources=20).fit(X, Y), 9),
    "halving random": (
        lambda c: HalvingRandomSearchCV(
            c, GRID, n_candidates=3, cv=2, min_resources=20, random_state=0
        ).fit(X, Y),
        9,
    ),
    "calibrated": (lambda c: CalibratedClassifierCV(c, cv=3).fit(X, Y), 3),
    "one vs rest": (lambda c: OneVsRestClassifier(c, n_jobs=2).fit(X, np.arange(60) % 3), 3),
    "one vs one": (lambda c: OneVsOneClassifier(c, n_jobs=2).fit(X, np.arange(60) % 3), 3),
    "multi-output": (lambda c: MultiOutputClassifier(c).fit(X, np.column_stack([Y, Y])), 2),
    "bagging": (
        lambda c: BaggingClassifier(clone(c).set_params(max_sample_weight=20), n_estimators=4).fit(
            X, Y
        ),
        4,
    ),
    "voting": (lambda c: VotingClassifier([("a", c), ("b", c)], n_jobs=2).fit(X, Y), 2),
    "stacking": (
        lambda c: StackingClassifier([("a", c)], final_estimator=classifier(), cv=3).fit(X, Y),
        5,
    ),
    "columns": (
        lambda c: make_pipeline(ColumnTransformer([("all", BoundedScaler(), [0, 1])]), c).fit(X, Y),
        1,
    ),
}


# A bagging classifier seeds its parts.
@pytest.mark.filterwarnings("ignore:.*random_state:skdp.PrivacyWarning")
@bundled("name", MANY)
def test_every_way_to_fit_is_counted(name):
    run, expected = MANY[name]
    with PrivacyLedger() as ledger:
        run(classifier(classes=None, n_samples=None))
    assert len(ledger.entries) == expected


@needs_callbacks
@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_a_callback_on_the_classifier_itself_goes_with_its_clones(backend):
    callback = PrivacyLedgerCallback()
    with joblib.parallel_backend(backend):
        search(2).set_params(estimator=classifier().set_callbacks(callback)).fit(X, Y)
    assert len(callback.records) == 10


@pytest.mark.thorough
@needs_callbacks
def test_a_callback_and_a_ledger_around_it_count_each_fit_once_each():
    callback = PrivacyLedgerCallback()
    with PrivacyLedger() as around:
        search(2).set_callbacks(callback).fit(X, Y)
    assert len(callback.records) == len(around.entries) == 10


@pytest.mark.thorough
def test_a_ledger_on_a_file_is_charged_once_by_workers(tmp_path):
    with PrivacyLedger(path=tmp_path / "ledger") as ledger:
        search(2).fit(X, Y)
    assert len(ledger.entries) == 10
    assert len(PrivacyLedger(path=tmp_path / "ledger").entries) == 10


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_local_dask_cluster_is_counted(tmp_path):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, host="127.0.0.1",
        dashboard_address=None, local_directory=tmp_path, silence_logs=50,
    )  # fmt: skip
    with cluster, distributed.Client(cluster), joblib.parallel_backend("dask"):
        with PrivacyLedger() as ledger:
            search().fit(X, Y)
        assert len(ledger.entries) == 10
        if HAS_CALLBACKS:
            callback = PrivacyLedgerCallback()
            search().set_callbacks(callback).fit(X, Y)
            assert len(callback.records) == 10


def forked(n):
    """Start so many forked processes, each with a fit."""
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=classifier().fit, args=(X, Y)) for _ in range(n)]
    for child in children:
        child.start()
    return children


def exit_codes(children):
    for child in children:
        child.join(60)
    return {child.exitcode for child in children}


def test_forked_children_count_on_a_ledger_in_memory():
    with PrivacyLedger() as ledger:
        assert exit_codes(forked(3)) == {0}
    assert len(ledger.entries) == 3


@pytest.mark.thorough
def test_a_child_that_is_forked_while_the_ledger_is_busy_does_not_hang():
    from skdp.privacy import ledger as module

    with PrivacyLedger() as ledger:
        held = threading.Event()

        def hold():
            with module._lock:
                held.set()
                time.sleep(1.0)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        ended = exit_codes(forked(1))
        thread.join()
    assert ended == {0}
    assert len(ledger.entries) == 1


def open_a_ledger(pipe):
    PrivacyLedger(epsilon=0.1, delta=1e-5).__enter__()
    pipe.send("open")
    time.sleep(60)


def test_the_announcement_of_a_killed_process_is_void_and_swept():
    child, pipe = started(open_a_ledger)
    pipe.recv()
    assert len(list(_process_tree.folder().glob(f"{child.pid}-*.open"))) == 1
    child.kill()
    child.join()
    with PrivacyLedger():
        pass
    assert not list(_process_tree.folder().glob(f"{child.pid}-*.open"))


def test_a_folder_of_someone_else_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(_process_tree, "_folder_name", lambda: str(tmp_path / "ledgers"))
    _process_tree.folder().chmod(0o777)
    with pytest.raises(OSError, match="not this user's own"), PrivacyLedger():
        pass
    assert _open == []


def test_entries_outlive_a_sweep_of_the_temporary_files():
    with PrivacyLedger() as ledger:
        classifier().fit(X, Y)
        os.unlink(ledger._file.path)
        classifier().fit(X, Y)
    assert len(ledger.entries) == 2


def test_a_ledger_in_memory_leaves_no_file():
    ledger = PrivacyLedger()
    with ledger:
        classifier().fit(X, Y)
    path = ledger._file.path
    assert path.exists()
    del ledger
    assert not path.exists()


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_the_same_ledger(copy_of):
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with copy_of(ledger):
        classifier().fit(X, Y)
    assert len(ledger.entries) == 1
    assert repr(copy_of(ledger)) == repr(ledger)


def test_clone_and_set_params_spend_nothing_and_refits_spend_again():
    with PrivacyLedger() as ledger:
        model = clone(classifier()).set_params(prior_scale=2.0)
        assert ledger.entries == ()
        model.fit(X, Y).fit(X, Y)
        pickle.loads(pickle.dumps(model)).predict(X)
    assert len(ledger.entries) == 2


def test_warm_starts_are_counted_and_reported_alike():
    model = DPSGDClassifier(
        epsilon=None, noise_multiplier=5.0, hidden_layer_sizes=(), max_iter=2, warm_start=True,
        sampling_rate=1.0, classes=[0, 1], n_samples=60,
    )  # fmt: skip
    with PrivacyLedger() as ledger:
        model.fit(X, Y).fit(X, Y)
    assert len(ledger.entries) == 2
    assert model.privacy_.epsilon == ledger.total(1e-5)


def test_predictions_and_draws_are_free():
    model = classifier().fit(X, Y)
    with PrivacyLedger() as ledger:
        model.predict_proba(X)
        model.sample_posterior(3)
        model.score(X, Y)
    assert ledger.entries == ()


@needs_callbacks
def test_a_callback_that_could_not_be_set_up_still_counts_the_next_time(tmp_path):
    callback = PrivacyLedgerCallback(epsilon=0.4, delta=1e-5, path=tmp_path / "ledger")
    model = make_pipeline(BoundedScaler(), classifier()).set_callbacks(callback)
    with PrivacyLedger(path=tmp_path / "ledger"), pytest.raises(ValueError, match="already open"):
        model.fit(X, Y)
    model.fit(X, Y)
    assert len(callback.records) == 1
    with pytest.raises(BudgetExceededError):
        model.fit(X, Y)


@pytest.mark.parametrize("change", ["the process moves", "the file is removed"])
def test_a_ledger_on_a_file_remembers(change, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with PrivacyLedger(epsilon=0.5, delta=1e-5, path="ledger") as ledger:
        classifier().fit(X, Y)
        if change == "the process moves":
            monkeypatch.chdir(tmp_path / "other")
        else:
            (tmp_path / "ledger").unlink()
        with pytest.raises(BudgetExceededError):
            classifier(0.4).fit(X, Y)
    assert len(ledger.entries) == 1
    assert not (tmp_path / "other" / "ledger").exists()


def test_one_file_under_two_names_is_one_ledger(tmp_path):
    first = PrivacyLedger(path=tmp_path / "a")
    os.link(tmp_path / "a", tmp_path / "b")
    with first, PrivacyLedger(path=tmp_path / "b") as second:
        classifier().fit(X, Y)
    assert len(first.entries) == len(second.entries) == 1


def leave(ledger):
    ledger.__exit__()


@pytest.mark.thorough
def test_a_forked_child_that_leaves_the_block_takes_nothing_with_it():
    context = multiprocessing.get_context("fork")
    with PrivacyLedger() as ledger:
        child = context.Process(target=leave, args=(ledger,))
        child.start()
        child.join()
        search(2).fit(X, Y)
    assert child.exitcode == 0
    assert len(ledger.entries) == 10


def test_threads_and_forks_do_not_wait_for_each_other(tmp_path):
    done = threading.Event()

    def charge():
        while not done.is_set():
            with PrivacyLedger(path=tmp_path / "other") as other:
                other.spend(dp_sgd_event(4.0, 1.0, 1), label="thread")

    with PrivacyLedger(path=tmp_path / "ledger") as ledger:
        thread = threading.Thread(target=charge)
        thread.start()
        ended = exit_codes(forked(6))
        done.set()
        thread.join(60)
    assert ended == {0}
    assert not thread.is_alive()
    assert len(ledger.entries) == 6


def fit_elsewhere(pipe, folder):
    os.environ["TMPDIR"], tempfile.tempdir = folder, None
    classifier().fit(X, Y)
    pipe.send(tempfile.gettempdir())


def test_a_child_with_another_folder_for_temporary_files_is_seen(tmp_path):
    with PrivacyLedger() as ledger:
        assert in_child(fit_elsewhere, str(tmp_path)) == (0, str(tmp_path))
    assert len(ledger.entries) == 1
