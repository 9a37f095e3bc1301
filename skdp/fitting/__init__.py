"""What a fit is made of: input, plan, charge, streams, checkpoint, and the estimator's base."""
