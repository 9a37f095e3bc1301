"""One paper, one file: the only rooms where engine and privacy meet."""
