"""Test sets: images, truths, columns, card, hashes; import, export, audit, fetch."""

from heldout.testset.card import Card
from heldout.testset.catalogue import Entry, find_testset, list_testsets
from heldout.testset.columns import ColumnType, guess_type
from heldout.testset.subset import subset
from heldout.testset.tables import image_table, membership_table, truth_table
from heldout.testset.testset import TestSet, add_truth, load, make_testset, save

__all__ = [
    "Card",
    "ColumnType",
    "Entry",
    "TestSet",
    "add_truth",
    "find_testset",
    "guess_type",
    "image_table",
    "list_testsets",
    "load",
    "make_testset",
    "membership_table",
    "save",
    "subset",
    "truth_table",
]
