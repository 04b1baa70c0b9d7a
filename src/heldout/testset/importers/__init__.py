"""Test sets and truths from the world: one module a published shape."""

from heldout.testset.importers.detect import read_classes, read_testset, read_truth, truth_notes

__all__ = ["read_classes", "read_testset", "read_truth", "truth_notes"]
