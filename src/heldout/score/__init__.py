"""Scores: metrics, slices, comparisons, fits and effective robustness."""
