"""Test sets: images, truths, columns, card, hashes; import, export, audit, fetch."""

from heldout.data.testset.card import Card
from heldout.data.testset.catalogue import Entry, find_testset, list_testsets
from heldout.data.testset.columns import ColumnType, guess_type
from heldout.data.testset.pool import (
    Pool,
    find_pool,
    list_pools,
    load_pool,
    make_pool,
    pool_of,
    save_pool,
    verify_pool,
)
from heldout.data.testset.subset import part_of, subset
from heldout.data.testset.tables import image_table, membership_table, truth_table
from heldout.data.testset.testset import TestSet, add_truth, load, make_testset, save

__all__ = [
    "Card",
    "ColumnType",
    "Entry",
    "Pool",
    "TestSet",
    "add_truth",
    "find_pool",
    "find_testset",
    "guess_type",
    "image_table",
    "list_pools",
    "list_testsets",
    "load",
    "load_pool",
    "make_pool",
    "make_testset",
    "membership_table",
    "part_of",
    "pool_of",
    "save",
    "save_pool",
    "subset",
    "truth_table",
    "verify_pool",
]
