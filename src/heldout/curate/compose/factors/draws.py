"""Chance for one image and one factor: it follows from the image's seed and the factor's key alone.

So no other image, no other factor and no order of work can change what is drawn. Raw bits of PCG64
are frozen by NumPy's promise; everything on top of them is made here, because NumPy may change
its distributions.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
from numpy.typing import NDArray


class Draw:
    """A stream of chance, named by a seed and a key.

    >>> Draw(7, "blur").below(100) == Draw(7, "blur").below(100)
    True
    """

    def __init__(self, seed: int, key: str) -> None:
        name = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=16).digest()
        self._bits = np.random.PCG64(int.from_bytes(name, "little"))

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Numbers in [0, 1), float64 (count,)."""
        raw = np.asarray(self._bits.random_raw(count), dtype=np.uint64)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def words(self, count: int) -> NDArray[np.uint16]:
        """Numbers of 16 bits, uint16 (count,)."""
        raw = np.asarray(self._bits.random_raw(-(-count // 4)), dtype="<u8")
        return raw.view("<u2")[:count].astype(np.uint16, copy=False)

    def below(self, high: int) -> int:
        """A whole number from 0 to ``high`` - 1."""
        return int(self.uniform(1)[0] * high)

    def normal(self, count: int) -> NDArray[np.float32]:
        """Standard normal numbers, float32 (count,), as 65,536 equally likely quantiles.

        The largest is 4.3; the variance of the table is 1 to four digits.
        """
        return _normal_quantiles()[self.words(count)]

    def some(self, options: int, count: int) -> list[int]:
        """``count`` of ``options`` things in random order, none twice before all were taken."""
        if not options:
            return []
        taken: list[int] = []
        while len(taken) < count:
            taken += np.argsort(self.uniform(options), kind="stable").tolist()
        return taken[:count]


@cache
def _normal_quantiles() -> NDArray[np.float32]:
    from scipy.special import ndtri

    return np.asarray(ndtri((np.arange(65536) + 0.5) / 65536), dtype=np.float32)
