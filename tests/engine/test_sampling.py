from itertools import pairwise

import numpy as np
import pytest
from bundles import bundled
from processes import in_child
from scipy import stats

from skdp.engine import sampling as module
from skdp.engine.sampling import BLOCK, Bits, Draw, FullBatch, PoissonSampling, counters, sampling
from skdp.fitting.streams import Streams


def draw(n_rows, rate, n_steps, seed=b"sampling"):
    return list(PoissonSampling(rate, n_steps).batches(n_rows, Streams(seed)("sampling")))


def shuffled(n, q, steps, rng):
    """Epochs over a shuffled order, in batches of a fixed size."""
    size = round(n * q)
    epochs = [rng.permutation(n).reshape(-1, size) for _ in range(steps // (n // size))]
    return np.concatenate(epochs)


def of_fixed_size(n, q, steps, rng):
    """A batch of a fixed size each step, without replacement."""
    return np.array([rng.permutation(n)[: round(n * q)] for _ in range(steps)])


def is_poisson(batches, n, q):
    """Dispersion of batch sizes, and of how often each record takes part.

    Records of a step are independent, and steps are: Σ(k − m)²/(m(1 − q)) is close to χ² for both,
    but 0 for batches of a fixed size, and for shuffled epochs.
    """
    sizes = np.array([len(batch) for batch in batches])
    counts = np.bincount(np.concatenate(batches), minlength=n)
    for found, trials, freedom in ((sizes, n, len(batches)), (counts, len(batches), n)):
        statistic = ((found - trials * q) ** 2).sum() / (trials * q * (1 - q))
        low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], freedom)
        if not low < statistic < high:
            return False
    return True


def test_sizes_of_batches_and_participation_are_binomial():
    assert is_poisson(draw(400, 0.1, 2000), 400, 0.1)


@pytest.mark.thorough
def test_shuffling_and_batches_of_a_fixed_size_are_found_out_each_time(figure):
    n, q, steps, rng = 400, 0.1, 200, np.random.default_rng(0)
    for wrong in (shuffled, of_fixed_size):
        found = sum(not is_poisson(wrong(n, q, steps, rng), n, q) for _ in range(200))
        figure(f"{wrong.__name__.replace('_', ' ')}: found {found} of 200 times")
        assert found == 200
    right = sum(is_poisson(draw(n, q, steps, bytes([i])), n, q) for i in range(200))
    figure(f"skdp's batches: accepted {right} of 200 times")
    assert right == 200


def test_pairs_take_part_together_as_often_as_independent_coins():
    steps, q = 4000, 0.3
    together = sum({0, 1} <= set(batch.tolist()) for batch in draw(6, q, steps))
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], steps, q * q)
    assert low <= together <= high


def test_no_record_twice_and_all_in_range():
    for batch in draw(50, 0.5, 200):
        assert len(np.unique(batch)) == len(batch)
        assert batch.size == 0 or (batch.min() >= 0 and batch.max() < 50)


def test_empty_batches_are_kept():
    batches = draw(3, 0.05, 500)
    assert len(batches) == 500
    empty = sum(batch.size == 0 for batch in batches)
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], 500, 0.95**3)
    assert low <= empty <= high


def test_a_forked_child_draws_batches_of_its_own():
    batches = PoissonSampling(0.1, 100).batches(400, Streams(b"fork")("sampling"))
    next(batches)  # more of them are known by now
    _, rows = in_child(lambda pipe: pipe.send([next(batches) for _ in range(3)]))
    for ours, theirs in zip(batches, rows, strict=False):
        assert ours.tolist() != theirs.tolist()


@pytest.mark.parametrize(("n_rows", "rate"), [(300, 0.1), (2 * BLOCK + 500, 3e-3)])
def test_rows_are_a_function_of_the_step_and_of_their_number_alone(n_rows, rate):
    scheme, streams = PoissonSampling(rate, 4), [Streams(b"s")("sampling") for _ in range(2)]
    rng = np.random.default_rng(0)
    for batch, drawn in zip(
        scheme.batches(n_rows, streams[0]), scheme.draws(streams[1]), strict=True
    ):
        cuts = np.sort([0, *rng.integers(0, n_rows, 4), BLOCK, 2 * BLOCK, n_rows]).clip(0, n_rows)
        parts = [drawn.between(*ends) for ends in pairwise(cuts)]
        assert np.concatenate(parts).tolist() == batch.tolist()
        assert drawn.between(0, n_rows).tolist() == batch.tolist()  # and again
        longer = drawn.between(0, n_rows + BLOCK)
        assert longer[longer < n_rows].tolist() == batch.tolist()


def test_blocks_of_rows_and_steps_do_not_share_coins():
    drawn, other = Draw(0.01, bytes(16)), Draw(0.01, bytes(15) + b"1")
    first, second = drawn.between(0, BLOCK), drawn.between(BLOCK, 2 * BLOCK) - BLOCK
    expected = 0.01**2 * BLOCK  # rows that two lines have in common
    for a, b in ((first, second), (first, other.between(0, BLOCK))):
        assert len(np.intersect1d(a, b)) <= stats.poisson.ppf(1 - 1e-6, expected)


def test_gaps_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    whole = Draw(0.3, b"k" * 16).between(0, BLOCK)
    monkeypatch.setattr(module, "_SPARE", -50.0)  # far too few at first
    assert Draw(0.3, b"k" * 16).between(0, BLOCK).tolist() == whole.tolist()


def test_further_bits_are_not_those_of_gaps():
    bits, others = Bits(bytes(16)), Bits(bytes(16))
    words = set(bits.words(counters(range(100), [0, 1, 2])).tolist())
    assert len(words) == 600
    more = [bits.more(block)(1 << 62) for block in (0, 1, 1, 2)]
    assert more == [others.more(block)(1 << 62) for block in (0, 1, 1, 2)]
    assert len(words.union(more)) == 604
    assert max(words) < 2**62


def test_a_key_is_in_no_repr():
    assert "k" * 5 not in repr(Draw(0.5, b"k" * 16))


def test_rate_one_is_the_full_batch():
    assert sampling(1.0, 3) == FullBatch(3)
    assert sampling(0.5, 3) == PoissonSampling(0.5, 3)
    assert list(FullBatch(2).batches(5, Streams()("sampling"))) == [slice(0, 5)] * 2


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan"), None])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(ValueError, match="rate="):
        PoissonSampling(rate, 1)


@bundled("n_steps", [0, -1, 1.5, None])
@bundled("scheme", [FullBatch, lambda n_steps: PoissonSampling(0.5, n_steps)])
def test_a_run_without_steps_is_refused(scheme, n_steps):
    with pytest.raises(ValueError, match="n_steps="):
        scheme(n_steps)
