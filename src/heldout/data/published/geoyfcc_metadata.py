"""What a published frame says of a photo in ``yfcc_metadata``, in whatever form it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heldout.data.published.yfcc import COLUMNS_23, COLUMNS_25


def metadata_fields(value: Any) -> dict[str, Any]:
    """The fields of a photo's metadata: an object, JSON, or a line of the archive; {} for others."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(entry) for key, entry in value.items()}
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            try:
                parsed = json.loads(value)
            except ValueError:
                return {}
            return parsed if isinstance(parsed, dict) else {}
        value = value.rstrip("\n").split("\t")
    if isinstance(value, list | tuple) and len(value) in (23, 25):
        names = COLUMNS_23 if len(value) == 23 else COLUMNS_25
        return dict(zip(names, map(plain_value, value), strict=True))
    return {}


def plain_value(value: Any) -> Any:
    """A NumPy scalar as Python's own; NaN for nothing."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item() if getattr(value, "ndim", 0) == 0 else value.tolist()
    return None if isinstance(value, float) and value != value else value


def listed_numbers(value: Any) -> list[int] | None:
    """Labels as a list: a list of numbers, or one number."""
    value = plain_value(value)
    if value is None:
        return None
    return [int(entry) for entry in (value if isinstance(value, list | tuple | set) else [value])]
