"""Test sets to the world: one module per format."""
