"""Composition of grids: against a slow restatement of the rules, and against the real HITs."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.curate.crowd.grids import (
    Control,
    Controls,
    GridSizes,
    ImageGrid,
    compose,
    compose_special,
)
from heldout.curate.crowd.selection import Candidate
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import SpaceDistances
from heldout.data.published.imagenetv2 import read_order
from heldout.data.published.imagenetv2_grids import PublishedGrid, read_candidates, read_grids

CLASSES = ("cat", "dog", "owl")
NEXT = {"cat": "dog", "dog": "owl", "owl": "cat"}


def candidates_of(counts: Mapping[str, int], seed: int = 0) -> list[Candidate]:
    """So many candidates of each class, classes mixed as in the published lists."""
    listed = [
        Candidate(f"{n:02}-{label[::-1]}", label) for label, k in counts.items() for n in range(k)
    ]
    random.Random(seed).shuffle(listed)
    return listed


def controls_of(count: int) -> Controls:
    originals = {label: [f"{label}/{n}" for n in range(count)] for label in CLASSES}
    return Controls.of_originals(originals, CLASSES, lambda label: (label, NEXT[label]))


def restated(
    candidates: Sequence[Candidate], controls: Controls, sizes: GridSizes, seed: int
) -> Iterator[PublishedGrid]:
    """What the published program does, step by step and on names alone."""
    stream = np.random.RandomState(seed)
    for label in dict.fromkeys(label for _, label in candidates):
        images = [image for image, other in candidates if other == label]
        chunks = [images[k : k + sizes.candidates] for k in range(0, len(images), sizes.candidates)]
        short = len(chunks[-1])
        if len(chunks) > 1 and short < sizes.candidates:
            for place in stream.choice(
                len(images) - short, sizes.candidates - short, replace=False
            ):
                chunks[-1].append(images[place])
        for chunk in chunks:
            missing = sizes.candidates - len(chunk)
            sides = []
            for known, wanted in (
                (controls.positive[label], sizes.positive + math.ceil(missing / 2)),
                (controls.negative[label], sizes.negative + math.floor(missing / 2)),
            ):
                places = stream.choice(len(known), min(wanted, len(known)), replace=False)
                sides.append([known[place].name for place in places])
            shown = chunk + sides[0] + sides[1]
            stream.shuffle(shown)
            yield PublishedGrid(
                wnid=label,
                images_to_label=chunk,
                images_pos_control=sides[0],
                images_neg_control=sides[1],
                images_all=shown,
                uuid="",
            )


def content(grid: PublishedGrid | ImageGrid) -> tuple[object, ...]:
    """All that was composed, without who submitted it when."""
    shown = grid.published() if isinstance(grid, ImageGrid) else grid
    return (
        shown.wnid,
        shown.images_to_label,
        shown.images_pos_control,
        shown.images_neg_control,
        shown.images_all,
    )


COUNTS = st.fixed_dictionaries({label: st.integers(0, 20) for label in CLASSES})
SIZES = st.builds(GridSizes, st.integers(1, 7), st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=150)
@given(counts=COUNTS, sizes=SIZES, known=st.integers(3, 9), seed=st.integers(0, 99))
def test_legacy_is_the_published_program(
    counts: dict[str, int], sizes: GridSizes, known: int, seed: int
) -> None:
    candidates, controls = candidates_of(counts), controls_of(known)
    made = compose(candidates, controls, sizes=sizes, seed=seed, legacy=True)
    expected = list(restated(candidates, controls, sizes, seed))
    assert [content(grid) for grid in made] == [content(grid) for grid in expected]


@settings(max_examples=150)
@given(
    counts=COUNTS,
    sizes=SIZES,
    known=st.integers(3, 9),
    seed=st.integers(0, 99),
    legacy=st.booleans(),
)
def test_what_holds_of_every_composition(
    counts: dict[str, int], sizes: GridSizes, known: int, seed: int, legacy: bool
) -> None:
    candidates, controls = candidates_of(counts), controls_of(known)
    made = compose(candidates, controls, sizes=sizes, seed=seed, legacy=legacy)
    assert len({grid.grid for grid in made}) == len(made)
    classes = list(dict.fromkeys(label for _, label in candidates))
    assert list(dict.fromkeys(g.class_id for g in made)) == (classes if legacy else sorted(classes))
    for label, count in counts.items():
        listed = [image for image, other in candidates if other == label]
        if not legacy:
            listed = sorted(listed)
        grids = [grid for grid in made if grid.class_id == label]
        assert [grid.number for grid in grids] == list(range(1, len(grids) + 1))
        assert len(grids) == math.ceil(count / sizes.candidates)
        first = [image for g in grids for image in g.candidates[: len(g.candidates) - g.topped_up]]
        assert first == listed  # everything is asked about, in order
        for grid in grids:
            repeated = grid.candidates[len(grid.candidates) - grid.topped_up :]
            assert len(set(grid.candidates)) == len(grid.candidates)
            assert set(repeated) <= set(listed[: (len(grids) - 1) * sizes.candidates])
            missing = sizes.candidates - len(grid.candidates)
            assert not missing or len(grids) == 1
            assert len(grid.positive) == min(sizes.positive + (missing + 1) // 2, known)
            assert len(grid.negative) == min(sizes.negative + missing // 2, known)
            assert {control.class_id for control in grid.positive} <= {label}
            assert {control.class_id for control in grid.negative} <= {NEXT[label]}
            shown = Counter(slot.role for slot in grid.slots)
            assert shown["candidate"] == len(grid.candidates) and shown["positive"] == len(
                grid.positive
            )
            assert sorted(grid.names) == sorted(
                [*grid.candidates, *(c.name for c in grid.positive + grid.negative)]
            )
            assert tuple(slot.image_id for slot in grid.slots) == grid.names


@settings(max_examples=50)
@given(counts=COUNTS, sizes=SIZES, order=st.integers(0, 99))
def test_a_grid_depends_on_its_class_alone(
    counts: dict[str, int], sizes: GridSizes, order: int
) -> None:
    controls = controls_of(9)
    made = compose(candidates_of(counts), controls, sizes=sizes, seed=5)
    assert compose(candidates_of(counts, order), controls, sizes=sizes, seed=5) == made
    alone = [Candidate(f"{n:02}-god", "dog") for n in range(counts["dog"])]
    dogs = [grid for grid in made if grid.class_id == "dog"]
    assert compose(alone, controls, sizes=sizes, seed=5) == dogs


def test_seeds_and_classes_draw_differently() -> None:
    candidates, controls = candidates_of({"cat": 5, "dog": 5}), controls_of(9)
    made = [g for seed in (0, 1) for g in compose(candidates, controls, seed=seed)]
    assert len({grid.order for grid in made}) == len({grid.grid for grid in made}) == 4


def test_without_controls_a_short_chunk_stays_short() -> None:
    (grid,) = compose(candidates_of({"cat": 5}), None)
    assert sorted(grid.names) == [f"{n:02}-tac" for n in range(5)]
    assert len(grid.positive) == len(grid.negative) == 0


def test_a_grid_without_its_controls_is_refused() -> None:
    few = Controls.of_marks([("x", "cat", "positive"), ("y", "cat", "negative")])
    with pytest.raises(UserError, match="1 positive controls of class cat, and a grid shows 3"):
        compose(candidates_of({"cat": 5}), few)
    (grid,) = compose(candidates_of({"cat": 5}), few, sizes=GridSizes(42, 1, 1))
    assert grid.positive == (Control("cat", 0, "x"),)  # there are no more for the missing ones
    for marks, said in (
        ([("x", "cat", "maybe")], "is 'maybe'"),
        ([("x", "cat", "positive"), ("x", "cat", "negative")], "marked twice"),
    ):
        with pytest.raises(UserError, match=said):
            Controls.of_marks(marks)


def test_unknown_controls_are_named_by_class_and_index() -> None:
    originals: dict[str, list[str | None]] = {"cat": ["c0", None], "dog": [None] * 3}
    controls = Controls.of_originals(originals, ["cat"], lambda label: ("cat", "eel", "dog"))
    (grid,) = compose([Candidate("a", "cat")], controls, sizes=GridSizes(1, 2, 2))
    assert sorted(c.name for c in grid.positive) == ["c0", "cat#1"]
    assert {c.name.partition("#")[0] for c in grid.negative} == {"dog"}
    slot = next(s for s in grid.to_dict()["slots"] if s["class_id"] == "cat" and s["index"] == 1)
    assert slot == {"role": "positive", "image_id": None, "class_id": "cat", "index": 1}


# special grids


@settings(max_examples=100)
@given(
    counts=COUNTS,
    known=st.integers(1, 30),
    done=st.fixed_dictionaries({label: st.integers(0, 12) for label in CLASSES}),
    wanted=st.integers(1, 12),
    legacy=st.booleans(),
)
def test_special_grids_reach_the_wanted_number(
    counts: dict[str, int], known: int, done: dict[str, int], wanted: int, legacy: bool
) -> None:
    controls, sizes = controls_of(known), GridSizes(9, 2, 1)
    annotated = {k: [c.name for c in controls.positive[k][:n]] for k, n in done.items()}
    made = compose_special(
        candidates_of(counts), controls, annotated, originals=wanted, sizes=sizes, legacy=legacy
    )
    for label in CLASSES:
        grids = [grid for grid in made if grid.class_id == label]
        fresh = [control.name for grid in grids for control in grid.positive]
        assert len(set(fresh)) == len(fresh) and not set(fresh) & set(annotated[label])
        had = len(annotated[label])
        assert had + len(fresh) >= min(wanted, known)
        assert bool(grids) == (had < min(wanted, known))
        # One grid fewer would not do.
        assert not grids or had + len(fresh) - len(grids[-1].positive) < wanted
        for grid in grids:
            assert len(grid.positive) == 4 or grid is grids[-1]
            assert len(grid.candidates) == min(4, counts[label])
            assert len(grid.negative) == min(12 - 4 - len(grid.candidates), known)


def test_legacy_special_grids_draw_from_one_generator() -> None:
    candidates, controls = candidates_of({"cat": 30, "dog": 3, "owl": 30}), controls_of(50)
    annotated = {
        label: [c.name for c in controls.positive[label][:n]]
        for label, n in (("cat", 19), ("dog", 7), ("owl", 20))
    }
    rng = random.Random(674517721)
    expected = []
    for label, asked in (("cat", 16), ("dog", 3)):
        left = [c.name for c in controls.positive[label] if c.name not in annotated[label]]
        positive = rng.sample(left, 16)
        chosen = rng.sample([image for image, other in candidates if other == label], asked)
        others = [control.name for control in controls.negative[label]]
        expected.append((label, chosen, positive, rng.sample(others, 32 - asked)))
    made = compose_special(candidates, controls, annotated, seed=674517721, legacy=True)
    assert [content(grid)[:4] for grid in made] == expected
    assert all(len(set(grid.names)) == 48 for grid in made)


# the real HITs


def runs(folder: Path) -> Iterator[tuple[list[PublishedGrid], list[Candidate]]]:
    """Every file of HITs that has a list with its candidates, and these with their classes."""
    lists = [read_candidates(path) for path in sorted((folder / "hit_candidates").glob("*.json"))]
    for path in sorted((folder / "hits").glob("*.json")):
        hits = read_grids(path)
        classes = {image: grid.wnid for grid in hits for image in grid.images_to_label}
        for listed in lists:
            if set(listed) == set(classes):
                yield hits, [Candidate(image, classes[image]) for image in listed]


class Real(NamedTuple):
    """The published files, and controls known by class and index alone.

    ``runs``      the HITs of each file, and the grids composed of its candidates
    ``class_of``  validation image -> its class
    ``nearest``   class -> the most similar other one
    """

    folder: Path
    controls: Controls
    runs: list[tuple[list[PublishedGrid], list[ImageGrid]]]
    class_of: dict[str, str]
    nearest: dict[str, str]

    def placed(self) -> Iterator[tuple[tuple[str, int], str]]:
        """Class and index of every control that was drawn, and the image that was shown."""
        for hits, made in self.runs:
            for hit, grid in zip(hits, made, strict=True):
                images = [*hit.images_pos_control, *hit.images_neg_control]
                for control, image in zip(grid.positive + grid.negative, images, strict=True):
                    yield (control.class_id, control.index), image


@pytest.fixture(scope="module")
def real(shared_data: Path) -> Real:
    folder = shared_data / "imagenetv2"
    distances = SpaceDistances(LabelSpace.load("imagenet-1k"))
    nearest = {label: distances.most_similar(label, 2)[1] for label in distances.space.ids}
    unknown: dict[str, list[str | None]] = {label: [None] * 50 for label in nearest}
    controls = Controls.of_originals(unknown, nearest, lambda label: (label, nearest[label]))
    composed = [(hits, compose(asked, controls, legacy=True)) for hits, asked in runs(folder)]
    class_of = dict(read_order(folder / "datasets/imagenet-validation-original.json"))
    return Real(folder, controls, composed, class_of, nearest)


@pytest.mark.shared
def test_real_hits_are_reproduced(real: Real) -> None:
    """Chunks, top-ups and slots exactly; controls as indices into one order per class."""
    assert (len(real.runs), sum(len(hits) for hits, _ in real.runs)) == (20, 875)
    for hits, made in real.runs:
        assert len(made) == len(hits)
        for grid, hit in zip(made, hits, strict=True):
            assert (grid.class_id, list(grid.candidates)) == (hit.wnid, hit.images_to_label)
            shown = [*hit.images_to_label, *hit.images_pos_control, *hit.images_neg_control]
            assert [shown[place] for place in grid.order] == hit.images_all
            assert len(grid.positive) == len(hit.images_pos_control)
    order: dict[tuple[str, int], str] = {}
    drawn_again = 0
    for place, image in real.placed():
        assert real.class_of[image] == place[0]
        drawn_again += place in order
        assert order.setdefault(place, image) == image
    assert len(set(order.values())) == len(order)  # one order per class: no image has two places
    assert (len(order), drawn_again) == (4298, 1458)


@pytest.mark.shared
def test_the_published_special_images_are_drawn(real: Real) -> None:
    """Their table is what the published seed draws; their grids are not among the shared HITs.

    What had votes on that day was not published: how many originals and candidates each class had
    (``special_counts.json``) was found by search, as numbers that draw the images below. Orders of
    validation images are those of the grids of November, so nothing else was fitted.
    """
    path = real.folder / "metadata/additional_pos_val_images_for_20_per_wnid.json"
    published = json.loads(path.read_text())
    counts = json.loads((Path(__file__).parent / "special_counts.json").read_text())
    annotated = {k: [f"{k}#{i}" for i in range(done)] for k, (done, _) in counts.items()}
    candidates = [Candidate(f"{k}-{i}", k) for k, (_, many) in counts.items() for i in range(many)]
    made = compose_special(candidates, real.controls, annotated, seed=674517721, legacy=True)
    assert [grid.class_id for grid in made] == list(published)
    assert Counter(len(grid.candidates) for grid in made) == {16: 248, 14: 1}
    index = {image: place[1] for place, image in real.placed()}
    negatives = positives = 0
    for grid in made:
        images = published[grid.class_id]
        sizes = (len(grid.positive), len(grid.candidates), len(grid.negative))
        assert sizes == tuple(len(images[k]) for k in ("pos_control", "candidates", "neg_control"))
        assert {real.class_of[image] for image in images["pos_control"]} == {grid.class_id}
        assert {real.class_of[i] for i in images["neg_control"]} == {real.nearest[grid.class_id]}
        for control, image in zip(grid.negative, images["neg_control"], strict=True):
            if image in index:
                assert control.index == index[image]
                negatives += 1
        # Of the positive ones only some were left: what is known is their order.
        drawn = zip(grid.positive, images["pos_control"], strict=True)
        known = sorted((c.index, index[image]) for c, image in drawn if image in index)
        assert all(one[1] < other[1] for one, other in pairwise(known))
        positives += len(known)
    assert (negatives, positives) == (916, 460)
