"""Posteriors given private releases of standardised columns: `columns`, then `logit`."""
