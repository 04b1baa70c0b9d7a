"""Vectors by id: the store of them, and encoding a pool into it."""
