"""Recipes: what turns a pool or metadata into a test set, through one protocol.

A recipe gives rows; :func:`run_recipe` gives every set its card, hashes, licences and files in the
same way; :func:`heldout.testing.recipe_conformance.check_recipe` proves that a recipe keeps what all of
them promise.
"""
