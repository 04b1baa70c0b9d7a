"""Known ways in which class ids are miscounted, each as the class that every id then means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from heldout.core.errors import LabelError
from heldout.data.labels import PUBLISHED_SUBSETS
from heldout.data.labels.label_space import LabelSpace, folded

Side = Literal["predictions", "testset"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reading:
    """One way to read class ids.

    ``code``     the finding's code if this reading is the right one
    ``what``     the miscount as the beginning of a sentence
    ``side``     whose ids it says are miscounted
    ``relabel``  int64 (positions,): the test set's class that each stored id means, -1 for none
    ``hint``     what to do about it beyond the repair
    """

    code: str
    what: str
    side: Side
    relabel: np.ndarray
    hint: str = ""


def known_readings(
    space: LabelSpace, target: LabelSpace, labels: np.ndarray, *, positions: int
) -> list[Reading]:
    """All readings that could apply, without repeats and without the plain one.

    ``space``      in which the outputs are said to be; ``target`` the test set's
    ``labels``     of the test set's images, indices of ``target``
    ``positions``  how many ids the outputs have: the largest id plus one, or more
    """
    plain = _plain(space, target, positions)
    seen = {plain.tobytes()}
    found: list[Reading] = []
    for reading in (
        *_shifts(plain),
        *_orders(space, target, positions),
        *_spaces(space, target, labels, positions),
    ):
        if reading.relabel.tobytes() not in seen and (reading.relabel >= 0).any():
            seen.add(reading.relabel.tobytes())
            found.append(reading)
    return found


def _plain(space: LabelSpace, target: LabelSpace, positions: int) -> np.ndarray:
    place = {class_id: index for index, class_id in enumerate(target.ids)}
    relabel = np.full(positions, -1, dtype=np.int64)
    for position, class_id in enumerate(space.ids[:positions]):
        relabel[position] = place.get(class_id, -1)
    return relabel


def _shifts(plain: np.ndarray) -> Iterator[Reading]:
    up = np.full(len(plain), -1, dtype=np.int64)
    up[1:] = plain[:-1]
    yield Reading(
        code="off-by-one",
        what="class ids are one too high: they count from 1, or a background class stands first",
        side="predictions",
        relabel=up,
        hint="subtract 1 from every id",
    )
    down = np.full(len(plain), -1, dtype=np.int64)
    down[:-1] = plain[1:]
    yield Reading(
        code="off-by-one",
        what="class ids are one too low for the test set, whose labels may count from 1",
        side="testset",
        relabel=down,
        hint="subtract 1 from the class indices of the test set, or add 1 to every id",
    )


def _orders(space: LabelSpace, target: LabelSpace, positions: int) -> Iterator[Reading]:
    """Other orders of the same classes, in the outputs and, inverted, in the test set."""
    if space.fingerprint != target.fingerprint:
        return
    k = len(target)
    names = [item.names or (item.id,) for item in target]
    orders: list[tuple[str, str, Sequence[int]]] = [
        (
            "text-sorted-classes",
            "numbers sorted as text: 0, 1, 10, 100, …",
            _by(map(str, range(k))),
        ),
        (
            "text-sorted-classes",
            "numbers from 1 sorted as text: 1, 10, 100, 1000, …",
            _by(map(str, range(1, k + 1))),
        ),
        ("name-sorted-classes", "sorted by name", _by(n[0] for n in names)),
        ("name-sorted-classes", "sorted by name without case", _by(folded(n[0]) for n in names)),
        ("name-sorted-classes", "sorted by all names", _by(", ".join(n) for n in names)),
        (
            "name-sorted-classes",
            "sorted by all names without case",
            _by(folded(", ".join(n)) for n in names),
        ),
        ("id-sorted-classes", "sorted by class id", _by(target.ids)),
        ("id-sorted-classes", "sorted by WordNet id", _by(item.node for item in target)),
    ]
    hints = {
        "text-sorted-classes": "import its folders by index: --class-names index",
        "name-sorted-classes": "import its folders by name: --class-names name",
        "id-sorted-classes": "import its folders by WordNet id: --class-names wnid",
    }
    for code, what, order in orders:
        meant = np.full(positions, -1, dtype=np.int64)
        meant[: min(k, positions)] = np.asarray(order, dtype=np.int64)[:positions]
        yield Reading(
            code=code,
            what=f"class ids of the outputs count classes as {what}",
            side="predictions",
            relabel=meant,
        )
        inverse = np.full(positions, -1, dtype=np.int64)
        rank = np.argsort(np.asarray(order, dtype=np.int64), kind="stable")
        inverse[: min(k, positions)] = rank[:positions]
        yield Reading(
            code=code,
            what=f"labels of the test set count classes as {what}",
            side="testset",
            relabel=inverse,
            hint=hints[code],
        )


def _by(keys: object) -> list[int]:
    """Positions in the order of their keys; equal keys keep their order."""
    listed = list(keys)  # type: ignore[call-overload]
    return sorted(range(len(listed)), key=listed.__getitem__)


def _spaces(
    space: LabelSpace, target: LabelSpace, labels: np.ndarray, positions: int
) -> Iterator[Reading]:
    """Ids that count within another list of classes: a subset's own, or a whole one's."""
    place = {class_id: index for index, class_id in enumerate(target.ids)}

    def within(ids: Sequence[str]) -> np.ndarray:
        relabel = np.full(positions, -1, dtype=np.int64)
        meant = [place.get(class_id, -1) for class_id in ids[:positions]]
        relabel[: len(meant)] = meant
        return relabel

    if space.fingerprint != target.fingerprint:
        yield Reading(
            code="wrong-label-space",
            what=f"class ids are positions among the {len(target):,} classes of the test set, not "
            f"of {space.name}",
            side="predictions",
            relabel=within(target.ids),
            hint=f"import them in the label space {target.name} with --classes",
        )
    present = np.unique(labels[labels >= 0])
    if 1 < len(present) < len(target):
        yield Reading(
            code="wrong-label-space",
            what=f"class ids are positions among the {len(present)} classes that the test set has",
            side="predictions",
            relabel=within([target.ids[index] for index in present]),
        )
        names = {
            index: folded((target.classes[index].names or (target.ids[index],))[0])
            for index in present
        }
        yield Reading(
            code="wrong-label-space",
            what=f"class ids are places among the {len(present)} class folders that the test set has, "
            "sorted by name",
            side="predictions",
            relabel=within([target.ids[index] for index in sorted(present, key=names.__getitem__)]),
            hint="map every place to the id of its class before comparing",
        )
    for name in ("imagenet-1k", "imagenet-21k", *PUBLISHED_SUBSETS):
        if name == "imagenet-21k" and positions <= 1000:
            continue  # nothing there can be told from the smaller list, and it is slow to read
        other = _load(name)
        if other.fingerprint not in (space.fingerprint, target.fingerprint):
            yield Reading(
                code="wrong-label-space",
                what=f"class ids are positions among the {len(other):,} classes of {name}",
                side="predictions",
                relabel=within(other.ids),
                hint=f"import them with --classes {name}, and score with "
                "--label-map subset:restricted or subset:full",
            )
    for name in PUBLISHED_SUBSETS:
        other = _load(name)
        if len(present) and present[-1] < len(other) < len(target) and len(target) <= positions:
            relabel = np.full(positions, -1, dtype=np.int64)
            for index, class_id in enumerate(other.ids):
                if class_id in place:
                    relabel[place[class_id]] = index
            yield Reading(
                code="wrong-label-space",
                what=f"labels of the test set are positions among the {len(other)} classes of "
                f"{name}, not among the {len(target):,} of {target.name}",
                side="testset",
                relabel=relabel,
                hint=f"import the test set with --classes {name}",
            )


def _load(name: str) -> LabelSpace:
    try:
        return LabelSpace.load(name)
    except LabelError as error:  # a built-in name that is not there is a fault of the package
        raise RuntimeError(f"no built-in label space {name}") from error
