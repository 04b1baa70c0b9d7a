"""The plan of a set: every image decided, counted and filtered before any pixel work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from heldout.core.errors import UserError
from heldout.curate.compose.config import ComposeParameters
from heldout.curate.compose.further import Further
from heldout.curate.compose.pairing import pair_backgrounds
from heldout.curate.compose.placing import Placement, boxed, inside_fraction, scaled_size
from heldout.curate.compose.scene import Shot, Value
from heldout.data.images.decode import MAX_PIXELS

if TYPE_CHECKING:
    from heldout.curate.compose.inputs import Cutout, Inputs

_MIX = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """All images of a set, in the order of their numbers.

    ``candidates``  how many the grid has in all; numbers count them, so they have gaps
    ``too_small``   candidates dropped because a side of the object is under a pixel
    ``empty``       those dropped because the object lies outside
    ``filtered``    those dropped because less than ``min_inside`` of its box lies inside
    ``pairs``       (foreground, background) in the order of numbers
    """

    shots: tuple[Shot, ...]
    candidates: int
    too_small: int
    empty: int
    filtered: int
    pairs: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.shots)


def make_plan(
    inputs: Inputs, parameters: ComposeParameters, *, seed: int, further: Further | None = None
) -> Plan:
    """Place every candidate and keep those that the filter lets through.

    Order, from the slowest to the fastest: centre (x, then y), size, rotation, further factors as
    configured, (foreground, background) pair, resolution. A number is the place in that order.
    """
    further = further or Further.of(parameters)
    pairs = pair_backgrounds(
        len(inputs.cutouts),
        len(inputs.backgrounds),
        per_object=parameters.backgrounds_per_object,
        seed=seed,
    )
    counts = {"too_small": 0, "empty": 0, "filtered": 0}
    least, frames = parameters.min_inside or 0.0, parameters.sizes
    shots: list[Shot] = []
    number = 0
    for (x, y), area, rotation, values in product(
        list(product(parameters.x, parameters.y)),
        parameters.size,
        parameters.rotation,
        further.combinations(),
    ):
        # One object lies in the same place on all of its backgrounds.
        known: dict[tuple[int, tuple[int, int]], Placement | None] = {}
        for foreground, background in pairs:
            for frame in frames:
                key = foreground, frame
                if key not in known:
                    known[key] = _placed(
                        inputs.cutouts[foreground], frame, x, y, area, rotation, values, further
                    )
                placed = known[key]
                number += 1
                if placed is None:
                    counts["too_small"] += 1
                    continue
                if placed.inside <= 0 and not parameters.keep_empty:
                    counts["empty"] += 1
                    continue
                if placed.inside < least:
                    counts["filtered"] += 1
                    continue
                shots.append(
                    Shot(
                        number - 1,
                        foreground,
                        background,
                        *frame,
                        x,
                        y,
                        area,
                        rotation,
                        placed.sprite,
                        placed.box,
                        placed.inside,
                        values,
                        shot_seed(seed, number - 1),
                    )
                )
    if not shots:
        raise UserError(
            f"none of the {number:,} images would be kept ({_reasons(counts)})",
            fix="lower --min-inside, or change the sizes and places",
        )
    further.check_inputs(inputs, shots)
    return Plan(shots=tuple(shots), candidates=number, pairs=pairs, **counts)


def _placed(
    cutout: Cutout,
    frame: tuple[int, int],
    x: float,
    y: float,
    area: float,
    rotation: float,
    values: Mapping[str, Value],
    further: Further,
) -> Placement | None:
    """Where an object lies, or None where it is too small to be drawn."""
    if values:
        sprite = further.sprite_size(cutout, frame, area, values)
    else:
        sprite = scaled_size(cutout.size, frame, area)
    if sprite[0] < 1 or sprite[1] < 1:
        return None
    if values:
        box = further.box(sprite, frame, x, y, rotation, values)
    else:
        box = boxed(sprite, frame, x=x, y=y, rotation=rotation)
    for width, height in (sprite, box[2:]):
        if width * height > MAX_PIXELS:
            raise UserError(
                f"{cutout.id} at size {area:g} would be {width} x {height} pixels",
                fix="use smaller sizes",
            )
    return Placement(sprite, box, inside_fraction(box, frame))


def shot_seed(seed: int, number: int) -> int:
    """Chance for one image: 63 bits mixed from the set's seed and the image's number.

    (The finaliser of SplitMix64: Steele, Lea and Flood, 2014.)
    """
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 1) & _MIX
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MIX
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MIX
    return (value ^ (value >> 31)) >> 1


def _reasons(counts: Mapping[str, int]) -> str:
    words = {"too_small": "too small", "empty": "outside the image", "filtered": "filtered out"}
    return ", ".join(f"{n:,} {words[name]}" for name, n in counts.items() if n) or "no candidates"


FEWEST, MOST = 16, 128
"""Images of a unit of work, at least and at most."""


def in_units(shots: Sequence[Shot]) -> Iterator[tuple[Shot, ...]]:
    """The shots in groups that share as much work as can be: one object, size, rotation, place.

    About 64 units a set, so that workers end together, each of 16 to 128 images; whoever runs
    them, they are the same.
    """
    size = min(max(len(shots) // 64, FEWEST), MOST)
    ordered = sorted(
        shots,
        key=lambda s: (
            s.foreground,
            s.sprite,
            s.rotation,
            s.width,
            s.height,
            s.box,
            s.background,
            s.number,
        ),
    )
    group: list[Shot] = []
    for shot in ordered:
        if group and (len(group) >= size or shot.foreground != group[0].foreground):
            yield tuple(group)
            group = []
        group.append(shot)
    if group:
        yield tuple(group)


def mix_notes(
    inputs: Inputs, shots: Iterable[Shot], varied: Mapping[str, str], further: Further
) -> list[str]:
    """What the filter did to the mix: classes, and values of other factors, that drop out.

    ``varied``  factors that take several values, by key, with the words for each
    """
    listed = list(shots)
    kinds = {"class": [inputs.cutouts[s.foreground].class_name for s in listed]}
    values = {key: [factor_value(shot, key, further) for shot in listed] for key in varied}
    kinds |= {key: [_shown(value) for value in values[key]] for key in varied}
    notes = []
    for key, words in varied.items():
        for other in kinds:
            if other != key and (note := _mix_note(key, words, other, varied, kinds, values[key])):
                notes.append(note)
    return notes


def _mix_note(
    key: str,
    words: str,
    other: str,
    varied: Mapping[str, str],
    kinds: Mapping[str, list[str]],
    taken: Sequence[Value],
) -> str:
    found: dict[str, set[str]] = {}
    values: dict[str, Value] = {}
    for own, value, kind in zip(taken, kinds[key], kinds[other], strict=True):
        found.setdefault(value, set()).add(kind)
        values[value] = own
    everything = set().union(*found.values())
    gone = {
        kind: [value for value in found if kind not in found[value]] for kind in sorted(everything)
    }
    gone = {kind: places for kind, places in gone.items() if places}
    if not gone:
        return ""
    what = "class" if other == "class" else varied[other]
    parts = []
    for kind, places in list(gone.items())[:5]:
        shown = _span([values[place] for place in places])
        parts.append(f"{what} {kind} has no images at {words} {shown}")
    more = f", and {len(gone) - 5} more" if len(gone) > 5 else ""
    return (
        f"the filter changes the mix along {words}: {'; '.join(parts)}{more}; "
        "compare on balanced support"
    )


def _span(values: Sequence[Value]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) < len(values) or len(values) < 3:
        return ", ".join(_shown(value) for value in values[:5])
    return f"{_shown(min(numbers))} to {_shown(max(numbers))} ({len(numbers)} values)"


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def factor_value(shot: Shot, key: str, further: Further) -> Value:
    """A shot's value of a factor, by the name of its column; ``x&y`` is a place as text."""
    if key == "x&y":
        return f"({_shown(shot.x)}, {_shown(shot.y)})"
    if key == "size":
        return shot.area
    if key == "resolution":
        return f"{shot.width}x{shot.height}"
    if key in ("x", "y", "rotation"):
        value: float = getattr(shot, key)
        return value
    neutral = further.neutral(key)
    return shot.values.get(key, "neutral" if neutral is None else neutral)
