"""SI-SCORE's names for classes, and what is known of its published sets.

Djolonga et al.: On robustness and transferability of convolutional neural networks, CVPR 2021.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DATA = Path(__file__).with_name("data") / "siscore.json"
CITATION = (
    "Djolonga, J., Yung, J., Tschannen, M., Romijnders, R., Beyer, L., Kolesnikov, A., "
    "Puigcerver, J., Minderer, M., D'Amour, A., Moldovan, D., Gelly, S., Houlsby, N., Zhai, X., "
    "Lucic, M.: On robustness and transferability of convolutional neural networks. CVPR 2021"
)
SUSPECT = {
    "kite": "index 21 is the bird of prey, the pictures may show the toy",
    "missile": "index 657 is missile, 744 projectile: either may be meant",
    "torch": "index 862 is the torch that burns",
}
"""Names whose class is doubtful, and why."""


@dataclass(frozen=True)
class Named:
    """A name of SI-SCORE's map: its ImageNet-1k index, and whether the published sets have it."""

    index: int
    released: bool


@dataclass(frozen=True, kw_only=True)
class Released:
    """A published set: how many images it has, and the values that its ids count through.

    An id is ``place in the grid × pairs + pair``; dropped candidates leave gaps. ``values`` are
    what each place of the grid stands for, in the order of ids.
    """

    images: int
    pairs: int
    values: tuple[Mapping[str, float], ...]

    def values_of(self, number: int) -> Mapping[str, float]:
        """What was varied in the image with this id: ``size``, ``rotation``, or ``x`` and ``y``."""
        return self.values[number // self.pairs]

    @property
    def candidates(self) -> int:
        """All ids are below this."""
        return self.pairs * len(self.values)


@cache
def siscore_names() -> Mapping[str, Named]:
    """The 112 names, sorted."""
    value = json.loads(_DATA.read_text(encoding="utf-8"))
    return {
        name: Named(int(entry["index"]), bool(entry["released"]))
        for name, entry in sorted(value["classes"].items())
    }


def released_names() -> tuple[str, ...]:
    """The 61 names of the published sets, sorted: their position is what metadata.csv has."""
    return tuple(name for name, entry in siscore_names().items() if entry.released)


@cache
def released_sets() -> Mapping[str, Released]:
    """The three published sets: 614 objects on two backgrounds each, so 1,228 pairs."""
    pairs = 1228
    steps = [round(i * 0.05, 2) for i in range(21)]
    centre = {"x": 0.5, "y": 0.5}
    return {
        "size": Released(
            images=92_884,
            pairs=pairs,
            values=tuple({**centre, "size": i / 100, "rotation": 0.0} for i in range(1, 101)),
        ),
        "rotation": Released(
            images=39_540,
            pairs=pairs,
            values=tuple(
                {**centre, "size": size, "rotation": float(angle)}
                for size in (0.2, 0.5, 0.8, 1.0)
                for angle in range(1, 342, 20)
            ),
        ),
        "location": Released(
            images=541_548,
            pairs=pairs,
            values=tuple(
                {"x": x, "y": y, "size": 0.2, "rotation": 0.0} for x in steps for y in steps
            ),
        ),
    }
