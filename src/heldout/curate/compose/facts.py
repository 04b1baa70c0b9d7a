"""What is known of an image once it is rendered: its file's hash and size, and what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from heldout.core.errors import HeldoutError


@dataclass(frozen=True, slots=True)
class Fact:
    """An image by its number: SHA-256 and bytes of its file, and measured columns."""

    number: int
    sha256: str
    bytes: int
    measured: Mapping[str, float]


def pack_facts(facts: Iterable[Fact]) -> bytes:
    """The facts of a unit's images as JSON; equal facts, equal bytes."""
    rows = [[f.number, f.sha256, f.bytes, dict(sorted(f.measured.items()))] for f in facts]
    return json.dumps(rows, separators=(",", ":"), allow_nan=True).encode("ascii")


def unpack_facts(data: bytes) -> list[Fact]:
    """What :func:`pack_facts` wrote."""
    try:
        return [Fact(*row) for row in json.loads(data)]
    except (ValueError, TypeError) as error:
        raise HeldoutError(f"facts of rendered images cannot be read ({error})") from None
