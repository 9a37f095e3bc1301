"""Likelihoods and the rows they are evaluated on; pure torch, no privacy in here."""
