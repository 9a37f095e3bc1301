"""Modules of `benchmarks/zoo.py`: each is trained rightly, or refused in words that say why."""

import pytest
import torch
import zoo

TAKEN = ("book-keeping", "vmap")
BODIES = zoo.BODIES | zoo.BROKE
CHECKPOINTS = {"checkpoint, reentrant", "checkpoint in training"}


@pytest.mark.parametrize("name", zoo.FAMILIES)
def test_a_layer_is_trained_rightly(name):
    torch.manual_seed(0)
    assert zoo.examined(zoo.FAMILIES[name]()).outcome in TAKEN


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_trained_rightly(name):
    verdict = zoo.examined(BODIES[name])
    assert verdict.outcome in (("refused",) if name in CHECKPOINTS else TAKEN), verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.MIXES | zoo.REFUSED)
def test_what_has_no_gradient_of_a_record_is_refused(name):
    verdict = zoo.examined((zoo.MIXES | zoo.REFUSED)[name])
    assert verdict.outcome == "refused"
    assert "CRASH" not in verdict.said


def test_a_wrong_gradient_and_a_missing_one_are_seen(monkeypatch):
    species = zoo.BODIES["perceptron"]
    piece = zoo.NetworkClippedSum.piece
    monkeypatch.setattr(zoo.NetworkClippedSum, "piece", lambda *given: 1.001 * piece(*given))
    assert zoo.examined(species).outcome == "wrong"
    monkeypatch.setattr(zoo.NetworkClippedSum, "piece", lambda *given: 0 * piece(*given))
    assert zoo.examined(species).outcome == "learns nothing"
