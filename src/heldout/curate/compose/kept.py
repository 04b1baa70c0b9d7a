"""Arrays that were made once and may be wanted again, within a bound of memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar, cast


class Sized(Protocol):
    """Anything that says how much memory it takes."""

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        ...


T = TypeVar("T", bound=Sized)


class Kept:
    """Values by key, up to ``limit`` bytes; the least recently used goes first.

    Threads may share it. Two that want a missing value at once may both make it; they are equal,
    and the first one stays.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.nbytes = 0
        self._values: OrderedDict[Hashable, Sized] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of ``key``, made by ``make`` where it is not there."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return cast("T", self._values[key])
        made = make()
        with self._lock:
            if key in self._values:
                return cast("T", self._values[key])
            self._values[key] = made
            self.nbytes += made.nbytes
            while self.nbytes > self.limit and len(self._values) > 1:
                _, dropped = self._values.popitem(last=False)
                self.nbytes -= dropped.nbytes
        return made

    def __len__(self) -> int:
        return len(self._values)
