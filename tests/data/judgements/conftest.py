"""The small folders of pictures that near duplicates are tested with."""

from __future__ import annotations

from tests.curate.dedupe.conftest import MakeSet, make_set, workspace

__all__ = ["MakeSet", "make_set", "workspace"]
