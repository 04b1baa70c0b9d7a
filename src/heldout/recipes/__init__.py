"""Recipes: what turns a pool or metadata into a test set, through one protocol.

A recipe gives rows; :func:`run_recipe` gives every set its card, hashes, licences and files in the
same way; :func:`heldout.testing.recipe_conformance.check_recipe` proves that a recipe keeps what all of
them promise. :mod:`heldout.recipes.parameters` reads parameters from TOML, JSON and flags.
"""

from __future__ import annotations

from heldout.recipes.origins import combine_licences
from heldout.recipes.recipe import (
    Built,
    Given,
    Promises,
    Recipe,
    Rendered,
    Source,
    Sources,
    TruthMade,
    Work,
)
from heldout.recipes.registry import get_recipe, load_recipe, recipe_names, register
from heldout.recipes.running import run_recipe

__all__ = [
    "Built",
    "Given",
    "Promises",
    "Recipe",
    "Rendered",
    "Source",
    "Sources",
    "TruthMade",
    "Work",
    "combine_licences",
    "get_recipe",
    "load_recipe",
    "recipe_names",
    "register",
    "run_recipe",
]
