"""Generated candidates, votes, verdicts and searches; importable from other processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from heldout.curate.replicate.recipe import exclusions_source, previous_source, votes_source
from heldout.data.judgements.judgement import Judgement, pair_subject
from heldout.data.judgements.neighbours import ComparedImages, Neighbours
from heldout.data.labels import LabelSpace
from heldout.data.published.imagenetv2_revisions import ClassReview
from heldout.data.testset.tables import image_table, membership_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool

SPACE = LabelSpace.from_ids("letters", ["a", "b", "c"])
LICENCES = ("CC0-1.0", "CC-BY-4.0", None)
PEOPLE = 5


def make_images(name: str, n: int, prefix: str) -> TestSet:
    """``n`` images of three classes in turn."""
    ids = [f"{prefix}{i:03d}" for i in range(n)]
    return make_pool(
        name,
        images=image_table(
            {
                "image_id": ids,
                "source": ["somewhere"] * n,
                "sha256": [f"{i:064x}" for i in range(n)],
                "licence": [LICENCES[i % 3] for i in range(n)],
                "attribution": [f"person {i % 5}" for i in range(n)],
                "shot": [f"shot {i // 2}" for i in range(n)],
            }
        ),
        truths={"original": truth_table(ids, [SPACE.ids[i % 3] for i in range(n)])},
        memberships=membership_table([(image, "context", f"c{len(image) % 2}") for image in ids]),
        label_space=SPACE,
        citation=f"Somebody: {name}",
    )


def votes_for(
    testset: TestSet,
    selected: Mapping[str, int],
    *,
    people: int = PEOPLE,
    evidence: Mapping[str, Any] | None = None,
) -> list[Judgement]:
    """Votes of ``people`` on some images for their class, of which so many select it."""
    truth = testset.truth()
    classes = dict(zip(truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True))
    return [
        Judgement(
            question="vote",
            subject={"image_id": image, "class_id": classes[image]},
            answer="selected" if person < n else "not-selected",
            who=f"person-{person}",
            evidence=dict(evidence or {}),
            testset=testset.name,
        )
        for image, n in selected.items()
        for person in range(people)
    ]


def duplicate(one: str, other: str, answer: str = "duplicate") -> Judgement:
    return Judgement(
        question="duplicate", subject=pair_subject(one, other), answer=answer, who="ann"
    )


def blacklisted(image: str) -> Judgement:
    return Judgement(
        question="review",
        subject={"image_id": image},
        answer="blacklisted",
        who="ann",
        evidence={"reason": "a drawing"},
    )


def search_within(
    pool: TestSet,
    near: Mapping[str, Iterable[tuple[str, float]]],
    *,
    threshold: float | None = 1.0,
    left_out: Iterable[str] = (),
) -> Neighbours:
    """A search of a pool in itself that found these neighbours, and did not look at some images."""
    out = set(left_out)
    hashes = dict(zip(pool.image_ids.to_pylist(), pool.images["sha256"].to_pylist(), strict=True))
    ids = sorted(set(hashes) - out)
    compared = ComparedImages.of(ids, [hashes[name] for name in ids])
    rows = np.full((len(ids), 3), -1, np.int64)
    distances = np.full((len(ids), 3), np.inf)
    for row, name in enumerate(ids):
        for place, (other, distance) in enumerate(near.get(name, ())):
            rows[row, place], distances[row, place] = ids.index(other), distance
    known = {"name": pool.name, "images_hash": pool.card.images_hash}
    return Neighbours(
        {
            "measure": "l2",
            "testset": known,
            "reference": known,
            "encoder": {"name": "l2", "key": "l2-1"},
            "keep": 3,
            "farthest": None,
            "near_classes": None,
            "threshold": threshold,
            "threshold_from": "given",
            "failures": {},
            "reference_failures": {},
        },
        compared,
        compared,
        rows,
        distances,
    )


def make_sources(n: int = 90, seed: int = 4) -> dict[str, Any]:
    """All roles: a pool with votes, verdicts and a search, an original set, and a revision before."""
    rng = np.random.default_rng(seed)
    pool = make_images("letters-pool", n, "image")
    originals = make_images("letters-val", 30, "val")
    votes = votes_for(pool, {i: int(rng.integers(0, 6)) for i in pool.image_ids.to_pylist()[:80]})
    votes += votes_for(
        originals, {i: int(rng.integers(2, 6)) for i in originals.image_ids.to_pylist()}
    )
    rejected = votes_for(pool, {"image081": 5}, evidence={"status": "Rejected"})
    near = {"image004": [("image007", 0.5)], "image007": [("image004", 0.5)]}
    said = [
        blacklisted("image003"),
        blacklisted("image006"),
        duplicate("image010", "image013"),
        duplicate("image004", "image020", "different"),
    ]
    rows = [("image000", "a"), ("image012", "a"), ("image001", "b"), ("gone", "c")]
    return {
        "pool": pool,
        "votes": votes_source([*votes, *rejected]),
        "exclusions": exclusions_source(said, [search_within(pool, near, left_out=["image079"])]),
        "originals": originals,
        "previous": previous_source(
            rows, name="before", file="before.json", reviews={"a": ClassReview(True)}
        ),
    }


def required_sources() -> dict[str, Any]:
    """Without the roles that may be left out."""
    made = make_sources()
    return {role: made[role] for role in ("pool", "votes", "exclusions")}
