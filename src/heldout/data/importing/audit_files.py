"""The lists that an audit reads: blacklists, near duplicates, image ids."""

from __future__ import annotations

from pathlib import Path

from heldout.core.errors import BadFile
from heldout.core.files import existing_file, read_json


def read_blacklist(path: Path) -> dict[str, str]:
    """A JSON object of image -> reason."""
    value = read_json(path)
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise BadFile(path, "is not an object of image -> reason", fix="give a blacklist file")
    return value


def read_near_duplicates(path: Path) -> dict[str, tuple[str, ...]]:
    """A JSON object of image -> list of images that are nearly the same."""
    value = read_json(path)
    if not isinstance(value, dict) or not all(
        isinstance(found, list) and all(isinstance(image, str) for image in found)
        for found in value.values()
    ):
        raise BadFile(
            path, "is not an object of image -> list of images", fix="give a near-duplicates file"
        )
    return {image: tuple(found) for image, found in value.items()}


def read_image_ids(path: Path) -> tuple[str, ...]:
    """Image ids: a JSON list of texts, or a text file with one id a line."""
    existing_file(path, "list of image ids")
    if path.suffix == ".json":
        value = read_json(path)
        if not isinstance(value, list) or not all(isinstance(image, str) for image in value):
            raise BadFile(path, "is not a list of image ids", fix="give a JSON list of texts")
        return tuple(value)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="give one image id a line") from None
    return tuple(line.strip() for line in lines if line.strip())
