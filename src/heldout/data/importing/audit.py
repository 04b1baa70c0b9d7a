"""Audit: how a test set was made, and what is wrong with its images, as far as tables can tell.

All lines of ImageNetV2's final inspection: provenance, sizes per class, uniqueness, where images come
from, their classes, blacklisted images, votes and selection frequencies, near duplicates and down to
which distance they were looked for, reviews of classes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from heldout.core.records import plain
from heldout.core.schema import read
from heldout.data.judgements.workers import SelectionFrequency
from heldout.data.published.annotations import text_lines
from heldout.data.published.imagenetv2 import part_of
from heldout.data.published.imagenetv2_revisions import ClassReview, class_reviews
from heldout.data.testset.testset import TestSet

Rows = tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The report of :func:`audit`. Lists are sorted by id; their rows are as JSON has them.

    ``sizes``              class size -> how many classes have it
    ``target_per_class``   the size that classes should have, 0 where none is known
    ``short``, ``long``    rows of class_id and n, its number of images
    ``absent``             classes of the label space without an image
    ``repeated_files``     groups of images that are one file, by SHA-256
    ``several_classes``    images that have more than one class
    ``duplicate_pairs``    near duplicates of which both images are in the set
    ``duplicate_groups``   images joined by chains of near duplicates, which may run outside the set
    ``duplicate_links``    near duplicates in another set: image_id, other, and part, which is the
                           other set's name, else what the id says: train, validation, test
    ``blacklisted``        rows of image_id and reason
    ``foreign``            images of another set: image_id, belongs_to, by ``id`` or ``sha256``
    ``class_mismatches``   images not of the class they were gathered for: class_id, expected
    ``problematic_images`` images that the truth marks so; ``problematic_classes`` by their review
    ``reviewed_classes``   how many classes were reviewed
    ``provenance``         what drew it, its seed and parameters, and the revision before it
    ``min_votes``          fewest votes of an image for its class
    ``min_frequency``      least selection frequency; ``min_frequency_elsewhere`` without the classes
                           in ``special``, which have a threshold of their own
    ``mean_frequency``     mean selection frequency, of images with votes
    ``without_votes``      images that nobody voted on
    ``near_duplicates``    images that go when near duplicates are resolved
    ``reviewed_down_to``   by measure: the nearest neighbour of any image that nobody looked at
    ``checked``            which checks had what they need; what rests on others was not compared
    """

    record: ClassVar[str] = "audit"
    testset: str
    content_hash: str
    truth: str
    images: int
    classes: int
    label_space: str
    sources: dict[str, int]
    sizes: dict[int, int]
    target_per_class: int
    short: Rows
    long: Rows
    absent: tuple[str, ...]
    without_class: tuple[str, ...]
    several_classes: tuple[str, ...]
    repeated_files: tuple[tuple[str, ...], ...]
    blacklisted: Rows
    duplicate_pairs: tuple[tuple[str, str], ...]
    duplicate_groups: tuple[tuple[str, ...], ...]
    duplicate_links: Rows
    foreign: Rows
    class_mismatches: Rows
    problematic_images: tuple[str, ...]
    problematic_classes: tuple[str, ...]
    unreviewed_classes: tuple[str, ...]
    checked: tuple[str, ...]
    provenance: dict[str, Any]
    reviewed_classes: int | None
    special: tuple[str, ...]
    min_votes: int | None
    min_frequency: float | None
    min_frequency_elsewhere: float | None
    mean_frequency: float | None
    without_votes: int | None
    near_duplicates: tuple[str, ...] | None
    reviewed_down_to: dict[str, float] | None

    @property
    def counts(self) -> dict[str, int | None]:
        """How many of each problem there are, None where nothing was compared.

        ``foreign`` and duplicates count images.
        """
        counted = {
            "short_classes": self.short,
            "long_classes": self.long,
            "absent_classes": self.absent,
            "without_class": self.without_class,
            "several_classes": self.several_classes,
            "repeated_files": [image for group in self.repeated_files for image in group[1:]],
            "blacklisted": self.blacklisted,
            "duplicate_pairs": self.duplicate_pairs,
            "duplicate_groups": self.duplicate_groups,
            "duplicates_elsewhere": {link["image_id"] for link in self.duplicate_links},
            "foreign": {item["image_id"] for item in self.foreign},
            "class_mismatches": self.class_mismatches,
            "problematic_images": self.problematic_images,
            "problematic_classes": self.problematic_classes,
            "unreviewed_classes": self.unreviewed_classes,
        }
        return {
            name: None if _needs(name) not in (None, *self.checked) else len(found)
            for name, found in counted.items()
        }

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not any(self.counts.values())

    @property
    def lines(self) -> list[str]:
        """What a person reads."""
        sizes = ", ".join(f"{size} ({count:,} classes)" for size, count in self.sizes.items())
        found = [
            f"  {name.replace('_', ' ')}: "
            + (f"not compared: needs {_NEEDS[_needs(name) or '']}" if n is None else f"{n:,}")
            for name, n in self.counts.items()
            if n != 0
        ]
        return [
            f"{self.testset}: {self.images:,} images, {self.classes:,} classes, truth {self.truth}",
            "sources: " + ", ".join(f"{name} {count:,}" for name, count in self.sources.items()),
            f"images a class: {sizes}",
            *self._history,
            *found,
            "clean as far as was compared"
            if self.clean
            else "not clean: --json lists every image and class",
        ]

    @property
    def _history(self) -> list[str]:
        """How the images were drawn, voted on and reviewed; only what is known."""
        made = [f"{name} {_shown(value)}" for name, value in self.provenance.items()]
        lines = [f"made: {', '.join(made)}"] if made else []
        if self.min_votes is not None:
            lines.append(
                f"votes of an image: {self.min_votes:,} or more; {self.without_votes:,} without any"
            )
        if self.min_frequency is not None and self.mean_frequency is not None:
            least = f"{self.min_frequency:.3g}"
            if self.special and self.min_frequency_elsewhere is not None:
                elsewhere = f"{self.min_frequency_elsewhere:.3g}"
                least += f" ({elsewhere} without classes that have a threshold of their own)"
            lines.append(
                f"selection frequency: {least} or more, {self.mean_frequency:.2f} on average"
            )
        if self.near_duplicates is not None:
            lines.append(f"near duplicates that go: {len(self.near_duplicates):,}")
        if self.reviewed_down_to:
            near = (f"{name} {value:.6g}" for name, value in self.reviewed_down_to.items())
            lines.append(f"neighbours reviewed down to: {', '.join(near)}")
        if self.reviewed_classes is not None:
            lines.append(f"classes reviewed: {self.reviewed_classes:,}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, with the counts."""
        fields = asdict(self)
        fields["sizes"] = {str(size): n for size, n in self.sizes.items()}
        return {**fields, "counts": self.counts, "clean": self.clean}


_NEEDS = {
    "blacklist": "--blacklist",
    "near_duplicates": "--near-duplicates",
    "others": "--other",
    "expected_classes": "the pool that images were chosen from",
    "review": "an import with --reviews",
    "files": "file hashes",
}
"""What every check needs, as a user gives it."""
_CHECKS = {
    "repeated_files": "files",
    "blacklisted": "blacklist",
    "foreign": "others",
    "class_mismatches": "expected_classes",
    "problematic_classes": "review",
    "unreviewed_classes": "review",
}


def _needs(name: str) -> str | None:
    return "near_duplicates" if name.startswith("duplicate") else _CHECKS.get(name)


def audit(
    testset: TestSet,
    *,
    truth: str | None = None,
    blacklist: Mapping[str, str] | None = None,
    near_duplicates: Mapping[str, Sequence[str]] | None = None,
    others: Mapping[str, TestSet | Iterable[str]] | None = None,
    expected_classes: Mapping[str, str] | None = None,
    frequencies: Iterable[SelectionFrequency] | None = None,
    duplicates: Collection[str] | None = None,
    review_thresholds: Mapping[str, Mapping[str, float]] | None = None,
    reviews: Mapping[str, ClassReview] | None = None,
) -> Audit:
    """Look for images and classes that should not be in a test set as they are.

    ``blacklist``         image -> reason
    ``near_duplicates``   image -> images; pairs may be listed once or from both sides
    ``others``            other sets, or plain image ids, by name: train, validation, another set
    ``expected_classes``  image -> the class it was gathered for
    ``frequencies``       what people voted; without it the columns of a set that was built from votes
    ``duplicates``        images that go when near duplicates are resolved
    ``review_thresholds`` image -> measure -> down to which distance its neighbours were looked at
    ``reviews``           class -> its review; without it the columns of the set

    A class should have the size that more than half of the classes have, if there is one.
    """
    rows = testset.truth(truth)
    ids = rows["image_id"].to_pylist()
    of_class: dict[str, set[str]] = defaultdict(set)
    classes_of: dict[str, set[str]] = {image: set() for image in testset.image_ids.to_pylist()}
    for image, label in zip(ids, rows["class_id"].to_pylist(), strict=True):
        if label is not None:
            of_class[label].add(image)
            classes_of[image].add(label)
    images = sorted(classes_of)
    sizes = Counter(len(found) for found in of_class.values())
    size, n = max(sizes.items(), key=lambda item: item[1], default=(0, 0))
    target = size if 2 * n > sum(sizes.values()) else 0
    sized: list[dict[str, Any]] = [
        {"class_id": label, "n": len(of_class[label])} for label in sorted(of_class)
    ]
    reasons = blacklist or {}
    expected = expected_classes or {}
    flags = zip(ids, rows["problematic"].to_pylist(), strict=True)
    elsewhere = {
        name: set(other.image_ids.to_pylist()) if isinstance(other, TestSet) else set(other)
        for name, other in (others or {}).items()
    }
    edges = {
        (min(a, b), max(a, b))
        for a, found in (near_duplicates or {}).items()
        for b in found
        if a != b
    }
    files: dict[str, list[str]] = defaultdict(list)
    for image, digest in _column(testset, "sha256").items():
        if digest is not None:
            files[digest].append(image)
    sources = Counter(source or "unknown" for source in testset.images["source"].to_pylist())
    marks = class_reviews(testset) if reviews is None else reviews
    labelled = [(image, label) for image, found in classes_of.items() for label in found]
    checks = {
        "blacklist": blacklist is not None,
        "near_duplicates": near_duplicates is not None,
        "others": bool(others),
        "expected_classes": expected_classes is not None,
        "review": bool(marks),
        "files": bool(files),
    }
    return Audit(
        testset=testset.name,
        content_hash=testset.content_hash,
        truth=truth or testset.card.default_truth,
        images=len(testset),
        classes=len(of_class),
        label_space=testset.label_space.name,
        sources=dict(sorted(sources.items())),
        sizes=dict(sorted(sizes.items())),
        target_per_class=target,
        short=tuple(row for row in sized if row["n"] < target),
        long=tuple(row for row in sized if target and row["n"] > target),
        absent=tuple(label for label in testset.label_space.ids if label not in of_class),
        without_class=tuple(image for image in images if not classes_of[image]),
        several_classes=tuple(image for image in images if len(classes_of[image]) > 1),
        repeated_files=_several(files.values()),
        blacklisted=tuple(
            {"image_id": image, "reason": reasons[image]} for image in images if image in reasons
        ),
        duplicate_pairs=tuple(sorted(edge for edge in edges if classes_of.keys() >= {*edge})),
        duplicate_groups=_several(found & classes_of.keys() for found in _components(edges)),
        duplicate_links=_links(classes_of.keys(), edges, elsewhere),
        foreign=_foreign(testset, others or {}, elsewhere),
        class_mismatches=tuple(
            {"image_id": image, "class_id": label, "expected": expected[image]}
            for image in images
            for label in sorted(classes_of[image])
            if expected.get(image, label) != label
        ),
        problematic_images=tuple(sorted({image for image, flag in flags if flag})),
        problematic_classes=tuple(sorted(c for c, mark in marks.items() if mark.problematic)),
        unreviewed_classes=tuple(
            sorted(c for c in of_class if marks and not (c in marks and marks[c].reviewed))
        ),
        checked=tuple(name for name, possible in checks.items() if possible),
        provenance=_provenance(testset),
        reviewed_classes=sum(mark.reviewed for mark in marks.values()) if marks else None,
        **_vote_lines(testset, labelled, frequencies),
        near_duplicates=None
        if duplicates is None
        else tuple(image for image in images if image in duplicates),
        reviewed_down_to=None if review_thresholds is None else _nearest_open(review_thresholds),
    )


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={plain(item)}" for name, item in value.items())
    return plain(value)


_STATED = 80


def _provenance(testset: TestSet) -> dict[str, Any]:
    """What the card says of how a set was drawn; longer values are left to the card."""
    recipe = testset.card.recipe
    given = {
        "recipe": recipe.get("name"),
        "seed": recipe.get("seed"),
        **recipe.get("parameters", {}),
    }
    for parent in testset.card.parents:
        if parent.get("relation") in ("earlier revision", "previous"):
            given["starting_from"] = parent["name"]
    return {
        name: value
        for name, value in given.items()
        if value not in (None, "", (), [], {}) and len(str(value)) <= _STATED
    }


def _vote_lines(
    testset: TestSet,
    labelled: Sequence[tuple[str, str]],
    frequencies: Iterable[SelectionFrequency] | None,
) -> dict[str, Any]:
    """What is known of the votes for images of their classes."""
    said: dict[tuple[str, str], tuple[int, float]] = {}
    parameters = testset.card.recipe.get("parameters", {})
    special = set(parameters.get("wnid_thresholds") or parameters.get("thresholds") or ())
    if frequencies is not None:
        said = {(one.image_id, one.class_id): (one.n, one.frequency) for one in frequencies}
    else:
        votes, shares = _column(testset, "votes"), _column(testset, "frequency")
        for image, label in labelled:
            if votes.get(image) and shares.get(image) is not None:
                said[image, label] = votes[image], shares[image]
    found = {key: said[key] for key in labelled if said.get(key, (0, 0.0))[0]}
    shares_found = [frequency for _, frequency in found.values()]
    elsewhere = [frequency for (_, label), (_, frequency) in found.items() if label not in special]
    return {
        "special": tuple(sorted(special)),
        "min_votes": min((said.get(key, (0, 0.0))[0] for key in labelled), default=0)
        if said
        else None,
        "min_frequency": min(shares_found, default=None),
        "min_frequency_elsewhere": min(elsewhere, default=None),
        "mean_frequency": math.fsum(shares_found) / len(shares_found) if shares_found else None,
        "without_votes": len(labelled) - len(found) if said else None,
    }


def _nearest_open(thresholds: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """By measure the smallest distance of a neighbour of any image that nobody looked at."""
    found: dict[str, float] = {}
    for of_image in thresholds.values():
        for measure, distance in of_image.items():
            found[measure] = min(found.get(measure, distance), distance)
    return dict(sorted(found.items()))


def _column(testset: TestSet, name: str) -> dict[str, Any]:
    """Image -> value of a column, empty where the set has no such column."""
    if name not in testset.images.column_names:
        return {}
    values = testset.images[name].to_pylist()
    return dict(zip(testset.image_ids.to_pylist(), values, strict=True))


def _several(groups: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """Groups of two images or more, sorted."""
    return tuple(sorted(group for group in (tuple(sorted(g)) for g in groups) if len(group) > 1))


def _foreign(
    testset: TestSet,
    others: Mapping[str, TestSet | Iterable[str]],
    elsewhere: Mapping[str, set[str]],
) -> Rows:
    """Images that belong to another set too, found there by their id or by their file's hash."""
    found = []
    for name, other in others.items():
        files = set(other.images["sha256"].to_pylist()) if isinstance(other, TestSet) else set()
        for image, digest in _column(testset, "sha256").items():
            by_id = image in elsewhere[name]
            if by_id or (digest is not None and digest in files):
                by = "id" if by_id else "sha256"
                found.append({"image_id": image, "belongs_to": name, "by": by})
    return tuple(sorted(found, key=lambda row: (row["image_id"], row["belongs_to"])))


def _links(
    members: Collection[str], edges: set[tuple[str, str]], elsewhere: Mapping[str, set[str]]
) -> Rows:
    """Near duplicates of which one image is in the set and the other in another set."""
    links = []
    for edge in edges:
        for image, other in (edge, edge[::-1]):
            if image in members and other not in members:
                holders = (name for name, ids in elsewhere.items() if other in ids)
                part = next(holders, None) or part_of(other)
                if part != "candidate":
                    links.append({"image_id": image, "other": other, "part": part})
    return tuple(sorted(links, key=lambda row: (row["image_id"], row["other"])))


def _components(edges: Iterable[tuple[str, str]]) -> Iterable[set[str]]:
    """The connected components of the near-duplicate graph."""
    component: dict[str, set[str]] = {}
    for a, b in edges:
        few, many = sorted((component.setdefault(a, {a}), component.setdefault(b, {b})), key=len)
        if few is not many:
            many |= few
            component |= dict.fromkeys(few, many)
    return {id(found): found for found in component.values()}.values()


def read_blacklist(path: Path) -> dict[str, str]:
    """A JSON object of image -> reason."""
    return read(path, dict[str, str], fix="give an object of image -> reason")


def read_near_duplicates(path: Path) -> dict[str, tuple[str, ...]]:
    """A JSON object of image -> list of images that are nearly the same."""
    return read(path, dict[str, tuple[str, ...]], fix="give an object of image -> list of images")


def read_image_ids(path: Path) -> tuple[str, ...]:
    """Image ids: a JSON list of texts, or a text file with one id per line."""
    if path.suffix == ".json":
        return read(path, tuple[str, ...], fix="give a JSON list of texts")
    return tuple(filter(None, text_lines(path, "list of image ids")))
