from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import heldout.stats

MODULES = sorted(module.name for module in pkgutil.iter_modules(heldout.stats.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name) -> None:
    outcome = doctest.testmod(importlib.import_module(f"heldout.stats.{name}"))
    assert outcome.failed == 0
