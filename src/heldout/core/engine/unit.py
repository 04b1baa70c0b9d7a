"""Units of work, their keys, and the deterministic share of them that one machine takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from heldout.core.errors import UserError
from heldout.core.files import canonical_json, sha256_text

_KEY = re.compile(r"[0-9a-f]{32,128}\Z")
_SHARD = re.compile(r"([0-9]+)/([0-9]+)\Z")


@dataclass(frozen=True)
class Unit:
    """One piece of work.

    ``key``      the hash, in lower-case hexadecimal (32 to 128 digits), of everything that the
                 result depends on: inputs, parameters, and the name and version of the work.
                 Equal keys promise equal results. :func:`unit_key` makes one.
    ``payload``  what the work function is given. It must survive pickling if worker processes
                 are to be used; keep it small (ids and numbers rather than images).
    """

    key: str
    payload: Any

    def __post_init__(self) -> None:
        if not _KEY.match(self.key):
            raise ValueError(
                f"{self.key!r} is not a unit key: give 32 to 128 lower-case hex digits"
            )


def unit_key(work: str, /, **parts: object) -> str:
    """The key of a unit: the SHA-256 of the work's name with version, and all it depends on.

    ``parts`` are JSON values: text, numbers, lists and mappings with text keys. Give files by
    their hash, never by their path.

    >>> unit_key("resize-1", image="9f86d081", size=224)[:12]
    'e58733b7e917'
    """
    return sha256_text(canonical_json({"parts": parts, "work": work}))


@dataclass(frozen=True)
class Shard:
    """Share ``index`` of ``count`` of a job's units, counted from 1.

    A unit's share follows from its key alone. It does not change when units are added, removed
    or put in another order, and the shares of one job never overlap.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise UserError(
                f"there is no shard {self.index}/{self.count}",
                fix="write i/n with i from 1 to n, such as 1/4",
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that ``i/n`` means.

        >>> Shard.parse("2/8")
        Shard(index=2, count=8)
        """
        match = _SHARD.match(text)
        if not match:
            raise UserError(
                f"{text!r} is not a shard", fix="write i/n with i from 1 to n, such as 1/4"
            )
        return cls(int(match[1]), int(match[2]))

    def takes(self, key: str) -> bool:
        """Whether the unit of this key belongs to this shard."""
        # Hashed again, so that keys that share their first digits still spread evenly.
        return int(sha256_text(key)[:16], 16) % self.count == self.index - 1
