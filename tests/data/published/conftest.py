from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heldout.data.testset.testset import TestSet


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a value as JSON (or a text or bytes as they are) and gives the path."""

    def write(value: Any, name: str = "file.json") -> Path:
        path = tmp_path / name
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
        return path

    return write


@pytest.fixture
def members() -> Callable[[TestSet, str], set[tuple[str, str]]]:
    """The (image, value) pairs of one membership column."""

    def of(pool: TestSet, column: str) -> set[tuple[str, str]]:
        rows = pool.memberships.to_pylist()
        found = [(row["image_id"], row["value"]) for row in rows if row["column"] == column]
        assert len(set(found)) == len(found), "a membership comes once"
        return set(found)

    return of
