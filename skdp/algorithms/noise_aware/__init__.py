"""Posteriors given private releases: of the columns (`columns`), then of scores (`glm`)."""
