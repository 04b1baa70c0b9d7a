"""Whose images a made set consists of: source, licence and attribution of each from its origins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heldout.errors import HeldoutError
from heldout.recipes.recipe import Built, Sources

UNKNOWN = "unknown"
Origins = Mapping[str, tuple[tuple[str, str], ...]]


def combine_licences(licences: Sequence[str | None]) -> str | None:
    """The terms of an image made from several: all of theirs, joined as SPDX does with ``AND``.

    An unknown licence among known ones is said, as nothing may be copied under it.

    >>> combine_licences(["CC-BY-4.0", "CC0-1.0", "CC-BY-4.0"])
    'CC-BY-4.0 AND CC0-1.0'
    >>> combine_licences(["MIT", None])
    'MIT AND unknown'
    """
    if all(licence is None for licence in licences):
        return None
    return " AND ".join(sorted({licence or UNKNOWN for licence in licences}))


def combine_texts(texts: Sequence[str | None]) -> str | None:
    """Attributions or sources of several images in one line, each once, in the order given.

    >>> combine_texts(["Ann", None, "Ben", "Ann"])
    'Ann; Ben'
    """
    return "; ".join(dict.fromkeys(text for text in texts if text)) or None


def origins_of(built: Built, sources: Sources) -> Origins:
    """The origins of every image; one that names no image of a source is the recipe's fault."""
    known = {
        role: set(table["image_id"].to_pylist())
        for role, source in sources.items()
        if (table := getattr(source, "images", None)) is not None
    }
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for image in built.images["image_id"].to_pylist():
        if built.origins is None:
            found[image] = (("pool", image),)
        elif image not in built.origins or not built.origins[image]:
            raise HeldoutError(f"image {image!r} has no origin")
        else:
            found[image] = tuple(built.origins[image])
        for role, origin in found[image]:
            if role not in known:
                raise HeldoutError(
                    f"image {image!r} has an origin in {role!r}, which has no images"
                )
            if origin not in known[role]:
                raise HeldoutError(
                    f"image {image!r} has the origin {origin!r}, which {role} does not have"
                )
    return found


def inherited(origins: Origins, sources: Sources) -> dict[str, dict[str, str | None]]:
    """``source``, ``licence`` and ``attribution`` of every image, from its origins."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for role, source in sources.items():
        table = getattr(source, "images", None)
        if table is None:
            continue
        fields = [table[name].to_pylist() for name in ("source", "licence", "attribution")]
        for image, *values in zip(table["image_id"].to_pylist(), *fields, strict=True):
            rows[role, image] = dict(zip(("source", "licence", "attribution"), values, strict=True))
    made: dict[str, dict[str, str | None]] = {"source": {}, "licence": {}, "attribution": {}}
    for image, places in origins.items():
        parts = [rows[place] for place in places]
        made["licence"][image] = combine_licences([part["licence"] for part in parts])
        for name in ("source", "attribution"):
            made[name][image] = combine_texts([part[name] for part in parts])
    return made
