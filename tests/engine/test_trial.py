"""The trial of a module meets batches and scales beyond the smallest, in training too."""

import pytest
import torch
from torch import nn

from skdp.engine.network import FlatModule
from skdp.engine.trial import N_RECORDS, clipping_method


class Mixes(nn.Module):
    """Centres a batch where a condition holds, and treats each record by itself elsewhere."""

    def __init__(self, condition):
        super().__init__()
        self.condition, self.head = condition, nn.Linear(6, 3)

    def forward(self, x):
        return self.head(x - x.mean(0) if self.condition(self, x) else x)


CONDITIONS = {
    "nowhere": lambda module, x: False,
    "in training": lambda module, x: module.training,
    "in evaluation": lambda module, x: not module.training,
    "in batches of more than 8": lambda module, x: len(x) > 8,
    "in batches of more than 32": lambda module, x: len(x) > 32,
    "of values that are all small": lambda module, x: x.abs().max() < 0.5,
    "of records that are all large": lambda module, x: x.abs().amax(1).min() > 2,
}


def squared_error(outputs, y):
    return ((outputs - y) ** 2).sum(1)


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_module_that_mixes_records_somewhere_is_refused(where):
    torch.manual_seed(1)
    module = FlatModule(Mixes(CONDITIONS[where]))
    x, y = torch.randn(N_RECORDS, 6), torch.randn(N_RECORDS, 3)
    if where == "nowhere":
        assert clipping_method(module, squared_error, x, y, 3) == "book-keeping"
        return
    with pytest.raises(ValueError, match="by itself"):
        clipping_method(module, squared_error, x, y, 3)
