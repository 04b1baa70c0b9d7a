"""Audit: what is wrong with the images of a test set, as far as tables and lists can tell.

The lines of ImageNetV2's final inspection that need neither images nor votes: sizes per class,
uniqueness, where images come from, blacklisted images, near duplicates, reviews.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_file, read_json
from heldout.data.published.imagenetv2 import part_of
from heldout.data.testset.testset import TestSet

ReviewMarks = Mapping[str, Mapping[str, bool]]


@dataclass(frozen=True, kw_only=True)
class Blacklisted:
    """An image that is on the blacklist, with the reason given there."""

    image_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class DuplicateLink:
    """An image of the set and an image of another set that are near duplicates.

    ``part`` is the other set's name, else what the other image's id says: train, validation, test.
    """

    image_id: str
    other: str
    part: str


@dataclass(frozen=True, kw_only=True)
class ForeignImage:
    """An image that belongs to another set too, found there by its id or by its file's hash."""

    image_id: str
    belongs_to: str
    by: Literal["id", "sha256"]


@dataclass(frozen=True, kw_only=True)
class ClassSize:
    """How many images a class has."""

    class_id: str
    n: int


@dataclass(frozen=True, kw_only=True)
class ClassMismatch:
    """An image whose class is not the one it was gathered for."""

    image_id: str
    class_id: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The report of :func:`audit`. Lists are sorted by id.

    ``sizes``              class size -> how many classes have it
    ``target_per_class``   the size that classes should have, 0 where none is known
    ``absent``             classes of the label space without an image
    ``repeated_files``     groups of images that are one file, by SHA-256
    ``several_classes``    images that have more than one class
    ``duplicate_pairs``    near duplicates of which both images are in the set
    ``duplicate_groups``   images joined by chains of near duplicates, which may run outside the set
    ``duplicate_links``    near duplicates that are in another set (train, validation, test)
    ``problematic_images`` images that the truth marks so; ``problematic_classes`` by their review
    ``checked``            which checks had what they need
    """

    testset: str
    content_hash: str
    truth: str
    images: int
    classes: int
    label_space: str
    sources: dict[str, int]
    sizes: dict[int, int]
    target_per_class: int
    short: tuple[ClassSize, ...]
    long: tuple[ClassSize, ...]
    absent: tuple[str, ...]
    without_class: tuple[str, ...]
    several_classes: tuple[str, ...]
    repeated_files: tuple[tuple[str, ...], ...]
    blacklisted: tuple[Blacklisted, ...]
    duplicate_pairs: tuple[tuple[str, str], ...]
    duplicate_groups: tuple[tuple[str, ...], ...]
    duplicate_links: tuple[DuplicateLink, ...]
    foreign: tuple[ForeignImage, ...]
    class_mismatches: tuple[ClassMismatch, ...]
    problematic_images: tuple[str, ...]
    problematic_classes: tuple[str, ...]
    unreviewed_classes: tuple[str, ...]
    checked: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many of each problem there are; ``foreign`` and duplicates count images."""
        return {
            "short_classes": len(self.short),
            "long_classes": len(self.long),
            "absent_classes": len(self.absent),
            "without_class": len(self.without_class),
            "several_classes": len(self.several_classes),
            "repeated_files": sum(len(group) - 1 for group in self.repeated_files),
            "blacklisted": len(self.blacklisted),
            "duplicate_pairs": len(self.duplicate_pairs),
            "duplicate_groups": len(self.duplicate_groups),
            "duplicates_elsewhere": len({link.image_id for link in self.duplicate_links}),
            "foreign": len({item.image_id for item in self.foreign}),
            "class_mismatches": len(self.class_mismatches),
            "problematic_images": len(self.problematic_images),
            "problematic_classes": len(self.problematic_classes),
            "unreviewed_classes": len(self.unreviewed_classes),
        }

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not any(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, with the counts."""
        fields = asdict(self)
        fields["sizes"] = {str(size): n for size, n in self.sizes.items()}
        return {**fields, "counts": self.counts, "clean": self.clean}


def audit(
    testset: TestSet,
    *,
    truth: str | None = None,
    blacklist: Mapping[str, str] | None = None,
    near_duplicates: Mapping[str, Sequence[str]] | None = None,
    others: Mapping[str, TestSet | Iterable[str]] | None = None,
    expected_classes: Mapping[str, str] | None = None,
    review: ReviewMarks | None = None,
    target_per_class: int | None = None,
) -> Audit:
    """Look for images and classes that should not be in a test set as they are.

    ``blacklist``         image -> reason; else the set's own column ``blacklisted``
    ``near_duplicates``   image -> images; pairs may be listed once or from both sides
    ``others``            other sets, or plain image ids, by name: train, validation, another set
    ``expected_classes``  image -> the class it was gathered for
    ``review``            class -> {reviewed, problematic}; else the columns ``class_reviewed``
                          and ``class_problematic``
    ``target_per_class``  else the size that more than half of the classes have, if there is one
    """
    truth_name = truth or testset.card.default_truth
    rows = testset.truth(truth)
    ids = rows["image_id"].to_pylist()
    labels = rows["class_id"].to_pylist()
    of_class: dict[str, set[str]] = defaultdict(set)
    classes_of: dict[str, set[str]] = {image: set() for image in testset.image_ids.to_pylist()}
    for image, label in zip(ids, labels, strict=True):
        if label is not None:
            of_class[label].add(image)
            classes_of[image].add(label)
    sizes = Counter(len(images) for images in of_class.values())
    target = _target(sizes) if target_per_class is None else target_per_class
    sized = [ClassSize(class_id=label, n=len(of_class[label])) for label in sorted(of_class)]
    known_blacklist = _column(testset, "blacklisted") if blacklist is None else blacklist
    flags = zip(ids, rows["problematic"].to_pylist(), strict=True)
    elsewhere = _elsewhere(others or {})
    pairs, groups, links = _near_duplicates(classes_of.keys(), near_duplicates or {}, elsewhere)
    marks = _review(testset, classes_of) if review is None else review
    checks = {
        "blacklist": blacklist is not None or "blacklisted" in testset.images.column_names,
        "near_duplicates": near_duplicates is not None,
        "others": bool(others),
        "expected_classes": expected_classes is not None,
        "review": bool(marks),
        "files": testset.images["sha256"].null_count < len(testset),
    }
    return Audit(
        testset=testset.name,
        content_hash=testset.card.content_hash,
        truth=truth_name,
        images=len(testset),
        classes=len(of_class),
        label_space=testset.label_space.name,
        sources=_sources(testset),
        sizes=dict(sorted(sizes.items())),
        target_per_class=target,
        short=tuple(item for item in sized if item.n < target),
        long=tuple(item for item in sized if target and item.n > target),
        absent=tuple(label for label in testset.label_space.ids if label not in of_class),
        without_class=tuple(sorted(image for image, found in classes_of.items() if not found)),
        several_classes=tuple(sorted(i for i, found in classes_of.items() if len(found) > 1)),
        repeated_files=_repeated_files(testset),
        blacklisted=tuple(
            Blacklisted(image_id=image, reason=str(known_blacklist[image]))
            for image in sorted(classes_of)
            if known_blacklist.get(image) is not None
        ),
        duplicate_pairs=pairs,
        duplicate_groups=groups,
        duplicate_links=links,
        foreign=_foreign(testset, others or {}),
        class_mismatches=tuple(
            ClassMismatch(image_id=image, class_id=label, expected=expected_classes[image])
            for image in (sorted(classes_of) if expected_classes else ())
            for label in sorted(classes_of[image])
            if expected_classes and expected_classes.get(image, label) != label
        ),
        problematic_images=tuple(sorted({image for image, flag in flags if flag})),
        problematic_classes=tuple(
            sorted(c for c, mark in marks.items() if mark.get("problematic"))
        ),
        unreviewed_classes=tuple(
            sorted(c for c in of_class if marks and not marks.get(c, {}).get("reviewed", False))
        ),
        checked=tuple(name for name, possible in checks.items() if possible),
    )


def _target(sizes: Counter[int]) -> int:
    """The size that more than half of the classes have; 0 where there is none."""
    size, n = max(sizes.items(), key=lambda item: item[1], default=(0, 0))
    return size if 2 * n > sum(sizes.values()) else 0


def _column(testset: TestSet, name: str) -> dict[str, Any]:
    """Image -> value of a column, empty where the set has no such column."""
    if name not in testset.images.column_names:
        return {}
    values = testset.images[name].to_pylist()
    return dict(zip(testset.image_ids.to_pylist(), values, strict=True))


def _sources(testset: TestSet) -> dict[str, int]:
    found = Counter(source or "unknown" for source in testset.images["source"].to_pylist())
    return dict(sorted(found.items()))


def _review(testset: TestSet, classes_of: Mapping[str, set[str]]) -> dict[str, dict[str, bool]]:
    """Review marks by class, from the columns that an import with a review file gives."""
    marks: dict[str, dict[str, bool]] = {}
    for flag in ("reviewed", "problematic"):
        for image, value in _column(testset, f"class_{flag}").items():
            for label in classes_of[image]:
                mark = marks.setdefault(label, {"reviewed": False, "problematic": False})
                mark[flag] = mark[flag] or bool(value)
    return marks


def _repeated_files(testset: TestSet) -> tuple[tuple[str, ...], ...]:
    groups: dict[str, list[str]] = defaultdict(list)
    for image, digest in _column(testset, "sha256").items():
        if digest is not None:
            groups[digest].append(image)
    return tuple(sorted(tuple(sorted(group)) for group in groups.values() if len(group) > 1))


def _ids(other: TestSet | Iterable[str], name: str) -> set[str]:
    if isinstance(other, str):
        raise UserError(f"the ids of {name} are one text", fix="give a list of image ids")
    return set(other.image_ids.to_pylist()) if isinstance(other, TestSet) else set(other)


def _elsewhere(others: Mapping[str, TestSet | Iterable[str]]) -> dict[str, str]:
    """Image -> the first of the other sets that has it, sets in the order given."""
    found: dict[str, str] = {}
    for name, other in others.items():
        for image in _ids(other, name):
            found.setdefault(image, name)
    return found


def _foreign(
    testset: TestSet, others: Mapping[str, TestSet | Iterable[str]]
) -> tuple[ForeignImage, ...]:
    digests = _column(testset, "sha256")
    found: list[ForeignImage] = []
    for name, other in others.items():
        known = _ids(other, name)
        files: set[str] = set()
        if isinstance(other, TestSet):
            files = {digest for digest in other.images["sha256"].to_pylist() if digest is not None}
        for image, digest in digests.items():
            if image in known:
                found.append(ForeignImage(image_id=image, belongs_to=name, by="id"))
            elif digest in files:
                found.append(ForeignImage(image_id=image, belongs_to=name, by="sha256"))
    return tuple(sorted(found, key=lambda item: (item.image_id, item.belongs_to)))


def _near_duplicates(
    inside: Iterable[str], listed: Mapping[str, Sequence[str]], elsewhere: Mapping[str, str]
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, ...], ...], tuple[DuplicateLink, ...]]:
    """Pairs inside the set, groups joined by chains, and links to images of other sets."""
    members = set(inside)
    edges = {(min(a, b), max(a, b)) for a, found in listed.items() for b in found if a != b}
    pairs = tuple(sorted(edge for edge in edges if edge[0] in members and edge[1] in members))
    links = []
    for edge in edges:
        for image, other in (edge, edge[::-1]):
            if image in members and other not in members:
                part = elsewhere.get(other) or part_of(other)
                if part != "candidate":
                    links.append(DuplicateLink(image_id=image, other=other, part=part))
    return (
        pairs,
        _groups(members, edges),
        tuple(sorted(links, key=lambda link: (link.image_id, link.other))),
    )


def _groups(members: set[str], edges: set[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Connected components of the near-duplicate graph with two images of the set or more."""
    root: dict[str, str] = {}

    def find(image: str) -> str:
        top = image
        while root.setdefault(top, top) != top:
            top = root[top]
        while root[image] != top:
            root[image], image = top, root[image]
        return top

    for a, b in edges:
        first, second = sorted((find(a), find(b)))
        root[second] = first
    found: dict[str, list[str]] = defaultdict(list)
    for image in members & root.keys():
        found[find(image)].append(image)
    return tuple(sorted(tuple(sorted(group)) for group in found.values() if len(group) > 1))


def read_blacklist(path: Path) -> dict[str, str]:
    """A JSON object of image -> reason."""
    value = read_json(path)
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise BadFile(path, "is not an object of image -> reason", fix="give a blacklist file")
    return value


def read_near_duplicates(path: Path) -> dict[str, tuple[str, ...]]:
    """A JSON object of image -> list of images that are nearly the same."""
    value = read_json(path)
    if not isinstance(value, dict) or not all(
        isinstance(found, list) and all(isinstance(image, str) for image in found)
        for found in value.values()
    ):
        raise BadFile(
            path, "is not an object of image -> list of images", fix="give a near-duplicates file"
        )
    return {image: tuple(found) for image, found in value.items()}


def read_image_ids(path: Path) -> tuple[str, ...]:
    """Image ids: a JSON list of texts, or a text file with one id per line."""
    existing_file(path, "list of image ids")
    if path.suffix == ".json":
        value = read_json(path)
        if not isinstance(value, list) or not all(isinstance(image, str) for image in value):
            raise BadFile(path, "is not a list of image ids", fix="give a JSON list of texts")
        return tuple(value)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="give one image id per line") from None
    return tuple(line.strip() for line in lines if line.strip())
