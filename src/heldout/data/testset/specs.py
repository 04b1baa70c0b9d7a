"""Test sets that are named by a spec, ``SCHEME:REST``, and made when they are asked for.

A recipe that can make a set in memory has a scheme, such as ``compose:FILE.toml``. Schemes are
named here as text, so that this room knows none of the rooms that come after it, and naming a
test set imports no recipe.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from heldout.core.workspace import Workspace
from heldout.data.testset.testset import TestSet

Opener = Callable[[Workspace, str], TestSet]
"""Makes the set of a workspace that the text after the scheme describes."""

SCHEMES: dict[str, str] = {"compose": "heldout.curate.compose.source:open_testset"}
"""Scheme -> ``module:function``; the function is an :data:`Opener`."""


def opener_of(name: str) -> Opener | None:
    """The opener for a spec, or None where a name is no spec.

    >>> opener_of("imagenetv2-b-33") is None
    True
    """
    scheme, colon, rest = name.partition(":")
    if not colon or not rest or scheme not in SCHEMES:
        return None
    module, _, function = SCHEMES[scheme].partition(":")
    return cast("Opener", getattr(importlib.import_module(module), function))
