"""Can a classifier tell the images of two sets apart, and which images give a set away?

A test set that was drawn like another one should not be told from it. A linear classifier on frozen
features tries: it learns on one half of the images which set they are from, and is judged on the other
half, and the other way round. Of every class both sets give the same number of images, so neither
sizes nor classes tell. Images that both sets have are left out, and of near duplicates one image
stays, so that nothing that was learnt is asked again.

**The interval** is Wilson's for the images of one half. Both classifiers rest on the same chance
differences between the sets, so what one half gets right foretells the other: with all images as
independent trials, a nominal 95 % interval covers chance in 88 % of simulated pairs of equal sets;
this one does in 98 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from heldout.core.context import Context, Result
from heldout.core.errors import NotApplicable
from heldout.core.records import Table
from heldout.core.workspace import Workspace
from heldout.curate.active.classifier import Images, Logistic
from heldout.curate.pool_images import note_failures
from heldout.data.judgements.resolution import inherited_searches, near_duplicates
from heldout.data.requests import DiffRequest
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.data.testset.testset import TestSet
from heldout.data.verbs import diff as diff_of_sets
from heldout.data.verbs import diffed_sets
from heldout.models.descriptors import image_encoder
from heldout.models.embeddings import Embeddings, embed, is_embeddings, read_embeddings, rows_of
from heldout.stats.intervals import wilson

CHANCE = 0.5
FEWEST = 10
"""Images of each set that are needed."""
_PREFIX = "embeddings:"


@dataclass(frozen=True, kw_only=True)
class Discrimination:
    """How often a classifier says rightly which of two sets an image is from.

    ``images``      of each set that were compared, the same number of every class
    ``classes``     that these are of; 0 where classes do not matter, as one set has none of the other's
    ``in_both``     images of both sets, left out
    ``duplicates``  near duplicates of an image that stays, left out
    """

    record: ClassVar[str] = "discriminator"
    table: ClassVar[Table] = Table(
        "an image of {a} or of {b}? right answers of a classifier, percent; chance is 50",
        ("features", "images of each=images:,", "classes:,", "left out: in both=in_both:,",
         "duplicates:,", "right=value:%1[]"),
    )  # fmt: skip
    a: str
    b: str
    features: str
    images: int
    classes: int
    in_both: int
    duplicates: int
    value: float
    low: float
    high: float
    interval: str
    level: float
    chance: float = CHANCE


@dataclass(frozen=True, kw_only=True)
class Telltale:
    """An image, and the probability of its own set, by the classifier that did not learn from it."""

    record: ClassVar[str] = "telltale"
    table: ClassVar[Table] = Table(
        "images by which {testset} is told from {other}",
        ("image=image_id", "class=class_id", "probability:.3f"),
        rows=6,
    )
    testset: str
    other: str
    image_id: str
    class_id: str | None
    probability: float


class ToldApart(NamedTuple):
    """Two sets, how well they are told apart, and their images: of each set the surest first."""

    sets: tuple[TestSet, TestSet]
    found: Discrimination
    telltales: list[Telltale]


class _Image(NamedTuple):
    """An image of the first set (0) or of the second (1)."""

    origin: int
    image_id: str


def diff(request: DiffRequest, context: Context) -> Result:
    """What differs between two sets, and where features are named, whether a classifier sees it."""
    result = diff_of_sets(request, context)
    if request.features is not None:
        told = discriminate(*diffed_sets(request, context), request.features, context)
        result.records = [*result.records, told.found, *told.telltales]
        result.drawn = told
    return result


def discriminate(a: TestSet, b: TestSet, features: str, context: Context) -> ToldApart:
    """Tell the images of two sets apart by features: vectors, or what makes them."""
    from scipy.special import expit

    sets = (a, b)
    files = [testset.file_hashes for testset in sets]
    both = {image for image, hashed in files[0].items() if files[1].get(image, "") == hashed}
    made = [_vectors(testset, features, context) for testset in sets]
    images = [
        _Image(origin, image)
        for origin, testset in enumerate(sets)
        for image in sorted(testset.image_ids.to_pylist())  # so that sums have one order
        if image not in both
    ]
    vectors = np.concatenate(
        [
            np.asarray(known.vectors[rows_of(known, [i for k, i in images if k == origin])])
            for origin, known in enumerate(made)
        ]
    ).astype(np.float32)
    seed = derived_seed("discriminator", 0)
    rank = np.argsort(np.argsort(row_hash([f"{k} {image}" for k, image in images], seed=seed)))
    alone = first_of_duplicates(images, vectors, rank, _known_pairs(sets, context.workspace))
    readable = np.isfinite(vectors).all(axis=1)
    labels = [testset.class_of_images() for testset in sets]
    common = {*labels[0].values()} & {*labels[1].values()}
    classes = [labels[k].get(image) for k, image in images]
    of_class = [label if label in common else None for label in classes] if common else None
    origin = np.array([k for k, _ in images], np.int64)
    half = halves(origin, of_class or [""] * len(images), np.where(alone & readable, rank, -1))
    compared = np.flatnonzero(half >= 0)
    if len(compared) < 2 * FEWEST:
        raise NotApplicable(
            f"{a.name} and {b.name} have {len(compared) // 2} images each to tell apart, "
            f"{FEWEST} are needed",
            fix="name sets of different images, of the same classes",
        )
    odds = cross_fitted(vectors, origin, half)
    own = np.where(origin == 1, odds, -odds)
    right = float(np.heaviside(own[compared], CHANCE).mean())
    trials = int(np.bincount(half[compared]).min())
    interval = wilson(right * trials, trials)
    order = sorted(compared.tolist(), key=lambda row: (images[row].origin, -own[row], images[row]))
    found = Discrimination(
        a=a.name,
        b=b.name,
        features=str(made[0].facts.get("encoder", {}).get("name", features)),
        images=len(compared) // 2,
        classes=len({of_class[row] for row in order}) if of_class else 0,
        in_both=len(both),
        duplicates=int((readable & ~alone).sum()),
        value=right,
        low=float(interval.low),
        high=float(interval.high),
        interval=f"{interval.method}, images of one half",
        level=interval.level,
    )
    telltales = [
        Telltale(
            testset=sets[images[row].origin].name,
            other=sets[1 - images[row].origin].name,
            image_id=images[row].image_id,
            class_id=classes[row],
            probability=float(expit(own[row])),
        )
        for row in order
    ]
    return ToldApart(sets, found, telltales)


def _vectors(testset: TestSet, features: str, context: Context) -> Embeddings:
    """Vectors of a set's images; of a model those that ``dedupe`` keeps too."""
    path = Path(features.removeprefix(_PREFIX))
    if features.startswith(_PREFIX) or is_embeddings(path):
        return read_embeddings(path)
    encoder = image_encoder(features, unit=True)
    with context.progress(f"{encoder.name} of {testset.name}") as progress:
        found = embed(testset, encoder, workspace=context.workspace, progress=progress)
    note_failures(found, context)
    return found


def _known_pairs(sets: Sequence[TestSet], workspace: Workspace) -> list[tuple[_Image, _Image]]:
    """Near duplicates among the images of both sets, as searches and people say."""
    places = {testset.name: place for place, testset in enumerate(sets)}
    found = []
    for place, testset in enumerate(sets):
        searches = inherited_searches(testset, workspace)
        for pair in near_duplicates(testset, workspace, searches=searches).pairs:
            other = places.get(pair.reference) if pair.reference else place
            if pair.decision == "duplicate" and other is not None:
                found.append((_Image(place, pair.image_id), _Image(other, pair.other_id)))
    return found


def first_of_duplicates(
    images: Sequence[tuple[int, str]],
    vectors: np.ndarray,
    rank: np.ndarray,
    pairs: Sequence[tuple[tuple[int, str], tuple[int, str]]],
) -> np.ndarray:
    """Which images have no near duplicate of lower rank, bool (n,); equal vectors are duplicates.

    Which of several stays does not depend on the set that it is from, so sets that are alike stay so.
    """
    alone = np.ones(len(images), bool)
    seen: set[bytes] = set()
    for row in np.argsort(rank).tolist():
        content = vectors[row].tobytes()
        alone[row] = content not in seen
        seen.add(content)
    place = {image: row for row, image in enumerate(images)}
    for one, other in pairs:
        if one in place and other in place:
            alone[max(place[one], place[other], key=lambda row: rank[row])] = False
    return alone


def halves(origin: np.ndarray, classes: Sequence[str | None], rank: np.ndarray) -> np.ndarray:
    """The half of each image, 0 or 1, int64 (n,); -1 for one that is not compared.

    Images of a class are taken in pairs, one of each set (``origin`` 0 or 1), by ``rank``; the rank
    -1 and the class None are left out. Pairs go to both halves in turn, so that of each class and
    set both halves have as many images, or one more.
    """
    members: defaultdict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row in np.argsort(rank, kind="stable").tolist():
        label = classes[row]
        if label is not None and rank[row] >= 0:
            members[label][origin[row]].append(row)
    found = np.full(len(origin), -1, np.int64)
    pairs = 0
    for label in sorted(members):
        for pair in zip(*members[label], strict=False):
            found[list(pair)] = pairs % 2
            pairs += 1
    return found


def cross_fitted(vectors: np.ndarray, origin: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Log odds of the second set, by the classifier of the other half, float64 (n,); 0 without one."""
    odds = np.zeros(len(vectors))
    for own in (0, 1):
        learnt, judged = np.flatnonzero(half == 1 - own), np.flatnonzero(half == own)
        seen, asked = (
            Images(rows.astype(str).tolist(), vectors[rows]) for rows in (learnt, judged)
        )
        logits = Logistic()(seen, origin[learnt], classes=2, seed=0)(asked).logits
        odds[judged] = logits[:, 1] - logits[:, 0]
    return odds
