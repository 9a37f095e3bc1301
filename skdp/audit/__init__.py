"""Audits: try to refute a privacy statement by experiment.

An audit cannot prove privacy. It proves, with a stated confidence, that no ε below some bound can
be true, and so finds statements that are wrong: noise that is too small, a norm that is not
clipped, one release too many.

=================== ============================================ ===================================
`audit_estimator`   black box: thousands of public fits          any estimator, any function
`audit_mechanism`   white box: one run with 1000 canaries        noisy sums of clipped values
`audit_samples`     two samples of results, made anywhere        what other libraries return
=================== ============================================ ===================================
"""

from skdp.audit.estimator import audit_estimator
from skdp.audit.mechanism import audit_mechanism
from skdp.audit.report import AuditReport
from skdp.audit.samples import audit_samples

__all__ = ["AuditReport", "audit_estimator", "audit_mechanism", "audit_samples"]
