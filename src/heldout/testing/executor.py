"""An executor for tests: outcomes come in a shuffled order."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from random import Random

from heldout.core.engine import Outcome, Unit
from heldout.core.engine.executors import Work


class FakeExecutor:
    """A stand-in for tests: runs in this thread, and delivers outcomes in a shuffled order.

    ``stop_after`` raises ``KeyboardInterrupt`` once so many outcomes were delivered, as if the
    user had pressed Ctrl-C; units in flight then have a result but no delivered outcome.
    ``most_in_flight`` is the largest number of units that were ever pulled ahead.
    """

    def __init__(self, *, seed: int = 0, in_flight: int = 8, stop_after: int | None = None) -> None:
        self.seed = seed
        self.in_flight = in_flight
        self.stop_after = stop_after
        self.most_in_flight = 0

    def run(self, task: Work, units: Iterable[Unit]) -> Generator[Outcome]:
        """Run every unit; yield outcomes in an order drawn from the seed."""
        random = Random(self.seed)
        source = iter(units)
        ready: list[Outcome] = []
        delivered = 0
        while True:
            ready.extend(task(unit) for unit in islice(source, self.in_flight - len(ready)))
            self.most_in_flight = max(self.most_in_flight, len(ready))
            if not ready:
                return
            if delivered == self.stop_after:
                raise KeyboardInterrupt
            yield ready.pop(random.randrange(len(ready)))
            delivered += 1
