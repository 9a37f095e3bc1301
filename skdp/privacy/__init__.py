"""What a release costs: events, accountants, calibration, reports, the ledger."""

from skdp._warnings import PrivacyWarning
from skdp.privacy.accounting import epsilon, epsilon_of_event
from skdp.privacy.calibration import calibrate_noise_multiplier
from skdp.privacy.gdp import epsilon_to_gdp, gdp_to_epsilon
from skdp.privacy.ledger import BudgetExceededError, PrivacyLedger
from skdp.privacy.report import PrivacyReport

__all__ = [
    "BudgetExceededError",
    "PrivacyLedger",
    "PrivacyReport",
    "PrivacyWarning",
    "calibrate_noise_multiplier",
    "epsilon",
    "epsilon_of_event",
    "epsilon_to_gdp",
    "gdp_to_epsilon",
]
