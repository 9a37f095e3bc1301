import threading

import pytest

from skdp import DPVariationalLogisticRegression
from skdp.privacy import BudgetExceededError, PrivacyLedger, epsilon_of_event
from skdp.privacy.events import dp_sgd_event
from skdp.privacy.ledger import charge

EVENT = dp_sgd_event(4.0, 1.0, 16)  # ε = 4.377 at δ = 1e-5


def test_the_total_is_composed_by_the_accountant():
    ledger = PrivacyLedger()
    ledger.spend(EVENT, label="first")
    ledger.spend(EVENT, label="second")
    both = epsilon_of_event(dp_sgd_event(4.0, 1.0, 32), 1e-5)
    assert ledger.total(1e-5) == both
    assert [entry.label for entry in ledger.entries] == ["first", "second"]


def test_the_ceiling_refuses_and_charges_nothing():
    ledger = PrivacyLedger(epsilon=5.0, delta=1e-5)
    ledger.spend(EVENT, label="first")
    with pytest.raises(BudgetExceededError, match=r"ceiling epsilon=5"):
        ledger.spend(EVENT, label="second")
    assert len(ledger.entries) == 1


def test_an_infinite_release_exceeds_any_ceiling(two_blobs):
    X, y = two_blobs
    classifier = DPVariationalLogisticRegression(epsilon=float("inf"), max_iter=2)
    with PrivacyLedger(epsilon=1e6, delta=1e-5) as ledger, pytest.raises(BudgetExceededError):
        classifier.fit(X, y)
    assert ledger.entries == ()
    assert not hasattr(classifier, "coef_")


def test_a_refused_refit_leaves_the_fitted_model_as_it_was(two_blobs):
    X, y = two_blobs
    classifier = DPVariationalLogisticRegression().fit(X, y)
    before = dict(vars(classifier))
    with PrivacyLedger(epsilon=0.5, delta=1e-5), pytest.raises(BudgetExceededError):
        classifier.fit(X[:, :2], y)
    assert vars(classifier) == before


def test_a_fit_that_fails_half_way_stays_charged(two_blobs, monkeypatch):
    from skdp.engine.linear_sums import LinearClippedSum

    calls = []

    def broken(self, theta, batch):
        calls.append(len(ledger.entries))
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearClippedSum, "__call__", broken)
    with PrivacyLedger() as ledger, pytest.raises(KeyboardInterrupt):
        DPVariationalLogisticRegression().fit(*two_blobs)
    assert calls == [1]  # written before the first row was touched
    assert ledger.total(1e-5) == pytest.approx(1.0)


def test_nested_ledgers_all_record_and_all_may_refuse():
    with PrivacyLedger() as outer, PrivacyLedger(epsilon=5.0, delta=1e-5) as inner:
        charge(EVENT, label="fit", neighboring_relation="zero_out")
        with pytest.raises(BudgetExceededError):
            charge(EVENT, label="fit", neighboring_relation="zero_out")
    assert len(outer.entries) == len(inner.entries) == 1
    charge(EVENT, label="outside", neighboring_relation="zero_out")
    assert len(outer.entries) == 1


def test_fits_in_other_threads_are_charged():
    with PrivacyLedger() as ledger:
        threads = [
            threading.Thread(
                target=charge,
                args=(EVENT,),
                kwargs={"label": "t", "neighboring_relation": "zero_out"},
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ledger.entries) == 8


def test_statements_about_different_neighbours_do_not_add_up():
    ledger = PrivacyLedger(neighboring_relation="replace_one")
    with pytest.raises(ValueError, match="neighboring_relation"):
        ledger.spend(EVENT, label="fit", neighboring_relation="zero_out")


@pytest.mark.filterwarnings("ignore:.*random_state:skdp.PrivacyWarning")
def test_a_seeded_fit_makes_the_total_nominal_on_disk_too(two_blobs, tmp_path):
    model = DPVariationalLogisticRegression(max_iter=2)
    with PrivacyLedger(path=tmp_path / "ledger") as ledger:
        model.fit(*two_blobs)
        assert ledger.valid
        model.set_params(random_state=0).fit(*two_blobs)
    assert not ledger.valid
    assert "1 only nominal" in repr(ledger)
    assert not PrivacyLedger(path=tmp_path / "ledger").valid
