"""The judgements of a workspace that are about the images of one test set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heldout.judgements.judgement import Judgement
from heldout.judgements.store import JudgementStore
from heldout.testset import TestSet

REVIEWING = ("label", "mistake", "review")
"""The questions by which a panel reviews predictions and images."""


def judgements_about(
    testset: TestSet, address: str, *, questions: Sequence[str] = REVIEWING
) -> list[Judgement]:
    """The answers that stand about images of ``testset``; none where there is no table yet.

    Taken are those given for this set, for a set that it was made from, or for no set by name: ids
    of images may mean something else in another set. ``address`` is
    :attr:`heldout.workspace.Workspace.judgements`.
    """
    file = address.removeprefix("sqlite:///")
    if file != address and not Path(file).exists():
        return []  # reading must not make an empty table
    card = testset.card
    names = {None, card.name, *card.aliases, *(parent.get("name") for parent in card.parents)}
    images = set(testset.image_ids.to_pylist())
    with JudgementStore(address) as store:
        return [
            judgement
            for question in questions
            for judgement in store.current(question=question)
            if judgement.testset in names and judgement.subject.get("image_id") in images
        ]
