"""Judgements about the images of one test set, and whether a judgement's subject is one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.core.errors import LabelError, MismatchError
from heldout.data.judgements.consensus import current_answers
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
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
    if not table_exists(address):
        return []
    names = sets_of(testset)
    images = set(testset.image_ids.to_pylist())
    with JudgementStore(address) as store:
        # What stands is asked of these answers alone: one for another set must not hide ours.
        return [
            judgement
            for question in questions
            for judgement in current_answers(
                given
                for given in store.stream(question=question)
                if given.testset in names
                and any(given.subject.get(name) in images for name in _IMAGES)
            )
        ]


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
