"""Test sets: images, truths, columns, card, hashes; import, export, audit, fetch."""

from heldout.data.testset.card import Card
from heldout.data.testset.catalogue import (
    Entry,
    find_pool,
    find_testset,
    list_pools,
    list_testsets,
    load_testset,
)
from heldout.data.testset.columns import ColumnType, guess_type
from heldout.data.testset.subset import part_of, subset
from heldout.data.testset.tables import image_table, membership_table, truth_table
from heldout.data.testset.testset import TestSet, add_truth, load, make_pool, make_testset, save

__all__ = [
    "Card",
    "ColumnType",
    "Entry",
    "TestSet",
    "add_truth",
    "find_pool",
    "find_testset",
    "guess_type",
    "image_table",
    "list_pools",
    "list_testsets",
    "load",
    "load_testset",
    "make_pool",
    "make_testset",
    "membership_table",
    "part_of",
    "save",
    "subset",
    "truth_table",
]
