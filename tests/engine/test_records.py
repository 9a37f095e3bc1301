"""The records that a network sees are those of the batch, and stay as they are."""

import numpy as np
import pytest
import torch
from engine.networks import (
    METHODS,
    Wraps,
    clipped_sum_of,
    perceptron,
    random_records,
    seeded,
    squared_error,
)

from skdp.engine.modules.flat_module import FlatModule
from skdp.engine.modules.network_records import NetworkRecords
from skdp.engine.modules.network_sum import NetworkClippedSum


@pytest.mark.parametrize("method", METHODS)
def test_only_the_records_of_the_batch_take_part(method):
    module, (x, y) = seeded(perceptron).double(), random_records(0, 20, (6,))
    flat, index = FlatModule(module), np.array([17, 3, 4])
    clipped_sum = NetworkClippedSum(flat, squared_error, 0.5, method=method)
    records = NetworkRecords(x, y, flat.flat)
    found = clipped_sum(flat.flat.clone(), records.take(index))
    expected = clipped_sum_of(module, x[index], y[index], method=method)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    nobody = clipped_sum(flat.flat.clone(), records.take(np.array([], dtype=int)))
    assert torch.equal(nobody, torch.zeros_like(flat.flat))


def test_part_of_the_records_by_a_slice():
    x, y = random_records(0, 9, (6,))
    records = NetworkRecords(x, y, torch.zeros(1))
    found, *_ = records.take(slice(5, 8)).piece(1, 3)
    np.testing.assert_allclose(found, x[6:8].astype(np.float32))


def test_private_records_are_never_changed_by_a_module_that_works_in_place():
    module = seeded(lambda: Wraps(lambda self, x: self.head(x.mul_(0.5))))
    x, y = random_records(0, 8, (6,))
    x, y = x.astype(np.float32), y.astype(np.float32)
    kept = x.copy()
    for method in METHODS:
        clipped_sum_of(module, x, y, method=method)
    np.testing.assert_array_equal(x, kept)


@pytest.mark.parametrize("selection", [np.array([5, 2, 2]), slice(1, 7)])
def test_rows_that_a_device_has_are_those_that_it_would_get(selection):
    x, y = random_records(0, 9, (6,))
    there, here = (NetworkRecords(x, y, torch.zeros(1), weights=np.arange(9.0)) for _ in "ab")
    there._move()  # as a device does before its second piece
    for _ in range(2):
        found, expected = (of.take(selection).piece(1, 3) for of in (there, here))
        assert all(map(torch.equal, found, expected))
        found[0].mul_(0.5)  # as a module may that works in place
