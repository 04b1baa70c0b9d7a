"""Candidates of a pool: where they come from, and their images."""
