"""What inference for a user's log-likelihood is made of: sums, lengths, curvature, update."""
