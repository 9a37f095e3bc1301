"""What tests of rows in chunks share."""

import pytest

from skdp.fitting import charge
from skdp.fitting.streams import Streams


@pytest.fixture
def fixed(monkeypatch):
    """The same random bits for every fit."""
    monkeypatch.setattr(charge, "streams", lambda *given: Streams(b"fixed"))
    monkeypatch.setattr(charge, "initial_seed", lambda *_: 0)
