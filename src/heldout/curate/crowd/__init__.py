"""Votes of a crowd: which candidates are asked about, and in which grids."""
