"""Evaluation: what a request names is found, run where missing, read once, and made records."""
