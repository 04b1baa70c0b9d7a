"""Small generated worlds: a truth in plain Python, and the same as a test set and predictions.

The oracles of these tests read the plain form with loops; the code under test reads the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from scipy.special import ndtri

from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    truth_table,
)
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import get_metric
from heldout.models.predictions import Predictions, top_k


@dataclass(frozen=True)
class Image:
    """One image: its class, its lists, and whether reviewers set it aside."""

    id: str
    label: int | None
    correct: tuple[int, ...] = ()
    unclear: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    problematic: bool = False


@dataclass(frozen=True)
class World:
    """Images and one or more models; ``logits[model][image]`` is a row, or None for a failure."""

    classes: int
    images: tuple[Image, ...]
    logits: Mapping[str, tuple[tuple[float, ...] | None, ...]] = field(default_factory=dict)

    @property
    def space(self) -> LabelSpace:
        return space_of(self.classes)

    def guesses(self, model: str, row: int) -> list[int]:
        """Classes best first, ties to the smaller index; empty for a failure."""
        logits = self.logits[model][row]
        if logits is None:
            return []
        return sorted(range(len(logits)), key=lambda c: (-logits[c], c))

    def testset(self, order: Sequence[int] | None = None, **columns: Sequence[Any]) -> TestSet:
        return world_testset(self, order, **columns)

    def predictions(
        self, *, keep: str = "logits", k: int = 5, dtype: str = "<f4"
    ) -> list[Predictions]:
        return [self.prediction(model, keep=keep, k=k, dtype=dtype) for model in self.logits]

    def prediction(
        self,
        model: str,
        *,
        keep: str = "logits",
        k: int = 5,
        dtype: str = "<f4",
        order: Sequence[int] | None = None,
        space: LabelSpace | None = None,
    ) -> Predictions:
        rows = list(order) if order is not None else list(range(len(self.images)))
        given = [self.logits[model][row] for row in rows]
        width = len(space or self.space)
        logits = np.array([r if r is not None else (np.nan,) * width for r in given], dtype=dtype)
        failed = [i for i, r in enumerate(given) if r is None]
        topk = top_k(np.nan_to_num(logits.astype(np.float64)), k)
        topk[failed] = -1
        return Predictions(
            model=model,
            image_ids=pa.array([self.images[row].id for row in rows], pa.string()),
            topk=topk,
            label_space=space or self.space,
            logits=logits if keep == "logits" else None,
            failures=dict.fromkeys(failed, "cannot be read"),
        )


def space_of(classes: int, name: str = "made") -> LabelSpace:
    """Classes c0, c1, … with names."""
    return LabelSpace(name, tuple(Class(f"c{i}", (f"class {i}",)) for i in range(classes)))


def world_testset(
    world: World,
    order: Sequence[int] | None = None,
    *,
    types: Mapping[str, ColumnType] | None = None,
    members: Sequence[tuple[str, str, str]] = (),
    name: str = "made",
    space: LabelSpace | None = None,
    **columns: Sequence[Any],
) -> TestSet:
    """The world as a test set, its rows in any order; ``columns`` follow the world's own order."""
    rows = list(order) if order is not None else list(range(len(world.images)))
    images = [world.images[row] for row in rows]
    space = space or world.space

    def lists(which: str) -> list[list[str]]:
        return [[space.ids[c] for c in getattr(image, which)] for image in images]

    truth = truth_table(
        [image.id for image in images],
        [None if image.label is None else space.ids[image.label] for image in images],
        correct=lists("correct"),
        unclear=lists("unclear"),
        wrong=lists("wrong"),
        problematic=[image.problematic for image in images],
    )
    table = {"image_id": [image.id for image in images]}
    table |= {key: [values[row] for row in rows] for key, values in columns.items()}
    return make_testset(
        Card(name=name, label_space=space.name, columns=dict(types or {})),
        images=image_table(table),
        truths={"original": truth},
        label_space=space,
        memberships=membership_table(list(members)),
    )


def single_label(
    labels: Sequence[int], classes: int, logits: Mapping[str, Any] | None = None
) -> World:
    """A world whose images have one class each."""
    images = tuple(Image(f"i{i:03d}", label, (label,)) for i, label in enumerate(labels))
    rows = {
        m: tuple(None if r is None else tuple(r) for r in given)
        for m, given in (logits or {}).items()
    }
    return World(classes, images, rows)


@st.composite
def worlds(
    draw: st.DrawFn,
    *,
    lists: bool = True,
    models: int = 2,
    failures: bool = True,
    every_class: bool = False,
    maximum: int = 14,
) -> World:
    """Random worlds, with conflicts, repeats, empty lists, problematic images, failures and ties."""
    classes = draw(st.integers(2, 6))
    n = draw(st.integers(max(2, classes if every_class else 2), maximum))
    label = st.integers(0, classes - 1)
    some = st.lists(label, max_size=4).map(tuple)
    images = []
    for i in range(n):
        own = i % classes if every_class else draw(label)
        if not lists:
            images.append(Image(f"i{i:03d}", own, (own,)))
            continue
        images.append(
            Image(
                f"i{i:03d}", own, draw(some), draw(some), draw(some), draw(st.booleans()) and i > 0
            )
        )
    if lists and not any(image.correct for image in images):
        images[0] = Image("i000", images[0].label, (0,), (), (), False)
    logit = st.integers(-6, 6).map(lambda v: v / 2)
    row = st.tuples(*[logit] * classes)
    rows = st.one_of(st.none(), row, row, row) if failures else row
    logits = {f"m{m}": tuple(draw(rows) for _ in range(n)) for m in range(models)}
    return World(classes, tuple(images), logits)


def measured_of(right: np.ndarray, name: str, *, clusters: Sequence[int] | None = None) -> Measured:
    """Top-1 of models m000, m001, ... that are ``right`` (images, models), as measured.

    ``clusters`` are films, which the card declares as what belongs together.
    """
    images = len(right)
    ids = [f"{name}-{i:05d}" for i in range(images)]
    space, table, card = space_of(2), {"image_id": ids}, Card(name=name, label_space="made")
    if clusters is not None:
        table |= {"film": [f"{name}-film-{c:03d}" for c in clusters]}
        card = card.updated(clusters="film", columns={"film": ColumnType(kind="categorical")})
    testset = make_testset(
        card,
        images=image_table(table),
        truths={"original": truth_table(ids, [space.ids[0]] * images)},
        label_space=space,
    )
    return Measured(
        testset=testset,
        truth="original",
        space=space,
        metric=get_metric("top1"),
        models=tuple(f"m{m:03d}" for m in range(right.shape[1])),
        values=right,
        rows=np.arange(images),
        groups=np.zeros(images, dtype=np.int64),
    )


def hits(
    rng: np.random.Generator,
    accuracy: np.ndarray,
    clusters: np.ndarray,
    *,
    film: float = 0.0,
    image: float = 0.8,
) -> np.ndarray:
    """Right and wrong (images, models): images are hard for all models alike, films half so.

    ``film`` and ``image`` are the parts of a unit normal variance that they explain.
    """
    films, models = clusters.max() + 1, len(accuracy)
    films_own = rng.standard_normal((films, models)) + rng.standard_normal((films, 1))
    shared = np.sqrt(image) * rng.standard_normal((len(clusters), 1))
    own = np.sqrt(1 - film - image) * rng.standard_normal((len(clusters), models))
    return np.asarray(np.sqrt(film / 2) * films_own[clusters] + shared + own < ndtri(accuracy))
