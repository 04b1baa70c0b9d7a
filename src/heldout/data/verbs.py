"""The verbs about test sets and classes that are there, and those that export and fetch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, EXIT_FAILED_IMAGES, EXIT_FAULT, NotFound, UserError
from heldout.core.files import write_text
from heldout.core.records import Table, counts
from heldout.core.request import RequestError
from heldout.core.workspace import Workspace
from heldout.data.importing.audit import (
    Audit,
    audit,
    read_blacklist,
    read_image_ids,
    read_near_duplicates,
)
from heldout.data.judgements.duplicates import listed_counts
from heldout.data.judgements.files import write_judgements
from heldout.data.judgements.for_testset import blacklist_about, votes_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.resolution import inherited_searches
from heldout.data.judgements.resolution import near_duplicates as near_duplicates_of
from heldout.data.judgements.store import JudgementStore
from heldout.data.judgements.workers import selection_frequency
from heldout.data.labels import BUILT_IN, Class, Hierarchy, SpaceDistances
from heldout.data.published.imagenetv2 import (
    duplicate_overrides,
    duplicate_reviews,
    near_duplicates,
    read_classes,
)
from heldout.data.published.imagenetv2_revisions import (
    ClassReview,
    carried_reviews,
    class_reviews,
    images_by_class,
    read_listed,
    review_file_of,
)
from heldout.data.requests import (
    CiteRequest,
    DiffRequest,
    ExportJudgementsRequest,
    ExportTestsetRequest,
    FetchRequest,
    FindLabelsRequest,
    VerifyRequest,
)
from heldout.data.testset import TestSet, find_testset, list_pools, list_testsets, load
from heldout.data.testset import fetch as registries
from heldout.data.testset.catalogue import cite as citations
from heldout.data.testset.catalogue import find_folder
from heldout.data.testset.diff import diff as compare
from heldout.data.testset.exporters.formats import export
from heldout.data.testset.verify import Verification
from heldout.data.testset.verify import verify as verify_folder


def verify_sets(request: VerifyRequest, context: Context) -> list[tuple[Path, Verification]]:
    """Check sets against their cards: those that are named, or all."""
    place = context.workspace
    folders = [find_folder(place, name, pools=True) for name in request.testsets] or [
        entry.folder for entry in (*list_testsets(place), *list_pools(place))
    ]
    if not folders:
        raise NotFound(
            f"no test sets in {place.testsets} and no pools in {place.pools}",
            fix="import or collect one first",
        )
    return [(folder, verify_folder(folder, images=request.images)) for folder in folders]


def audit_set(request: VerifyRequest, name: str, context: Context) -> Audit:
    """What is wrong with the content of a set."""
    others: dict[str, TestSet | tuple[str, ...]] = {}
    for other in request.other:
        path = Path(other)
        if path.is_file():
            others[other if path.stem in others else path.stem] = read_image_ids(path)
        else:
            others[other] = context.find(other, find_testset)
    testset, place = context.find(name, find_testset), context.workspace
    blacklist, pairs = request.blacklist, request.near_duplicates
    known = near_duplicates_of(testset, place, searches=inherited_searches(testset, place))
    compared = bool(known.searches or known.verdicts)
    linked: dict[str, list[str]] = {}
    found = {(pair.image_id, pair.other) for pair in known.pairs if pair.decision == "duplicate"}
    found |= {names for names, said in known.verdicts.items() if said.answer == "duplicate"}
    for image, other in sorted(found):
        linked.setdefault(image, []).append(other)
    return audit(
        testset,
        truth=request.truth,
        blacklist=blacklist_about(testset, place.judgements)
        if blacklist is None
        else read_blacklist(blacklist),
        near_duplicates=(linked if compared else None)
        if pairs is None
        else read_near_duplicates(pairs),
        others=others or None,
        expected_classes=_gathered_for(testset, request.truth, place),
        frequencies=selection_frequency(votes_about([testset], place.judgements)) or None,
        duplicates=known.graph.removed if compared else None,
        review_thresholds=known.review_thresholds(testset.image_ids.to_pylist())
        if known.searches
        else None,
        reviews=class_reviews(testset, place.judgements),
    )


def _gathered_for(testset: TestSet, truth: str | None, place: Workspace) -> dict[str, str] | None:
    """Image -> its class in the pool that it was chosen from; None without that pool or truth."""
    name = truth or testset.card.default_truth
    for parent in testset.card.parents:
        if parent.get("relation") != "pool":
            continue
        try:
            pool = load(find_folder(place, parent["name"], pools=True))
        except NotFound:
            continue
        if name not in pool.truths or pool.content_hash != parent["content_hash"]:
            continue
        given: dict[str, list[str]] = {}
        columns = (pool.truth(name)[column].to_pylist() for column in ("image_id", "class_id"))
        for image, label in zip(*columns, strict=True):
            if label is not None:
                given.setdefault(image, []).append(label)
        ids = testset.image_ids.to_pylist()
        return {image: given[image][0] for image in ids if len(given.get(image, ())) == 1}
    return None


def cite(request: CiteRequest, context: Context) -> Result:
    """The citations of a set and of its parents."""
    found = citations(context.workspace, request.testset)
    for name in found.absent:
        context.note(f"{name} is a parent that is not in this workspace")
    return Result(records=[found], lines=[found.bibtex if request.bibtex else found.text])


@dataclass(frozen=True, kw_only=True)
class ReviewsCarried:
    """Which reviews of classes hold in a later revision, and whether it says so.

    ``carried``      classes that stay reviewed: without a problem, their images the same
    ``changed``      reviewed classes whose images are others now; ``problematic`` those with a problem
    ``reviewed``     classes that the later one calls reviewed
    ``lost``         carried classes that it does not call reviewed
    """

    record: ClassVar[str] = "reviews carried"
    table: ClassVar[Table] = Table(
        "reviews of classes, {a} to {b}",
        ("carried:,", "problematic before=problematic:,", "changed:,", "reviewed after=reviewed:,",
         "lost=n_lost:,"),
    )  # fmt: skip
    a: str
    b: str
    carried: int
    problematic: int
    changed: int
    reviewed: int
    lost: tuple[str, ...]

    @property
    def n_lost(self) -> int:
        """How many were lost."""
        return len(self.lost)


def reviews_carried(a: TestSet, b: TestSet, address: str | Path) -> ReviewsCarried | None:
    """How reviews of classes pass from one set to a later one; None where one of them has none."""
    reviews, later = class_reviews(a, address), class_reviews(b, address)
    if not reviews or not later:
        return None
    before, after = images_by_class(a), images_by_class(b)
    carried = [
        label
        for label, review in carried_reviews(reviews, before, after).items()
        if review.reviewed
    ]
    return ReviewsCarried(
        a=a.name,
        b=b.name,
        carried=len(carried),
        problematic=sum(review.problematic for review in reviews.values()),
        changed=sum(
            review.reviewed and not review.problematic and before[label] != after.get(label)
            for label, review in reviews.items()
        ),
        reviewed=sum(review.reviewed for review in later.values()),
        lost=tuple(label for label in carried if not later.get(label, ClassReview()).reviewed),
    )


def diff(request: DiffRequest, context: Context) -> Result:
    """What differs between two sets or revisions, and which reviews of classes hold in the later one."""
    given = request.reviews
    if given and not (Path(request.a).is_file() or Path(request.b).is_file()):
        raise RequestError(
            "{reviews} has no use with two test sets", fix="import a set with its reviews"
        )
    if len(given) == 1 and not given[0].is_dir():
        raise UserError(f"{given[0]} is not a folder", fix="give a folder, or a file for each")
    places = dict(enumerate(given * (3 - len(given))))
    a, b = (
        context.find(name, partial(_set_or_file, reviews=places.get(number)))
        for number, name in enumerate((request.a, request.b))
    )
    found, reviews = compare(a, b), reviews_carried(a, b, context.workspace.judgements)
    lines = [f"{found.a} ({found.images_a:,} images) -> {found.b} ({found.images_b:,} images)"]
    if found.same_content:
        lines.append("the content is the same")
    else:
        lines += [
            f"  {len(found.only_in_a):,} images only in {found.a}, "
            f"{len(found.only_in_b):,} only in {found.b}",
            f"  {found.in_both:,} images in both, {len(found.changed):,} of them changed",
            f"  {len(found.classes):,} classes have other images",
        ]
    for what, names in (("column", found.only_columns), ("truth", found.only_truths)):
        lines += [
            f"  {what} {name} only in {found.a if side == 'a' else found.b}"
            for name, side in names.items()
        ]
    lines += [
        f"  card: {change.field}: {_short(change.before)} -> {_short(change.after)}"
        for change in found.card
        if not change.field.startswith("tables")
    ]
    if reviews is None:
        return Result(records=[found], lines=lines)
    lines += [f"  review lost: {label}" for label in reviews.lost]
    return Result(
        records=[found, reviews], lines=lines, code=EXIT_FAULT if reviews.lost else EXIT_DONE
    )


def _set_or_file(place: Workspace, name: str, *, reviews: Path | None) -> TestSet:
    """A test set of the workspace, or one that a published file lists, with its reviews."""
    path = Path(name)
    if not path.is_file():
        return find_testset(place, name)
    return read_listed(path, review=None if reviews is None else review_file_of(path, reviews))


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 48 else text[:47] + "…"


@dataclass(frozen=True)
class FoundClass:
    """A class of a label space that a search found; ``similarity`` to the one that was named."""

    record: ClassVar[str] = "class"
    table: ClassVar[Table] = Table(
        "", ("id", "names", "meaning", "index:d", "similarity:.3f"), rows=20
    )
    index: int
    found: Class
    similarity: float | None = None

    @property
    def id(self) -> str:
        """The class's id."""
        return self.found.id

    @property
    def names(self) -> tuple[str, ...]:
        """Its names, the usual one first."""
        return self.found.names

    @property
    def meaning(self) -> str:
        """The beginning of its gloss."""
        return self.found.gloss[:70]

    def to_dict(self) -> dict[str, Any]:
        """Position, similarity where there is one, and the class."""
        near = {} if self.similarity is None else {"similarity": self.similarity}
        return {"index": self.index, **near, **self.found.to_dict()}


def find_labels(request: FindLabelsRequest, context: Context) -> Result:
    """Classes by id, name or meaning, or those nearest to one in WordNet."""
    space = read_classes(request.classes)
    if request.similar is None:
        found = space.find(request.text)[: request.top]
        return Result(records=[FoundClass(space.index(item.id), item) for item in found])
    text = request.text
    chosen = space.get(text) if text in space else space.by_name(text)
    tree = Hierarchy.wordnet()
    nearest = SpaceDistances(space).most_similar(chosen.id, min(request.similar + 1, len(space)))
    return Result(
        records=[
            FoundClass(space.index(item.id), item, tree.path_similarity(chosen.node, item.node))
            for item in map(space.get, nearest)
        ]
    )


def export_testset(request: ExportTestsetRequest, context: Context) -> Result:
    """A test set in the format of another program."""
    found = export(
        context.find(request.testset, find_testset),
        request.out,
        form=request.format,
        truth=request.truth,
        images=None if request.images is None else Path(request.images),
        copy_images=request.copy_images,
        allow_licence=request.allow_licence,
        replace=request.replace,
    )
    for text in found.notes:
        context.note(text)
    for failure in found.failures:
        context.note(f"left out {failure.image_id}: {failure.reason}")
    return Result(records=[found], code=EXIT_FAILED_IMAGES if found.failures else EXIT_DONE)


_DUPLICATES: dict[str, Callable[[Iterable[Judgement]], Any]] = {
    "near-duplicates": near_duplicates,
    "duplicate-reviews": duplicate_reviews,
    "duplicate-overrides": duplicate_overrides,
}


def export_judgements(request: ExportJudgementsRequest, context: Context) -> Result:
    """The table of judgements as a file, or a published file made from it."""
    with JudgementStore(context.workspace.judgements) as store:
        if request.format == "table":
            found = {"judgements": write_judgements(request.out, store.stream())}
        else:
            value = _DUPLICATES[request.format](store.stream(question="duplicate"))
            write_text(request.out, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
            found = (
                listed_counts(value)
                if request.format == "near-duplicates"
                else {"images": len(value)}
            )
    return Result(records=counts(found), lines=[f"written to {request.out}"])


def fetch(request: FetchRequest, context: Context) -> Result:
    """The files of a published test set, or the list of such sets."""
    entries = registries.load(request.registry)
    if request.testset is None:
        return Result(records=entries)
    entry = registries.find(entries, request.testset)
    with context.downloads() as progress:
        fetched = registries.fetch(
            entry,
            request.out or context.workspace.root / "fetched" / entry.name,
            mirrors=request.mirrors,
            source=request.local,
            progress=progress,
        )
    for file in fetched.files:
        if file.note:
            context.note(file.note)
    return Result(
        records=fetched.files, lines=[f"cite: {entry.citation}", next_step(fetched)], value=fetched
    )


def next_step(fetched: registries.Fetched) -> str:
    """What makes a test set of the files, by their layout."""
    entry, paths = fetched.entry, [file.path for file in fetched.files]
    metadata = next((path for path in paths if path.name.endswith("metadata.csv")), None)
    own = "table" if entry.layout == "flat" else "folders"
    classes = entry.label_space if entry.label_space in BUILT_IN else own
    more = f"--classes {classes} --name {entry.name}"
    if entry.layout == "arrays":
        return f"then: heldout import testset {paths[0]} {more}"
    if entry.layout == "flat":
        return (
            f"unpack, and list image_id, path and class_id: heldout import testset LIST.csv {more}"
        )
    if metadata is not None:
        more += f" --metadata {metadata}"
    return f"unpack, then: heldout import testset {entry.inside or 'FOLDER'} {more}"
