"""``build replicate``: what excludes candidates, what is drawn, and the set that is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from heldout.core.context import Context, Result
from heldout.core.records import Count, Table, counts
from heldout.core.workspace import Workspace
from heldout.curate.build import build_recipe, build_result
from heldout.curate.crowd.stopping import BINS
from heldout.curate.recipe import RecipeInput, Source
from heldout.curate.replicate.recipe import (
    Drawn,
    exclusions_source,
    notes,
    previous_source,
    recipe,
    votes_source,
)
from heldout.curate.replicate.requests import ReplicateRequest
from heldout.curate.replicate.samplers import ClassDraw
from heldout.data.judgements.for_testset import judgements_about, votes_about
from heldout.data.judgements.neighbours import saved_searches
from heldout.data.published.imagenetv2_revisions import (
    FILE,
    class_reviews,
    images_by_class,
    read_revision,
)
from heldout.data.testset import TestSet, find_testset, load
from heldout.data.testset.catalogue import find_folder


@dataclass(frozen=True, kw_only=True)
class DrawnClass:
    """One class: how many images were drawn and carried over, and how many each reason excludes."""

    record: ClassVar[str] = "class draw"
    table: ClassVar[Table] = Table(
        "classes of {testset}",
        ("class=class_id", "images:,", "of=target:,", "from before=carried:,", "eligible:,",
         "blacklisted:,", "few_votes:,", "below_threshold:,", "near_duplicate:,", "unreviewed:,"),
    )  # fmt: skip
    testset: str
    class_id: str
    images: int
    target: int
    carried: int
    eligible: int
    blacklisted: int
    few_votes: int
    below_threshold: int
    near_duplicate: int
    unreviewed: int

    @classmethod
    def of(cls, drawn: ClassDraw, testset: str) -> DrawnClass:
        """As a sampler gives it."""
        return cls(
            testset=testset,
            class_id=drawn.class_id,
            images=len(drawn.images),
            target=drawn.target,
            carried=len(drawn.carried),
            eligible=drawn.eligible,
            **drawn.reasons,
        )


@dataclass(frozen=True, kw_only=True)
class DrawnBin:
    """One bin of frequencies of a class: what the original set asks for, and what was drawn.

    ``upward``  images of a higher bin that stand in for candidates that it lacks
    """

    record: ClassVar[str] = "bin draw"
    table: ClassVar[Table] = Table(
        "bins of {testset}",
        ("class=class_id", "from=low:g", "to=high:g", "originals:,", "target:,", "eligible:,",
         "images:,", "from above=upward:,"),
    )  # fmt: skip
    testset: str
    class_id: str
    low: float
    high: float
    originals: int
    target: int
    eligible: int
    images: int
    upward: int


def build_replicate(request: ReplicateRequest, context: Context) -> Result:
    """Draw a test set from a pool by how often people selected its candidates."""
    place = context.workspace
    pool = context.find(request.pool, _pool)
    sources = sources_of(pool, request, context)
    name = request.name or f"{pool.name}-{request.sampler}"
    if request.plan:
        drawn = recipe.plan(sources, request, seed=request.seed)
        for text in notes(drawn, request):
            context.note(text)
        shown = [*_counts(drawn, name), *_short(drawn, name)]
        return Result(records=[*_counts(drawn, name), *records(drawn, name)], brief=shown)
    folder = request.out or place.testsets / name
    made, drawn = build_recipe(
        recipe,
        sources,
        folder=folder,
        runs=place.runs,
        parameters=request,
        seed=request.seed,
        name=name,
        replace=request.replace,
    )
    found = counts(made.card.counts, testset=name)
    return build_result(
        made,
        folder,
        [*found, *records(drawn, name)],
        context,
        brief=[*found, *_short(drawn, name)],
    )


def _pool(place: Workspace, name: str) -> TestSet:
    return load(find_folder(place, name, pools=True))


def sources_of(pool: TestSet, request: ReplicateRequest, context: Context) -> dict[str, Source]:
    """What the recipe reads: the pool, and what the workspace knows of its images."""
    address = context.workspace.judgements
    like = None if request.like is None else context.find(request.like, find_testset)
    asked = [pool] if like is None else [pool, like]
    sources: dict[str, Source] = {
        "pool": pool,
        "votes": votes_source(votes_about(asked, address)),
        "exclusions": exclusions_source(
            judgements_about(pool, address, questions=("review", "duplicate")),
            saved_searches(context.workspace, pool.name),
        ),
    }
    if like is not None:
        sources["originals"] = like
    if request.previous is not None:
        sources["previous"] = _previous(request.previous, context)
    return sources


def _previous(name: str, context: Context) -> RecipeInput:
    """An earlier revision: a published file, or a test set with the reviews of its classes."""
    path = Path(name)
    if path.is_file():
        rows = read_revision(path).image_filenames
        return previous_source(rows, name=path.stem, file=path.name)
    testset = context.find(name, find_testset)
    listed = None if testset.folder is None else testset.folder / FILE
    if listed is not None and listed.is_file():  # the set's own order, which its tables do not keep
        rows = read_revision(listed).image_filenames
    else:
        by_class = images_by_class(testset).items()
        rows = [(image, label) for label, images in by_class for image in images]
    return previous_source(
        rows,
        name=testset.name,
        file=f"{testset.name}.json",
        reviews=class_reviews(testset, context.workspace.judgements),
    )


def records(drawn: Drawn, testset: str) -> list[Any]:
    """Every class, and for ``matched`` every bin."""
    return [
        *(DrawnClass.of(one, testset) for one in drawn.sample.classes),
        *_bins(drawn, testset),
    ]


def _bins(drawn: Drawn, testset: str) -> Iterator[DrawnBin]:
    edges = (0.0, *BINS, 1.0)
    for one in drawn.sample.classes:
        for place, part in enumerate(one.bins):
            yield DrawnBin(
                testset=testset,
                class_id=one.class_id,
                low=edges[place],
                high=edges[place + 1],
                originals=part.originals,
                target=part.target,
                eligible=part.eligible,
                images=len(part.images),
                upward=len(part.upward),
            )


def _short(drawn: Drawn, testset: str) -> list[DrawnClass]:
    return [DrawnClass.of(one, testset) for one in drawn.sample.short]


def _counts(drawn: Drawn, testset: str) -> list[Count]:
    images = {"images": len(drawn.sample.rows), "classes": len(drawn.sample.classes)}
    return counts({**drawn.stages, **images}, testset=testset)
