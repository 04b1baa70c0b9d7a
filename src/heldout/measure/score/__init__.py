"""Scores: metrics, slices, intervals, comparisons, fits and effective robustness, as records.

Everything comes from a :class:`~heldout.measure.score.measure.Measured`: one value per image and model.
"""
