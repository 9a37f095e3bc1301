"""Private rows: how a sum over them is made, whose they are, and of which part of a split."""
