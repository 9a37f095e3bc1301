"""What a release costs: events, accountants, certificates, calibration, reports, the ledger.

Docstrings cite docs/privacy.md as "PRIVACY §n".
"""

from typing import TYPE_CHECKING

from skdp.fitting.lazy import fetcher
from skdp.fitting.warnings import PrivacyWarning

if TYPE_CHECKING:
    from skdp.privacy.accounting import delta, delta_of_event, epsilon, epsilon_of_event
    from skdp.privacy.gdp import epsilon_to_gdp, gdp_to_epsilon
    from skdp.privacy.hidden_state import langevin_mu, last_iterate_mu
    from skdp.privacy.ledger import BudgetExceededError, PrivacyLedger
    from skdp.privacy.noise_calibration import calibrate_noise_multiplier
    from skdp.privacy.posterior_samples import posterior_samples_epsilon
    from skdp.privacy.report import PrivacyReport
    from skdp.privacy.workflow import privacy_of

__all__ = [
    "BudgetExceededError",
    "PrivacyLedger",
    "PrivacyReport",
    "PrivacyWarning",
    "calibrate_noise_multiplier",
    "delta",
    "delta_of_event",
    "epsilon",
    "epsilon_of_event",
    "epsilon_to_gdp",
    "gdp_to_epsilon",
    "langevin_mu",
    "last_iterate_mu",
    "posterior_samples_epsilon",
    "privacy_of",
]

_HOMES = {
    "ledger": ("BudgetExceededError", "PrivacyLedger"),
    "report": ("PrivacyReport",),
    "noise_calibration": ("calibrate_noise_multiplier",),
    "accounting": ("delta", "delta_of_event", "epsilon", "epsilon_of_event"),
    "gdp": ("epsilon_to_gdp", "gdp_to_epsilon"),
    "hidden_state": ("langevin_mu", "last_iterate_mu"),
    "posterior_samples": ("posterior_samples_epsilon",),
    "workflow": ("privacy_of",),
}

__getattr__ = fetcher(__name__, _HOMES)
