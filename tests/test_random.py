import copy
import os
import pickle
from fractions import Fraction
from unittest import mock

import mpmath
import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from skdp.fitting import streams as of_streams
from skdp.fitting.streams import MANY, SecureStream, Streams, key_stream, seed_material


def test_unseeded_streams_differ():
    a, b = Streams()("noise").normal(8), Streams()("noise").normal(8)
    assert not (a == b).any()


N_NORMALS = [100_000, MANY - 1]  # many and few are made in different ways


def normals(seed, size, n):
    stream = Streams(seed)("noise")
    return np.concatenate([stream.normal(size) for _ in range(-(-n // size))])


@pytest.mark.parametrize("size", N_NORMALS)
def test_the_normals_are_standard_normal(size):
    # KS at level 1e-6; a scale of 2/3 or 3/2 is rejected
    draws = normals(b"law", size, 100_000)
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(draws * wrong, "norm").pvalue < 1e-6


def chi_square(counts, expected):
    return stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue


@pytest.mark.parametrize("size", N_NORMALS)
def test_a_million_normals_fall_into_cells_as_they_should(size):
    """1000 cells of equal probability; the tails beyond 3, 3.5, 4 and 4.5 on both sides."""
    draws = normals(b"cells", size, 10**6)
    counts = np.bincount((stats.norm.cdf(draws) * 1000).astype(int), minlength=1000)
    assert chi_square(counts, np.ones(1000)) > 1e-6
    edges = np.array([-np.inf, -4.5, -4, -3.5, -3, 3, 3.5, 4, 4.5, np.inf])
    expected = np.diff(stats.norm.cdf(edges))
    assert chi_square(np.histogram(draws, edges)[0], expected) > 1e-6
    flat = stats.t(30).rvs(10**6, random_state=0)
    assert chi_square(np.histogram(flat, edges)[0], expected) < 1e-6


def test_many_normals_are_uncorrelated_and_so_are_their_squares():
    """At lags up to 10, over the chunks' bounds, between calls; six deviations of the estimate."""
    size = 40_000
    stream = Streams(b"lags")("noise")
    calls = np.stack([stream.normal(size) for _ in range(25)])
    bound = 6 / np.sqrt(calls.size - 25 * 10)
    for values in (calls, (calls**2 - 1) / np.sqrt(2)):
        for lag in (*range(1, 11), 2**14, 2**15):
            products = values[:, lag:] * values[:, :-lag]
            assert abs(products.mean()) < 6 / np.sqrt(products.size)
        assert abs((values[1:] * values[:-1]).mean()) < 6 / np.sqrt(24 * size)
    smooth = calls[:, 1:] + 0.02 * calls[:, :-1]  # a correlation of .02 is seen
    assert (smooth[:, 1:] * smooth[:, :-1]).mean() > bound


@pytest.mark.thorough
def test_pairs_have_uniform_angles_to_the_last_bits_of_the_table_and_beyond():
    """Angle and radius in 64 by 64 cells; where in a cell of the table an angle is."""
    z = normals(b"pairs", 100_000, 2 * 10**6).view(np.complex128)
    turns = (np.angle(z) / (2 * np.pi)) % 1.0
    radii = np.exp(-(np.abs(z) ** 2) / 2)
    cells = (turns * 64).astype(int) * 64 + (radii * 64).astype(int)
    assert chi_square(np.bincount(cells, minlength=4096), np.ones(4096)) > 1e-6
    for bits in (13, 20, 30):
        assert stats.kstest((turns * 2**bits) % 1.0, "uniform").pvalue > 1e-6


def test_purposes_have_streams_of_their_own():
    streams = Streams(b"one fit")
    assert not (streams("noise").normal(8) == streams("sampling").normal(8)).any()


@pytest.mark.parametrize("make", [Streams, lambda: Streams()("noise")])
def test_no_secret_leaves_through_a_pickle_or_a_copy(make):
    secret = make()
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            leak(secret)


def test_a_forked_child_never_repeats_its_parents_noise():
    stream, streams = Streams(b"parent")("noise"), Streams(b"parent")
    expected = Streams(b"parent")("noise").normal(4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        drawn = np.concatenate([stream.normal(4), streams("noise").normal(4)])
        os.write(write, drawn.tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    drawn = np.frombuffer(os.read(read, 1024))
    os.close(read)
    os.close(write)
    assert len(drawn) == 8
    assert not np.isin(drawn, expected).any()
    np.testing.assert_array_equal(stream.normal(4), expected)


def test_a_forked_child_with_its_parents_number_has_noise_of_its_own(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in a namespace of its own
    test_a_forked_child_never_repeats_its_parents_noise()


def test_a_forked_child_has_many_normals_of_its_own():
    stream = Streams(b"parent")("noise")
    expected = Streams(b"parent")("noise").normal(MANY)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child
        os.write(write, stream.normal(MANY).tobytes())
        os._exit(0)
    with os.fdopen(read, "rb") as pipe:
        os.close(write)
        drawn = np.frombuffer(pipe.read())
    os.waitpid(child, 0)
    assert len(drawn) == MANY
    assert not np.isin(drawn, expected).any()
    np.testing.assert_array_equal(stream.normal(MANY), expected)


def test_seed_material_separates_everything_that_affects_the_queries():
    X = np.arange(6.0).reshape(3, 2)
    base = seed_material(0, "Class 1.0", {"a": 1, "b": 2}, X)
    neighbour = X.copy()
    neighbour[0, 0] = -0.0  # equal to 0.0, and still another data set
    others = [
        seed_material(1, "Class 1.0", {"a": 1, "b": 2}, X),
        seed_material(0, "Other 1.0", {"a": 1, "b": 2}, X),
        seed_material(0, "Class 1.0", {"a": 1, "b": 3}, X),
        seed_material(0, "Class 1.0", {"a": 1}, X),
        seed_material(0, "Class 1.0", {"a": 1, "b": 2}, X.reshape(2, 3)),
        seed_material(0, "Class 1.0", {"a": 1, "b": 2}, X.astype(np.float32)),
        seed_material(0, "Class 1.0", {"a": 1, "b": 2}, neighbour),
        seed_material(0, "Class 1.0", {"a": 1, "b": 2}, X, X),
    ]
    assert len({base, *others}) == len(others) + 1
    assert seed_material(0, "Class 1.0", {"b": 2, "a": 1}, X.copy()) == base


def test_a_stream_is_handed_out_once():
    streams = Streams(b"one fit")
    streams("noise")
    with pytest.raises(RuntimeError, match="handed out"):
        streams("noise")


# key, counter, key stream: FIPS 197, appendix C.1; SP 800-38A, F.5.1 (plaintext xor ciphertext)
VECTORS = [
    (bytes(range(16)).hex(), bytes(range(0, 256, 17)).hex(), "69c4e0d86a7b0430d8cdb78070b4c55a"),
    (
        "2b7e151628aed2a6abf7158809cf4f3c",
        "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        "ec8cdf7398607cb0f2d21675ea9ea1e4362b7c3c6773516318a077d7fc5073ae"
        "6a2cc3787889374fbeb4c81b17ba6c44e89c399ff0f198c6d40a31db156cabfe",
    ),
]


@pytest.mark.parametrize(("key", "counter", "stream"), VECTORS)
def test_the_key_stream_is_aes_128_in_counter_mode(key, counter, stream):
    key, counter, stream = map(bytes.fromhex, (key, counter, stream))
    assert key_stream(key, counter).update(bytes(len(stream))) == stream


def test_the_generator_is_aes_128_in_counter_mode():
    key, counter, block = map(bytes.fromhex, VECTORS[0])
    stream = AESCounter(
        key=int.from_bytes(key, "little"), counter=int.from_bytes(counter, "little")
    )
    assert stream.random_raw(2).astype("<u8").tobytes() == block


def test_words_are_the_key_stream_of_a_key_of_their_own_each_once():
    key = bytes(range(16))
    stream = SecureStream(key)
    words = [stream.words(np.empty(n, dtype=np.uint64)) for n in (3, 1, 2**14, 0, 500)]
    words = np.concatenate(words)
    again = key_stream(of_streams.hashed(key, b"words")[:16]).update(bytes(words.nbytes))
    np.testing.assert_array_equal(words, np.frombuffer(again, dtype=np.uint64))
    assert len(np.unique(words)) == len(words)
    raw = stream.generator.bit_generator.random_raw(len(words))
    assert not np.isin(raw, words).any()


@pytest.mark.parametrize("size", [MANY, MANY + 1, 2**15 + 3])
def test_many_normals_use_each_word_once(size):
    drawn = []
    words = SecureStream.words

    def spied(stream, out):
        drawn.append(words(stream, out).copy())
        return out

    with mock.patch.object(SecureStream, "words", spied):
        stream = SecureStream(bytes(16))
        first, second = stream.normal(size), stream.normal(size)
    n_pairs = (size + 1) // 2
    assert 4 * n_pairs <= sum(map(len, drawn)) < 4 * n_pairs + 20  # a few for large radii
    assert len(np.unique(np.concatenate(drawn))) == sum(map(len, drawn))
    assert not np.isin(first, second).any()
    assert len(np.unique(first)) == size


def test_what_has_been_returned_is_never_overwritten():
    stream = Streams(b"memory")("noise")
    first = stream.normal((2, MANY))
    kept = first.copy()
    stream.normal((2, MANY))
    np.testing.assert_array_equal(first, kept)


def pairs_of(k, angle, more):
    """What the transform makes of given words; ``more`` stands for all that it asks for later."""
    given = iter([k, angle])

    def words(out):
        out[:] = next(given, more)

    return of_streams._BoxMuller().pairs(len(k), words)


def exactly(k, angle, more):
    """The pair that words (k, angle) and, below 2^-20, ``more`` stand for, in 60 digits."""
    with mpmath.workdps(60):
        u = mpmath.mpf(k >> 1)
        if u < 2**43:
            u += mpmath.mpf((more >> 11) + 1) / 2**53
        signed = (angle >> 51 << 51) + (angle + 2**50) % 2**51 - 2**50
        radius, turn = mpmath.sqrt(-2 * mpmath.log(u / 2**63)), 2 * mpmath.pi * signed / 2**64
        return radius * mpmath.cos(turn), radius * mpmath.sin(turn)


def test_each_pair_is_that_of_its_words_but_for_the_rounding_of_doubles():
    """docs/privacy.md, section 8: 1.5e-15 of the radius, of a cell of the grid some 1e-9."""
    rng = np.random.default_rng(0)
    ends = np.array([0, 1, 2**43, 2**44, 2**50 - 1, 2**63, 2**64 - 2**40], dtype=np.uint64)
    k = np.concatenate([np.repeat(ends, len(ends)), rng.integers(2**64, size=300, dtype=np.uint64)])
    angle = np.concatenate(
        [np.tile(ends, len(ends)), rng.integers(2**64, size=300, dtype=np.uint64)]
    )
    more = int(rng.integers(2**63))
    pairs = pairs_of(k, angle, more)
    for z, *bits in zip(pairs, k.tolist(), angle.tolist(), strict=True):
        for found, exact in zip((z.real, z.imag), exactly(*bits, more), strict=True):
            assert abs(found - exact) < 1.5e-15 * max(abs(z), 1.0)


def test_the_cut_off_tail_costs_what_the_page_says():
    """docs/privacy.md, section 8: u ≥ 2^-116, for 10^12 numbers at ε = 10."""
    radius = pairs_of(np.zeros(1, np.uint64), np.zeros(1, np.uint64), 0)
    assert abs(radius[0]) == pytest.approx(np.sqrt(2 * 116 * np.log(2)), rel=1e-15)
    lost = Fraction(10**12, 2) / 2**116  # P(a radius is larger), times the number of pairs
    cost = lost * (1 + Fraction(np.exp(10)))
    assert cost < Fraction(14, 10**20)  # 1e-3 of a δ of 1.4e-16
    short = Fraction(1, 2**53) * 10**12 / 2  # 53 bits alone would not do
    assert short > Fraction(1, 10**15)
