import copy
import os
import pickle

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from skdp._random import Streams, seed_material


def test_unseeded_streams_differ():
    a, b = Streams()("noise").normal(8), Streams()("noise").normal(8)
    assert not (a == b).any()


def test_the_normals_are_standard_normal():
    # KS at level 1e-6; a scale of 2/3 or 3/2 is rejected
    draws = Streams(b"law")("noise").normal(100_000)
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(draws * wrong, "norm").pvalue < 1e-6


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


def test_the_key_stream_is_aes_128_in_counter_mode():
    # FIPS 197, appendix C.1: key 00 01 … 0f, plaintext block 00 11 … ff
    key, counter = bytes(range(16)), bytes(range(0, 256, 17))
    stream = AESCounter(
        key=int.from_bytes(key, "little"), counter=int.from_bytes(counter, "little")
    )
    block = stream.random_raw(2).astype("<u8").tobytes()
    assert block.hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
