"""Shared inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.curate.compose import compose_examples as examples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with cut-outs in ``f`` and backgrounds in ``b``."""
    examples.make_foregrounds(tmp_path / "f")
    examples.make_backgrounds(tmp_path / "b")
    return tmp_path
