"""Likelihoods and the rows they are evaluated on; no privacy in here."""
