"""What tests of rows in chunks share."""

import pytest

from skdp.fitting import seeds
from skdp.fitting.streams import Streams


@pytest.fixture
def fixed(monkeypatch):
    """The same random bits for every fit."""
    monkeypatch.setattr(seeds, "streams", lambda *given: Streams(b"fixed"))
    monkeypatch.setattr(seeds, "initial_seed", lambda estimator: 0)
