"""Mistakes: wrong (image, prediction) pairs: confusions, consensus of models, categories, severity."""
