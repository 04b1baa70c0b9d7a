"""The judgements of a workspace that are about the images of one test set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.panel import current_answers
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import TestSet

REVIEWING = ("label", "mistake", "review")
"""The questions by which a panel reviews predictions and images."""


def judgements_about(
    testset: TestSet, address: str, *, questions: Sequence[str] = REVIEWING
) -> list[Judgement]:
    """The answers that stand about images of ``testset``; none where there is no table yet.

    Taken are those given for this set, for a set that it was made from, or for no set by name: ids
    of images may mean something else in another set. ``address`` is
    :attr:`heldout.core.workspace.Workspace.judgements`.
    """
    file = address.removeprefix("sqlite:///")
    if file != address and not Path(file).exists():
        return []  # reading must not make an empty table
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
                if given.testset in names and given.subject.get("image_id") in images
            )
        ]


def sets_of(testset: TestSet) -> set[str | None]:
    """The test sets on whose behalf an answer about images of ``testset`` may have been given.

    The set itself, those that it was made from, and none by name.
    """
    card = testset.card
    parents = (str(parent["name"]) for parent in card.parents if parent.get("name"))
    return {None, card.name, *card.aliases, *parents}
