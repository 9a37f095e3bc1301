"""What a new kind of mechanism has to say of itself, and what a relation answers."""

import json
from dataclasses import dataclass

import attrs
import pytest
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, LaplaceDpEvent, SelfComposedDpEvent

from skdp.privacy import epsilon_of_event
from skdp.privacy.accounting import least_bound
from skdp.privacy.events import _read
from skdp.privacy.terms import Term
from skdp.relations import RELATIONS, check_relation


@attrs.frozen
class CoinDpEvent(DpEvent):
    """A mechanism of pure ε, of which accountants know nothing else."""

    cost: float


@dataclass(frozen=True)
class CoinTerm(Term):
    cost: float
    count: int

    @property
    def noise_multiplier(self):
        return 1 / self.cost

    def pure(self, relation):
        return self.count * relation.factor * self.cost


@_read.register
def _(event: CoinDpEvent) -> Term:
    return CoinTerm(event.cost, 1)


def test_a_mechanism_is_accounted_by_what_its_term_defines():
    three = SelfComposedDpEvent(CoinDpEvent(0.25), 3)
    assert least_bound(three, 1e-5, "zero_out") == (pytest.approx(0.75, rel=1e-12), "pure")
    assert epsilon_of_event(three, 0.0, "replace_one") == pytest.approx(1.5, rel=1e-12)
    both = ComposedDpEvent([three, LaplaceDpEvent(4.0)])
    assert epsilon_of_event(both, 0.0) == pytest.approx(1.0, rel=1e-12)
    for accountant in ("gdp", "pld", "rdp"):
        with pytest.raises(ValueError, match=f"No accountant has a valid bound.*{accountant}"):
            epsilon_of_event(both, 1e-5, accountant=accountant)


@pytest.mark.parametrize(
    ("name", "factor", "n_is_public", "null_record"),
    [
        ("zero_out", 1.0, True, True),
        ("add_or_remove_one", 1.0, False, True),
        ("replace_one", 2.0, True, False),
    ],
)
def test_a_relation_is_a_string_that_answers_questions(name, factor, n_is_public, null_record):
    relation = check_relation(name)
    assert (relation.factor, relation.n_is_public) == (factor, n_is_public)
    assert relation.null_record == null_record
    assert (relation, repr(relation), json.dumps(relation)) == (name, repr(name), f'"{name}"')
    assert name in RELATIONS
