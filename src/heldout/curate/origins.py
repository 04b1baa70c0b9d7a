"""Whose images a made set consists of: source, licence and attribution of each from its origins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heldout.core.errors import HeldoutError
from heldout.curate.recipe import RecipeResult, Sources

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


def origins_of(built: RecipeResult, sources: Sources) -> Origins | None:
    """The origins of every image; None where each is the pool's image of the same id.

    An origin that names no image of a source is the recipe's fault.
    """
    if built.origins is None:
        _check_identity(built, sources)
        return None
    known = {
        role: set(table["image_id"].to_pylist())
        for role, source in sources.items()
        if (table := _images_of(source, role, built)) is not None
    }
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for image in built.images["image_id"].to_pylist():
        if image not in built.origins or not built.origins[image]:
            raise HeldoutError(f"image {image!r} has no origin")
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


def _check_identity(built: RecipeResult, sources: Sources) -> None:
    import pyarrow.compute as pc

    ids = built.images["image_id"].combine_chunks()
    table = _images_of(sources["pool"], "pool", built) if "pool" in sources else None
    if table is None and len(ids):
        raise HeldoutError(f"image {ids[0].as_py()!r} has an origin in 'pool', which has no images")
    if table is not None:
        foreign = pc.invert(pc.is_in(ids, value_set=table["image_id"].combine_chunks()))
        if pc.any(foreign).as_py():
            image = ids.filter(foreign)[0].as_py()
            raise HeldoutError(
                f"image {image!r} has the origin {image!r}, which pool does not have"
            )


def _images_of(source: Any, role: str, built: RecipeResult) -> Any:
    """The images of a source: all, or, of one too large to be read whole, those that were used."""
    some = getattr(source, "images_of", None)
    if some is None:
        return getattr(source, "images", None)
    if built.origins is None:
        return some(built.images["image_id"].combine_chunks())
    used = (
        origin for places in built.origins.values() for place, origin in places if place == role
    )
    return some(sorted(set(used)))


def inherited(origins: Origins | None, sources: Sources, built: RecipeResult) -> dict[str, Any]:
    """``source``, ``licence`` and ``attribution`` of every image, from its origins.

    Arrow arrays of texts in the order of the recipe's images.
    """
    import pyarrow as pa

    ids = built.images["image_id"].combine_chunks()
    if origins is None:
        return _from_pool(ids, _images_of(sources["pool"], "pool", built)) if len(ids) else {}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for role, source in sources.items():
        table = _images_of(source, role, built)
        if table is None:
            continue
        fields = [table[name].to_pylist() for name in ("source", "licence", "attribution")]
        for image, *values in zip(table["image_id"].to_pylist(), *fields, strict=True):
            rows[role, image] = dict(zip(("source", "licence", "attribution"), values, strict=True))
    made: dict[str, list[str | None]] = {"source": [], "licence": [], "attribution": []}
    for image in ids.to_pylist():
        parts = [rows[place] for place in origins[image]]
        made["licence"].append(combine_licences([part["licence"] for part in parts]))
        for name in ("source", "attribution"):
            made[name].append(combine_texts([part[name] for part in parts]))
    return {name: pa.array(values, pa.string()) for name, values in made.items()}


def _from_pool(ids: Any, table: Any) -> dict[str, Any]:
    """What :func:`inherited` gives for images that are the pool's own, for any number of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    places = pc.index_in(ids, value_set=table["image_id"].combine_chunks())
    made = {}
    for name in ("source", "licence", "attribution"):
        values = table[name].combine_chunks().take(places).cast(pa.string())
        empty = pc.fill_null(pc.equal(values, ""), False)
        other = pa.scalar(UNKNOWN if name == "licence" else None, pa.string())
        made[name] = pc.if_else(empty, other, values)
    return made
