"""Test sets and truths from the world: one module a published shape."""
