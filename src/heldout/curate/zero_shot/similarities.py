"""Named similarities: what ranks images by how well they fit their label.

=============  =================================================================================
``cosine``     the cosine itself
``softmax@T``  ``exp(T·c) / Σ exp(T·c)`` over all classes; T = 1 is what CLIP-GeoYFCC ranked by,
               ``softmax@scale`` takes the encoder's own T (100 for CLIP)
``margin``     by how much the label leads the next class
``lse@T``      ``log Σ exp(T·c)`` over all classes: how near an image is to the classes at large
=============  =================================================================================

They rank differently: none can be had from another. So each has a name, and a column of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.zero_shot.assigning import Assigned


@dataclass(frozen=True)
class Similarity:
    """A named similarity; ``temperature`` is the T of those that have one."""

    kind: str
    temperature: float | None = None

    @property
    def column(self) -> str:
        """The name of its column.

        >>> Similarity("softmax", 1.0).column, Similarity("margin").column
        ('similarity_softmax_1', 'margin')
        """
        if self.kind == "margin":
            return "margin"
        suffix = "" if self.temperature is None else f"_{self.temperature:g}"
        return f"similarity_{self.kind}{suffix}"

    def values(self, found: Assigned) -> np.ndarray:
        """Its value for each image, (n,); NaN where there is none."""
        if self.kind == "cosine":
            return found.cosine
        if self.kind == "margin":
            return found.margin
        if self.temperature is None:
            raise ValueError(f"{self.kind} needs a temperature")
        if self.kind == "softmax":
            return found.softmax(self.temperature)
        return found.lse[self.temperature]


def parse_similarities(text: str, *, scale: float | None = None) -> tuple[Similarity, ...]:
    """Similarities by name, separated by commas; ``scale`` is what ``softmax@scale`` stands for.

    >>> [s.column for s in parse_similarities("cosine,softmax@1,margin")]
    ['similarity_cosine', 'similarity_softmax_1', 'margin']
    """
    found: dict[Similarity, None] = {}
    for name in text.split(","):
        kind, at, value = name.strip().partition("@")
        if kind in ("cosine", "margin") and not at:
            found[Similarity(kind)] = None
        elif kind in ("softmax", "lse") and at:
            found[Similarity(kind, _temperature(name, value, scale))] = None
        else:
            raise UserError(
                f"no similarity {name.strip()!r}", fix="use cosine, softmax@T, margin or lse@T"
            )
    return tuple(found)


def temperatures_of(similarities: Sequence[Similarity]) -> tuple[float, ...]:
    """The T that assignment must keep sums for."""
    return tuple(dict.fromkeys(s.temperature for s in similarities if s.temperature is not None))


def _temperature(name: str, value: str, scale: float | None) -> float:
    if value == "scale":
        if scale is None:
            raise UserError(f"{name}: precomputed vectors have no scale", fix="give T as a number")
        return float(f"{scale:g}")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < 1e6:
        raise UserError(f"{name}: T is no number above 0", fix="such as softmax@1 or softmax@100")
    return number
