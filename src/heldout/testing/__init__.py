"""Fakes for tests of heldout and of what is built on it: executors, models, encoders."""
