"""Grids: candidates of one class among images that are known to show it, or not to.

A worker sees a grid of 48 images and selects those that show the class. 42 are candidates; 3 are
positive controls, images of the original set of this class, and 3 negative ones, of the most similar
other class. How ImageNetV2 composed them (``mturk.py``), class by class:

1. the candidates of a class are cut into chunks of 42, in their order;
2. a short last chunk is filled up with candidates of the earlier ones, drawn anew, who are asked
   about once more. It is drawn once for the class, before the controls of its first grid;
3. a class with one short chunk gets controls for the missing ones: half of them positive, one more
   of these where the number is odd;
4. positive controls are drawn, then negative ones, then all images are shuffled, grid by grid.

Every class draws from a generator of its own, made of the seed and its id, and its candidates are
sorted: a grid depends on nothing but the candidates and controls of its class. With ``legacy`` there
is one generator for all classes in the order of their first candidates, and nothing is sorted: the
published grids come out. NumPy guarantees the stream of :class:`numpy.random.RandomState`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from heldout.core.errors import UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.core.records import Table
from heldout.curate.crowd.selection import Candidate
from heldout.data.published.imagenetv2_grids import PublishedGrid

ORIGINALS = 20
"""Annotated originals that a class needs before its histogram of frequencies can be matched."""
PUBLISHED_ORIGINALS = 50
"""Validation images of every class of ImageNet: how many controls there are where none are named."""
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "heldout/crowd/grid")


class GridSizes(NamedTuple):
    """How many images of each role a full grid has; the published numbers by default."""

    candidates: int = 42
    positive: int = 3
    negative: int = 3

    @property
    def total(self) -> int:
        """How many images a full grid shows."""
        return sum(self)


PUBLISHED_SIZES = GridSizes()


@dataclass(frozen=True)
class Control:
    """An image whose answer is known: place ``index`` of the list of a class.

    ``image_id`` is None where nobody has said which images these are.
    """

    class_id: str
    index: int
    image_id: str | None = None

    @property
    def name(self) -> str:
        """The image, or the class and the index: ``n01440764#17``."""
        return self.image_id or f"{self.class_id}#{self.index}"


@dataclass(frozen=True)
class Slot:
    """One place of a grid.

    ``class_id`` and ``index`` are those of a :class:`Control`; None for a candidate.
    """

    role: Literal["candidate", "positive", "negative"]
    image_id: str | None
    class_id: str | None = None
    index: int | None = None


@dataclass(frozen=True, eq=False)
class Controls:
    """The controls that may be drawn for each class, in a fixed order."""

    positive: Mapping[str, Sequence[Control]]
    negative: Mapping[str, Sequence[Control]]

    @classmethod
    def of_originals(
        cls,
        originals: Mapping[str, Sequence[str | None]],
        classes: Iterable[str],
        nearest: Callable[[str], Iterable[str]],
    ) -> Controls:
        """Images of an original set: positive ones of the class, negative ones of a similar class.

        ``originals``  class -> its images in order; None where it is not known which image it is
        ``nearest``    a class -> classes by similarity. The first other one with originals is taken
        """
        lists = {
            label: [Control(label, index, image) for index, image in enumerate(images)]
            for label, images in originals.items()
        }
        positive, negative = {}, {}
        for label in classes:
            similar = next((c for c in nearest(label) if c != label and lists.get(c)), None)
            positive[label] = lists.get(label, [])
            negative[label] = [] if similar is None else lists[similar]
        return cls(positive, negative)

    @classmethod
    def of_marks(cls, marks: Iterable[tuple[str, str, str]]) -> Controls:
        """Images that somebody marked by hand: (image, class, ``positive`` or ``negative``)."""
        positive: dict[str, list[Control]] = {}
        negative: dict[str, list[Control]] = {}
        seen: set[tuple[str, str]] = set()
        for image, label, answer in marks:
            if answer not in ("positive", "negative"):
                raise UserError(
                    f"control {image!r} is {answer!r}", fix="mark it as positive or as negative"
                )
            if (image, label) in seen:
                raise UserError(
                    f"control {image!r} is marked twice for class {label}", fix="mark it once"
                )
            seen.add((image, label))
            found = (positive if answer == "positive" else negative).setdefault(label, [])
            found.append(Control(label, len(found), image))
        return cls(positive, negative)

    @property
    def images(self) -> set[str]:
        """All images that may be drawn."""
        lists = (*self.positive.values(), *self.negative.values())
        return {c.image_id for found in lists for c in found if c.image_id is not None}


@dataclass(frozen=True, kw_only=True)
class ImageGrid:
    """One grid: the question whether each of its images shows an object of ``class_id``.

    A backend gets a list of these. It shows the images of ``slots`` in that order and asks for those
    that show the class; people must not see roles, and ids only as tokens that tell nothing. What
    is selected comes back as ``vote`` judgements about (image, ``class_id``), all other slots as
    not selected, with ``grid`` as evidence; control accuracy is measured by the slots' roles.

    ``grid``        names the grid: a UUID made of its content, so that composing it again changes
                    nothing, and submitting it again can be refused
    ``number``      which grid of its class it is, from 1
    ``candidates``  in the order of their chunk; the last ``topped_up`` of them are asked about again
    ``positive``, ``negative``  controls, as drawn
    ``order``       the places of the shown images in candidates, positive and negative, joined
    """

    record: ClassVar[str] = "grid"
    table: ClassVar[Table] = Table(
        "grids", ("class=class_id", "number:,", "images:,", "topped_up:,", "grid")
    )
    class_id: str
    number: int
    candidates: tuple[str, ...]
    topped_up: int = 0
    positive: tuple[Control, ...] = ()
    negative: tuple[Control, ...] = ()
    order: tuple[int, ...]

    @property
    def images(self) -> int:
        """How many images it shows."""
        return len(self.order)

    @property
    def names(self) -> tuple[str, ...]:
        """What is shown, in order: ids of images, or class and index of unknown controls."""
        drawn = (*self.candidates, *(c.name for c in (*self.positive, *self.negative)))
        return tuple(drawn[place] for place in self.order)

    @property
    def grid(self) -> str:
        """Its name."""
        return str(uuid.uuid5(_NAMESPACE, canonical_json([self.class_id, self.names])))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What is shown, in order."""
        drawn = [
            *(Slot("candidate", image) for image in self.candidates),
            *(Slot("positive", c.image_id, c.class_id, c.index) for c in self.positive),
            *(Slot("negative", c.image_id, c.class_id, c.index) for c in self.negative),
        ]
        return tuple(drawn[place] for place in self.order)

    def to_dict(self) -> dict[str, Any]:
        """As JSON: candidates in the order of their chunk, and what is shown."""
        return {
            "grid": self.grid,
            "class_id": self.class_id,
            "number": self.number,
            "candidates": list(self.candidates),
            "topped_up": self.topped_up,
            "slots": [asdict(slot) for slot in self.slots],
        }

    def published(self) -> PublishedGrid:
        """In the published form, not submitted yet."""
        return PublishedGrid(
            wnid=self.class_id,
            images_to_label=list(self.candidates),
            images_pos_control=[control.name for control in self.positive],
            images_neg_control=[control.name for control in self.negative],
            images_all=list(self.names),
            uuid=self.grid,
        )


def compose(
    candidates: Iterable[Candidate],
    controls: Controls | None,
    *,
    sizes: GridSizes = PUBLISHED_SIZES,
    seed: int = 0,
    legacy: bool = False,
) -> list[ImageGrid]:
    """The grids in which all candidates are asked about; without ``controls`` none are shown.

    A class must have the controls of one full grid; those that stand for missing candidates are
    left out where it has no more.
    """
    stream_of = _streams(seed, legacy=legacy)
    return [
        grid
        for label, images in _by_class(candidates, legacy=legacy).items()
        for grid in _grids_of_class(label, images, controls, sizes, stream_of(label))
    ]


def _grids_of_class(
    label: str,
    images: Sequence[str],
    controls: Controls | None,
    sizes: GridSizes,
    stream: np.random.RandomState,
) -> list[ImageGrid]:
    size = sizes.candidates
    chunks = [list(images[start : start + size]) for start in range(0, len(images), size)]
    missing = size - len(chunks[-1])
    topped_up = missing if len(chunks) > 1 else 0
    if topped_up:
        earlier = len(images) - len(chunks[-1])
        places = stream.choice(earlier, topped_up, replace=False)
        chunks[-1] += [images[place] for place in places]
    made = []
    for number, chunk in enumerate(chunks, start=1):
        more = size - len(chunk)
        drawn: list[tuple[Control, ...]] = [(), ()]
        if controls is not None:
            wanted = {"positive": more - more // 2, "negative": more // 2}
            drawn = [
                _drawn(getattr(controls, role).get(label, ()), getattr(sizes, role), extra, stream,
                       f"{role} controls of class {label}")
                for role, extra in wanted.items()
            ]  # fmt: skip
        made.append(
            ImageGrid(
                class_id=label,
                number=number,
                candidates=tuple(chunk),
                topped_up=topped_up if number == len(chunks) else 0,
                positive=drawn[0],
                negative=drawn[1],
                order=_shuffled(len(chunk) + sum(map(len, drawn)), stream),
            )
        )
    return made


def _drawn(
    known: Sequence[Control], needed: int, extra: int, stream: np.random.RandomState, what: str
) -> tuple[Control, ...]:
    """Controls drawn from those of a class: those of a full grid, and as many extra ones as there are."""
    if len(known) < needed:
        raise UserError(
            f"there are {len(known):,} {what}, and a grid shows {needed:,}",
            fix="name more controls, or ask for fewer with --grid or for none",
        )
    if not known:
        return ()
    # Also asked for none, as published: it moves the stream on.
    places = stream.choice(len(known), min(needed + extra, len(known)), replace=False)
    return tuple(known[place] for place in places)


def compose_special(
    candidates: Iterable[Candidate],
    controls: Controls,
    annotated: Mapping[str, Collection[str]],
    *,
    originals: int = ORIGINALS,
    sizes: GridSizes = PUBLISHED_SIZES,
    seed: int = 0,
    legacy: bool = False,
) -> list[ImageGrid]:
    """Grids that bring classes to ``originals`` annotated originals.

    ``annotated``  class -> its originals that have enough votes, of all classes that are wanted

    A class below that gets grids of one third new positive controls, a third candidates and a third
    negative controls, which also stand for candidates that it does not have (16 of each of 48, as in
    ``get_additional_pos_val_images.py``): as many grids as it takes, or as it has originals for. With
    ``legacy`` images are drawn by one :class:`random.Random` in the order of the classes, as published.
    """
    third = sizes.total // 3
    if not third:
        raise UserError(
            f"a special grid of {sizes.total} images has no room for three roles",
            fix="ask for grids of at least 3 images",
        )
    by_class = _by_class(candidates, legacy=legacy)
    one, stream_of = random.Random(seed), _streams(seed, legacy=legacy)
    made: list[ImageGrid] = []
    for label in annotated if legacy else sorted(annotated):
        known = set(annotated[label])
        left = [control for control in controls.positive[label] if control.name not in known]
        images, negative = by_class.get(label, []), controls.negative.get(label, ())
        drawn = one if legacy else random.Random(f"{seed} {label}")
        stream = stream_of(label)
        number = 0
        while len(known) < originals and left:
            number += 1
            positive = drawn.sample(left, min(third, len(left)))
            asked = drawn.sample(images, min((sizes.total - third) // 2, len(images)))
            others = sizes.total - third - len(asked)
            drawn_negative = drawn.sample(negative, min(others, len(negative)))
            known |= {control.name for control in positive}
            left = [control for control in left if control not in positive]
            made.append(
                ImageGrid(
                    class_id=label,
                    number=number,
                    candidates=tuple(asked),
                    positive=tuple(positive),
                    negative=tuple(drawn_negative),
                    order=_shuffled(len(positive) + len(asked) + len(drawn_negative), stream),
                )
            )
    return made


def _by_class(candidates: Iterable[Candidate], *, legacy: bool) -> dict[str, list[str]]:
    """Class -> its candidates: both as they come for ``legacy``, else both sorted."""
    found: dict[str, list[str]] = {}
    for image, label in candidates if legacy else sorted(candidates):
        found.setdefault(label, []).append(image)
    return found if legacy else dict(sorted(found.items()))


def _streams(seed: int, *, legacy: bool) -> Callable[[str], np.random.RandomState]:
    """Class -> the generator it draws from: the published one, which all share, or its own."""
    if legacy:
        one = np.random.RandomState(seed)
        return lambda class_id: one

    def own(class_id: str) -> np.random.RandomState:
        digest = sha256_text(f"{seed} {class_id}")
        return np.random.RandomState([int(digest[at : at + 8], 16) for at in range(0, 64, 8)])

    return own


def _shuffled(count: int, stream: np.random.RandomState) -> tuple[int, ...]:
    """A permutation; a list is shuffled, since NumPy may shuffle an array in another way."""
    order = list(range(count))
    stream.shuffle(order)
    return tuple(order)
