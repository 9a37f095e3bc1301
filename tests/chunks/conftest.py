"""What tests of rows in chunks share."""

import pytest

from skdp import _fitting
from skdp._random import Streams


@pytest.fixture
def fixed(monkeypatch):
    """The same random bits for every fit."""
    monkeypatch.setattr(_fitting, "streams", lambda *given: Streams(b"fixed"))
    monkeypatch.setattr(_fitting, "initial_seed", lambda estimator: 0)
