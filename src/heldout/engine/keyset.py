"""A set of unit keys in little memory: 24 to 48 bytes a key, where a set of texts takes 150."""

from __future__ import annotations

import hashlib
from array import array


class KeySet:
    """Remembers which keys were seen, by 128 bits of their hash, in a flat table.

    Open addressing with linear probing. The all-zero fingerprint marks an empty slot, so the one
    key in 2^128 that hashes to it is moved to another value.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mask = 1023
        self._table = array("Q", bytes(16 * 1024))

    def __len__(self) -> int:
        return self._count

    def add(self, key: str) -> bool:
        """Remember ``key``; whether it was new."""
        digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
        low = int.from_bytes(digest[:8], "little")
        high = int.from_bytes(digest[8:], "little") or 1
        if not self._place(low, high):
            return False
        self._count += 1
        if 3 * self._count > 2 * (self._mask + 1):
            self._grow()
        return True

    def _place(self, low: int, high: int) -> bool:
        table, mask = self._table, self._mask
        slot = low & mask
        while table[2 * slot + 1]:
            if table[2 * slot] == low and table[2 * slot + 1] == high:
                return False
            slot = (slot + 1) & mask
        table[2 * slot], table[2 * slot + 1] = low, high
        return True

    def _grow(self) -> None:
        old = self._table
        self._mask = 2 * self._mask + 1
        self._table = array("Q", bytes(16 * (self._mask + 1)))
        for slot in range(0, len(old), 2):
            if old[slot + 1]:
                self._place(old[slot], old[slot + 1])
