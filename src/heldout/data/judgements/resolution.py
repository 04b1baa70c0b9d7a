"""The graph of duplicates: its components, and which image of each stays in the test set.

Images are joined by pairs that are duplicates, and by being from one photo. Of the images that hang
together, however long the chain, at most one stays:

1. none, where one of them is a reference's: a training or validation image
2. the one that a person wants to keep (an override)
3. else the one of the class that is hardest to fill, with the highest frequency: ImageNetV2's rule
   (:class:`Priorities`); without frequencies the one with the smallest id

An image that hangs together with no other is not a duplicate.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from heldout.core.errors import UserError
from heldout.core.records import Count, Table, counts
from heldout.core.request import did_you_mean
from heldout.core.workspace import Workspace
from heldout.data.judgements.duplicates import (
    FIRST,
    PairVerdict,
    current_verdicts,
    reviewed_down_to,
)
from heldout.data.judgements.for_testset import judgements_about, sets_of
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.neighbours import Neighbours, saved_searches
from heldout.data.judgements.pairs import Pair, changed_since, decided_pairs, hashes_of, named
from heldout.data.testset import TestSet

Reason = Literal["reference", "override", "scarce class", "frequency", "smallest id"]


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """What decides which image of a component stays; images not among ``references`` are candidates.

    ``references``   images of the sets that were compared with
    ``overrides``    candidates that stay, at most one of a component
    ``frequencies``  candidate -> how often people selected it for its class; 0 where it is not listed
    ``classes``      candidate -> its class, of all candidates, since good ones are counted by class
    ``blacklisted``  candidates whose frequency does not count
    ``good``         a candidate of at least this frequency is a good one; classes of a component with
                     a good one are chosen among, else those with one of at least ``fair``, else the
                     best one (ties: the larger class id)

    Of these classes the one with the fewest good candidates (ties: the smaller class id) gets the image,
    and of its images the one with the highest frequency (ties: the larger id) stays.
    """

    references: Collection[str] = frozenset()
    overrides: Collection[str] = frozenset()
    frequencies: Mapping[str, float] | None = None
    classes: Mapping[str, str] = field(default_factory=dict)
    blacklisted: Collection[str] = frozenset()
    good: float = 0.7
    fair: float = 0.6

    def frequency(self, image_id: str) -> float:
        """How often a candidate was selected; 0 where that is not known, or it is blacklisted."""
        if self.frequencies is None or image_id in self.blacklisted:
            return 0.0
        return self.frequencies.get(image_id, 0.0)

    @cached_property
    def good_candidates(self) -> Counter[str]:
        """Class -> how many good candidates it has, duplicates among them included."""
        return Counter(
            label for image, label in self.classes.items() if self.frequency(image) >= self.good
        )


SMALLEST_ID = Priorities()
"""Nothing is known of the images: of several duplicates the one with the smallest id stays."""


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The images of one component, which of them stays, and why.

    ``component``  its name: the MD5 of the sorted ids, joined by commas, as ImageNetV2 names it
    ``removed``    the candidates that do not stay
    ``stays``      the candidate that does; None where a reference has the picture
    ``why``        the reason in words
    """

    record: ClassVar[str] = "duplicate component"
    table: ClassVar[Table] = Table("duplicates", ("n:,", "stays", "reason", "why"))
    component: str
    images: tuple[str, ...]
    removed: tuple[str, ...]
    stays: str | None
    reason: Reason
    why: str

    @property
    def n(self) -> int:
        """How many images hang together."""
        return len(self.images)


def component_name(images: Iterable[str]) -> str:
    """The name of a component."""
    return hashlib.md5(",".join(sorted(images)).encode(), usedforsecurity=False).hexdigest()


def resolve(images: Iterable[str], selection: Priorities = SMALLEST_ID) -> Resolution:
    """Which of the images of one component stays.

    >>> resolve(["b", "a", "c"]).stays
    'a'
    >>> resolve(["b", "a"], Priorities(frequencies={"b": 0.9, "a": 0.8})).removed
    ('a',)
    """
    ids = tuple(sorted(images))
    candidates = [image for image in ids if image not in selection.references]
    stays, reason, why = _choice(ids, candidates, selection)
    return Resolution(
        component=component_name(ids),
        images=ids,
        removed=tuple(image for image in candidates if image != stays),
        stays=stays,
        reason=reason,
        why=why,
    )


def _choice(
    images: Collection[str], candidates: list[str], selection: Priorities
) -> tuple[str | None, Reason, str]:
    """Who stays, and why."""
    if len(candidates) < len(images):
        theirs = sorted(set(images) - set(candidates))
        more = f" and {len(theirs) - 1:,} more" if len(theirs) > 1 else ""
        return None, "reference", f"{theirs[0]}{more} of a reference"
    wanted = [image for image in candidates if image in selection.overrides]
    if len(wanted) > 1:
        raise UserError(
            f"{', '.join(wanted)} are duplicates of one another, and all of them are to stay",
            fix="keep one of them, and withdraw keep for the others",
        )
    if wanted:
        return wanted[0], "override", "somebody wants to keep it"
    if selection.frequencies is None:
        return candidates[0], "smallest id", f"the first of {len(candidates):,} ids"
    of_class: dict[str, list[str]] = {}
    for image in candidates:
        of_class.setdefault(selection.classes.get(image, ""), []).append(image)
    label = _class_of(of_class, selection)
    stays = max(of_class[label], key=lambda image: (selection.frequency(image), image))
    why = f"frequency {selection.frequency(stays):.2f}"
    if len(of_class) == 1:
        return stays, "frequency", f"{why}, the highest"
    good = selection.good_candidates[label]
    return stays, "scarce class", f"class {label} (good candidates: {good:,}), {why}"


def _class_of(of_class: Mapping[str, list[str]], selection: Priorities) -> str:
    """The class that an image of a component is to stay in."""
    scores = {label: max(map(selection.frequency, found)) for label, found in of_class.items()}
    for limit in (selection.good, selection.fair):
        if labels := [label for label, score in scores.items() if score >= limit]:
            return min(labels, key=lambda label: (selection.good_candidates[label], label))
    return max(scores, key=lambda label: (scores[label], label))


@dataclass(frozen=True, eq=False)
class DuplicateGraph:
    """Images that are joined by being duplicates, with every component resolved.

    ``links``       image -> the images that it is a duplicate of
    ``photo_of``    image -> the photo that it is from; images of one photo hang together
    ``components``  those of two images or more, by their smallest id
    ``places``      image -> the smallest id of its component

    A graph does not change: :meth:`with_pair` and :meth:`without_pair` give another one that shares
    every component with it but the one or two that the pair is in.
    """

    selection: Priorities
    links: Mapping[str, frozenset[str]]
    photo_of: Mapping[str, str]
    of_photo: Mapping[str, frozenset[str]] = field(repr=False)
    components: Mapping[str, Resolution]
    places: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        pairs: Iterable[tuple[str, str]],
        selection: Priorities = SMALLEST_ID,
        *,
        photos: Mapping[str, str] | None = None,
    ) -> DuplicateGraph:
        """The graph of some pairs, in any order and direction; an image with itself joins nothing.

        ``photos``  candidate -> the photo that it is from, where that is known
        """
        links: dict[str, set[str]] = {}
        for one, other in pairs:
            if one != other:
                links.setdefault(one, set()).add(other)
                links.setdefault(other, set()).add(one)
        of_photo: dict[str, set[str]] = {}
        for image, photo in (photos or {}).items():
            if photo != "":
                of_photo.setdefault(photo, set()).add(image)
        graph = cls(
            selection,
            {image: frozenset(others) for image, others in links.items()},
            dict(photos or {}),
            {photo: frozenset(images) for photo, images in of_photo.items() if len(images) > 1},
            {},
            {},
        )
        return graph._resolved([*links, *(min(images) for images in graph.of_photo.values())])

    def with_pair(self, one: str, other: str) -> DuplicateGraph:
        """The graph in which two images are duplicates too."""
        if one == other or other in self.links.get(one, ()):
            return self
        links = {
            **self.links,
            one: self.links.get(one, frozenset()) | {other},
            other: self.links.get(other, frozenset()) | {one},
        }
        return replace(self, links=links)._resolved([one, other])

    def without_pair(self, one: str, other: str) -> DuplicateGraph:
        """The graph in which two images are not duplicates of each other any more.

        They may still hang together by others, or by their photo.
        """
        if other not in self.links.get(one, ()):
            return self
        links = {**self.links, one: self.links[one] - {other}, other: self.links[other] - {one}}
        return replace(self, links=links)._resolved([one, other])

    def component(self, image_id: str) -> Resolution | None:
        """The component that holds an image; None where the image is not a duplicate of any."""
        return self.components.get(self.places.get(image_id, ""))

    @cached_property
    def removed(self) -> frozenset[str]:
        """The candidates that do not stay."""
        return frozenset(image for found in self.components.values() for image in found.removed)

    def counts(self, testset: str | None = None) -> list[Count]:
        """How many components there are, and what becomes of their images."""
        found = list(self.components.values())
        references = [part for part in found if part.reason == "reference"]
        return counts(
            {
                "components": len(found),
                "components_of_two": sum(part.n == 2 for part in found),
                "largest_component": max((part.n for part in found), default=0),
                "components_with_a_reference": len(references),
                "candidates_in_a_reference": sum(len(part.removed) for part in references),
                "removed": len(self.removed),
            },
            testset=testset,
        )

    def _resolved(self, touched: Collection[str]) -> DuplicateGraph:
        """The graph with the components of some images found and resolved again."""
        components, places = dict(self.components), dict(self.places)
        seen: set[str] = set()
        for image in touched:
            old = components.pop(places.get(image, ""), None)
            for member in () if old is None else old.images:
                del places[member]
        for image in touched:
            if image in seen:
                continue
            images = self._reachable(image)
            seen |= images
            if len(images) > 1:
                found = resolve(images, self.selection)
                components[found.images[0]] = found
                places |= dict.fromkeys(found.images, found.images[0])
        return replace(self, components=components, places=places)

    def _reachable(self, image: str) -> set[str]:
        """An image, and all that hang together with it."""
        seen, waiting = {image}, [image]
        photos: set[str] = set()
        while waiting:
            current = waiting.pop()
            near = set(self.links.get(current, ()))
            photo = self.photo_of.get(current, "")
            if photo not in photos:  # each photo once: many images may be of one
                photos.add(photo)
                near |= self.of_photo.get(photo, frozenset())
            near -= seen
            seen |= near
            waiting += near
        return seen


def graph_of(
    pairs: Iterable[Pair],
    selection: Priorities = SMALLEST_ID,
    *,
    photos: Mapping[str, str] | None = None,
) -> DuplicateGraph:
    """The graph of the pairs that are duplicates; images of other sets go by their set's name too.

    ``selection``  as :class:`Priorities`; its references are those of the pairs
    """
    joined = [pair for pair in pairs if pair.decision == "duplicate"]
    theirs = frozenset(pair.other for pair in joined if pair.reference)
    edges = ((pair.image_id, pair.other) for pair in joined)
    return DuplicateGraph.of(edges, replace(selection, references=theirs), photos=photos)


@dataclass(frozen=True, eq=False)
class NearDuplicates:
    """What a workspace knows of the duplicates of a test set's images.

    ``pairs``  what was found or judged, with distances and who decided, nearest first
    ``graph``  the duplicates among them, in components, with which image of each stays
    """

    testset: TestSet
    searches: Sequence[Neighbours]
    verdicts: Mapping[tuple[str, str], PairVerdict]
    pairs: Sequence[Pair]
    graph: DuplicateGraph

    def of(self, image_id: str) -> list[Pair]:
        """The pairs that an image is in, nearest first."""
        return self._pairs.get(image_id, [])

    def component(self, image_id: str) -> Resolution | None:
        """The images that hang together with an image by duplicates; None where there are none."""
        return self.graph.component(image_id)

    @property
    def kept(self) -> list[str]:
        """The images that stay when every component of duplicates is resolved."""
        out = self.graph.removed
        return [name for name in self.testset.image_ids.to_pylist() if name not in out]

    @cached_property
    def leaked(self) -> dict[str, frozenset[str]]:
        """By reference: the images that hang together with one of it by duplicates."""
        sets = {pair.other: pair.reference for pair in self.pairs if pair.reference}
        found: dict[str, set[str]] = {}
        for part in self.graph.components.values():
            for reference in {sets[name] for name in part.images if name in sets}:
                found.setdefault(reference, set()).update(part.removed)
        return {reference: frozenset(images) for reference, images in found.items()}

    @cached_property
    def in_doubt(self) -> dict[str, frozenset[str]]:
        """By reference, "" for the set itself: images in an unresolved pair that have not leaked to it."""
        found: dict[str, set[str]] = {}
        for pair in self.pairs:
            if pair.decision == "unresolved":
                names = {pair.image_id} if pair.reference else {pair.image_id, pair.other_id}
                found.setdefault(pair.reference, set()).update(names)
        return {
            reference: frozenset(images - self.leaked.get(reference, frozenset()))
            for reference, images in found.items()
        }

    @cached_property
    def not_compared(self) -> frozenset[str]:
        """Images that were added or have changed since a search, and can be read as far as is known."""
        files = self.testset.file_hashes
        found: set[str] = set()
        for search in self.searches:
            if search.search["testset"]["images_hash"] != self.testset.card.images_hash:
                there = search.candidates.rows(files)
                new = files.keys() - there.keys() - search.search["failures"].keys()
                found |= new | changed_since(search, files, there)
        return frozenset(found)

    def reviewed_down_to(self, image_id: str) -> dict[str, float]:
        """The smallest distance of a neighbour that nobody has decided on, by measure.

        Looked at are the first 30 neighbours in every set that the image was compared with: 0 where it
        was not compared, 1e100 where all of them are decided.
        """
        return self.review_thresholds([image_id])[image_id]

    def review_thresholds(self, images: Collection[str]) -> dict[str, dict[str, float]]:
        """:meth:`reviewed_down_to` of many images."""
        found: dict[str, dict[str, float]] = {image: {} for image in images}
        for search in self.searches:
            for image, distance in self._reviewed(images, search):
                known = found[image].get(search.label, distance)
                found[image][search.label] = min(known, distance)
        return found

    def is_reviewed(self, image_id: str) -> bool:
        """Whether an image is decided on beyond the threshold of every search that has one."""
        return not self.unreviewed([image_id])

    def unreviewed(self, images: Collection[str]) -> frozenset[str]:
        """Those of some images that are not :meth:`is_reviewed`; none where nothing was searched."""
        return frozenset(
            image
            for search in self.searches
            for image, distance in self._reviewed(images, search, up_to=search.threshold)
            if distance <= search.threshold
        )

    def _reviewed(
        self, images: Collection[str], search: Neighbours, *, up_to: float = math.inf
    ) -> Iterator[tuple[str, float]]:
        """Images with the distance down to which their neighbours in one search are decided on.

        ``up_to``  of an image without a neighbour as near as that, the nearest one's distance is enough
        """
        files = self.testset.file_hashes
        rows = search.candidates.rows(images)
        stale = changed_since(search, files, rows)
        nearest = search.distances.min(axis=1, initial=math.inf)
        for image in images:
            near = decided = None
            if image in rows and image not in stale:
                if nearest[rows[image]] > up_to:
                    yield image, float(nearest[rows[image]])
                    continue
                near = search.nearest(rows[image], FIRST)
                known = self._decided.get(image, set())
                decided = {
                    other
                    for other, _ in near
                    # Published verdicts leave out the name of the other set.
                    if named(search.reference, other) in known
                    or (other in known and other not in files)
                }
            yield image, reviewed_down_to(near, decided or ())

    @cached_property
    def _decided(self) -> dict[str, set[str]]:
        """Image -> others, as judgements name them, of which it is known whether they are duplicates."""
        sure = [(pair.image_id, pair.other) for pair in self.pairs if pair.decision != "unresolved"]
        sure += [pair for pair, verdict in self.verdicts.items() if verdict.answer != "unresolved"]
        found: dict[str, set[str]] = {}
        for one, other in sure:
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
        return found

    @cached_property
    def _pairs(self) -> dict[str, list[Pair]]:
        found: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            for name in {pair.image_id, pair.other}:
                found.setdefault(name, []).append(pair)
        return found


def near_duplicates(
    testset: TestSet,
    workspace: Workspace,
    *,
    searches: Sequence[Neighbours] | None = None,
    also: Sequence[Judgement] = (),
    frequency: str | None = None,
    photo: str | None = None,
) -> NearDuplicates:
    """What searches and people say of a test set's images, resolved; nothing is compared here.

    ``searches``   all saved ones by default
    ``also``       judgements that the workspace does not have
    ``frequency``  column: how often people selected an image; without it the smallest id stays
    ``photo``      column: images of one photo hang together
    """
    if searches is None:
        searches = saved_searches(workspace, testset.name)
    said = judgements_about(testset, workspace.judgements, questions=("duplicate", "review"))
    frequencies = None if frequency is None else number_column(testset, frequency)
    return resolved_duplicates(
        testset, searches, [*said, *also], frequencies=frequencies, photo=photo
    )


def resolved_duplicates(
    testset: TestSet,
    searches: Sequence[Neighbours],
    judgements: Iterable[Judgement],
    *,
    frequencies: Mapping[str, float] | None = None,
    photo: str | None = None,
    elsewhere: Callable[[str], str] = lambda image_id: "",
) -> NearDuplicates:
    """:func:`near_duplicates` from what searches found and people said, without a workspace.

    ``judgements``   those that stand, of the questions duplicate and review
    ``frequencies``  how often people selected an image for its class
    ``elsewhere``    the other set that an image is of which is not of this one and was not searched for;
                     "" where that is not known. What people call a duplicate of it does not stay.
    """
    said = list(judgements)
    answers = [given for given in said if given.question == "duplicate"]
    verdicts = current_verdicts(answers, _files(testset, searches, answers))
    pairs = decided_pairs(testset, searches, verdicts)
    pairs += _pairs_elsewhere(
        testset, verdicts, elsewhere, {(p.image_id, p.other_id) for p in pairs}
    )
    images = {(given.answer, given.subject.get("image_id", "")) for given in said}
    selection = Priorities(
        overrides={image for answer, image in images if answer == "keep"},
        blacklisted={image for answer, image in images if answer == "blacklisted"},
        frequencies=frequencies,
        classes={} if frequencies is None else testset.class_of_images(),
    )
    photos = None
    if photo is not None:
        photos = {image: str(of) for image, of in column(testset, photo).items()}
    graph = graph_of(pairs, selection, photos=photos)
    return NearDuplicates(testset, searches, verdicts, pairs, graph)


def _pairs_elsewhere(
    testset: TestSet,
    verdicts: Mapping[tuple[str, str], PairVerdict],
    elsewhere: Callable[[str], str],
    known: Collection[tuple[str, str]],
) -> list[Pair]:
    """Duplicates of images of other sets that no search has compared, by what people said."""
    ours = testset.file_hashes
    return [
        Pair(
            image_id=image,
            other_id=other,
            reference=reference,
            decision="duplicate",
            by=verdict.who,
            when=verdict.when,
        )
        for names, verdict in sorted(verdicts.items())
        if verdict.answer == "duplicate"
        for image, other in (names, names[::-1])
        if image in ours and other not in ours and (image, other) not in known
        for reference in [elsewhere(other)]
        if reference
    ]


def inherited_searches(testset: TestSet, workspace: Workspace) -> list[Neighbours]:
    """Saved searches of a test set, and those of sets it was made from that compared its images."""
    ids = testset.image_ids.to_pylist()
    names = sorted({name for name in sets_of(testset) if name} - {testset.name})
    found = [search for name in names for search in saved_searches(workspace, name)]
    return [
        *saved_searches(workspace, testset.name),
        *(search for search in found if search.candidates.rows(ids)),
    ]


def _files(
    testset: TestSet, searches: Sequence[Neighbours], answers: Iterable[Judgement]
) -> dict[str, str | None]:
    """The hashes of the images that answers name: of the set, and of references as they were compared."""
    names = {name for given in answers for name in given.subject.values()}
    found: dict[str, str | None] = {}
    for search in searches:
        if start := named(search.reference, ""):
            theirs = {name.removeprefix(start) for name in names if name.startswith(start)}
            found |= {start + name: each for name, each in hashes_of([search], theirs).items()}
    return found | testset.file_hashes


def column(testset: TestSet, name: str) -> dict[str, Any]:
    """Image -> its value in a column; images without one are left out."""
    if name not in testset.images.column_names:
        raise UserError(
            f"{testset.name} has no column {name!r}",
            fix=did_you_mean(name, testset.images.column_names),
        )
    values = testset.images[name].to_pylist()
    pairs = zip(testset.image_ids.to_pylist(), values, strict=True)
    return {image: value for image, value in pairs if value is not None}


def number_column(testset: TestSet, name: str) -> dict[str, float]:
    """Image -> its number in a column."""
    found = column(testset, name)
    if not all(isinstance(value, int | float) for value in found.values()):
        raise UserError(
            f"the column {name} of {testset.name} is not a number", fix="name a column of numbers"
        )
    return found
