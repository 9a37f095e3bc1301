"""A refusal that costs nothing."""

from contextlib import contextmanager

import pytest

from skdp import PrivacyLedger
from skdp.engine import release_hook


@contextmanager
def refused(match, error=ValueError):
    """Hold that a block raises, before anything has been charged or released."""
    refusal = pytest.raises(error, match=match)
    with PrivacyLedger() as ledger, release_hook.record() as tape, refusal as raised:
        yield raised
    assert not ledger.entries
    assert not tape
