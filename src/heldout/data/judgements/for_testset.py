"""Judgements about the images of one test set, and whether a judgement's subject is one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from heldout.core.errors import LabelError, MismatchError
from heldout.data.judgements.consensus import current_answers
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.judgements.workers import counted_votes
from heldout.data.testset import TestSet

_IMAGES = ("image_id", "other_id")
_CLASSES = ("class_id", "other_class_id", "prediction")


class SubjectCheck:
    """Refuses judgements about images and classes that a test set does not have."""

    def __init__(self, testset: TestSet) -> None:
        self._testset = testset
        self._images = set(testset.image_ids.to_pylist())
        self._classes = set(testset.space.ids) if testset.space else set()

    def __call__(self, judgement: Judgement) -> None:
        """Refuse ``judgement`` if its subject names something unknown.

        One image of a pair may be of a reference, and is named ``REFERENCE:IMAGE``.
        """
        images = [judgement.subject[name] for name in _IMAGES if name in judgement.subject]
        foreign = [image for image in images if image not in self._images]
        if foreign and (len(foreign) == len(images) or ":" not in foreign[0]):
            raise MismatchError(
                f"image {foreign[0]!r} is not in test set {self._testset.name}",
                fix="name the test set that was judged with -t",
            )
        for name in _CLASSES:
            label = judgement.subject.get(name)
            if label is not None and label not in self._classes:
                raise LabelError(
                    f"class {label!r} is not in label space {self._testset.label_space.name}",
                    fix="use the ids of its classes; heldout labels find looks them up",
                )


REVIEWING = ("label", "mistake", "review")
"""The questions by which a panel reviews predictions and images."""


def judgements_about(
    testset: TestSet, address: str | Path, *, questions: Sequence[str] = REVIEWING
) -> list[Judgement]:
    """The answers that hold about images of ``testset``; none where there is no table yet.

    Taken are those given for this set, for a set that it was made from, or for no set by name: ids
    of images may mean something else in another set. ``address`` is
    :attr:`heldout.core.workspace.Workspace.judgements`.
    """
    names = sets_of(testset)
    images = set(testset.image_ids.to_pylist())
    return [
        judgement
        for question in questions
        # What stands is asked of these answers alone: one for another set must not hide ours.
        for judgement in current_answers(
            given
            for given in _stored(address, question)
            if given.testset in names and any(given.subject.get(name) in images for name in _IMAGES)
        )
    ]


def votes_about(
    testsets: Sequence[TestSet], address: str | Path, *, listed: Iterable[str] = ()
) -> list[Judgement]:
    """The votes that count (:func:`~heldout.data.judgements.workers.counted_votes`) on some images.

    They are given for one of the test sets, or for a set that they were made from; without a test
    set, for whichever. Images of an original set are voted on as controls of another set's grids,
    so sets are asked about together. ``listed`` are images besides theirs, such as controls that
    a file names.
    """
    names = {name for testset in testsets for name in sets_of(testset)}
    images = set(listed).union(*(testset.image_ids.to_pylist() for testset in testsets))
    return counted_votes(
        vote
        for vote in _stored(address, "vote")
        if (not names or vote.testset in names) and vote.subject["image_id"] in images
    )


def class_reviews_about(testset: TestSet, address: str | Path) -> list[Judgement]:
    """The reviews that hold of whole classes of a test set, by its name or an alias."""
    names = {testset.name, *testset.card.aliases}
    return current_answers(
        given
        for given in _stored(address, "review")
        if "class_id" in given.subject and given.subject["testset"] in names
    )


def blacklist_about(testset: TestSet, address: str | Path) -> dict[str, str] | None:
    """Images of a test set that somebody blacklisted, with the reason.

    None where nobody has blacklisted any image for this set, or for one that it was made from.
    """
    names = sets_of(testset)
    images = set(testset.image_ids.to_pylist())
    given = [
        one
        for one in current_answers(
            one
            for one in _stored(address, "review")
            if one.testset in names and "image_id" in one.subject
        )
        if one.answer == "blacklisted"
    ]
    if not given:
        return None
    return {
        one.subject["image_id"]: str(one.evidence.get("reason", ""))
        for one in given
        if one.subject["image_id"] in images
    }


def _stored(address: str | Path, question: str) -> Iterator[Judgement]:
    """The answers to a question; none where there is no table yet."""
    if not table_exists(address):
        return
    with JudgementStore(address) as store:
        yield from store.stream(question=question)


def table_exists(address: str | Path) -> bool:
    """Whether there is a table to read: reading must not make an empty one."""
    file = str(address).removeprefix("sqlite:///")
    return not (isinstance(address, Path) or file != address) or Path(file).exists()


def sets_of(testset: TestSet) -> set[str | None]:
    """The test sets on whose behalf an answer about images of ``testset`` may have been given.

    The set itself, those that it was made from, and none by name. A reference is a set of other images.
    """
    card = testset.card
    made_from = (parent for parent in card.parents if parent.get("relation") != "reference")
    parents = (str(parent["name"]) for parent in made_from if parent.get("name"))
    return {None, card.name, *card.aliases, *parents}
