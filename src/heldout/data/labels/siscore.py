"""SI-SCORE's names for classes, and what is known of its published sets.

Djolonga et al.: On robustness and transferability of convolutional neural networks, CVPR 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heldout.core.schema import Document, read

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
_PAIRS = 1228  # 614 objects on two backgrounds each


class SiscoreClass(Document, frozen=True, kw_only=True):
    """A class of SI-SCORE: its ImageNet-1k index, and whether the published sets have it."""

    index: int
    released: bool


class _Classes(Document, frozen=True, kw_only=True):
    schema_version: int = 1
    label_space: str
    classes: dict[str, SiscoreClass]


@dataclass(frozen=True)
class ReleasedSet:
    """A published set: how many images it has, and the values that its ids count through.

    An id is ``place in the grid × pairs + pair``; dropped candidates leave gaps. ``values`` are
    those of each place of the grid, in the order of ids.
    """

    images: int
    values: tuple[Mapping[str, float], ...]

    def values_of(self, number: int) -> Mapping[str, float]:
        """What was varied in the image with this id: ``size``, ``rotation``, or ``x`` and ``y``."""
        return self.values[number // _PAIRS]

    @property
    def candidates(self) -> int:
        """All ids are below this."""
        return _PAIRS * len(self.values)


@cache
def siscore_names() -> Mapping[str, SiscoreClass]:
    """The 112 names, sorted."""
    return dict(sorted(read(_DATA, _Classes).classes.items()))


def released_names() -> tuple[str, ...]:
    """The 61 names of the published sets, sorted: their position is what metadata.csv has."""
    return tuple(name for name, entry in siscore_names().items() if entry.released)


@cache
def released_sets() -> Mapping[str, ReleasedSet]:
    """The three published sets."""

    def grid(*cells: tuple[float, float, float, float]) -> tuple[Mapping[str, float], ...]:
        return tuple(dict(zip(("x", "y", "size", "rotation"), cell, strict=True)) for cell in cells)

    steps = [round(i * 0.05, 2) for i in range(21)]
    sizes = grid(*((0.5, 0.5, i / 100, 0.0) for i in range(1, 101)))
    rotations = grid(
        *((0.5, 0.5, s, float(a)) for s in (0.2, 0.5, 0.8, 1.0) for a in range(1, 342, 20))
    )
    locations = grid(*((x, y, 0.2, 0.0) for x in steps for y in steps))
    return {
        "size": ReleasedSet(92_884, sizes),
        "rotation": ReleasedSet(39_540, rotations),
        "location": ReleasedSet(541_548, locations),
    }
