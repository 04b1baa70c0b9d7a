"""Generated test sets under a kind of truth, and the rules of verdicts in plain loops."""

from __future__ import annotations

from collections.abc import Iterator

from heldout.data.testset import TestSet, make_testset
from heldout.measure.mistakes.verdicts import NOTHING, RIGHT, UNREVIEWED, WRONG
from tests.measure.score.worlds import Image, World, world_testset


def set_of_kind(world: World, kind: str, order: list[int] | None = None) -> TestSet:
    """A world as a test set whose truth is of a kind: single, real or multilabel."""
    made = world_testset(world, order)
    return make_testset(
        made.card.updated(truths={"original": {"kind": kind}}),
        images=made.images,
        truths=made.truths,
        label_space=made.label_space,
        memberships=made.memberships,
    )


def counted(world: World, kind: str) -> Iterator[tuple[int, Image]]:
    """The images that count, with their place in the world; worlds are in order of image id."""
    for row, image in enumerate(world.images):
        if (not image.problematic) if kind == "multilabel" else image.correct:
            yield row, image


def has_reviews(world: World, kind: str) -> bool:
    return kind == "multilabel" or any(image.wrong for _, image in counted(world, kind))


def plain_state(world: World, kind: str, model: str, row: int) -> tuple[int, int]:
    """(guess, state) of a model on an image, by the words of the documentation."""
    image, guesses = world.images[row], world.guesses(model, row)
    if not guesses:
        return -1, NOTHING
    guess = guesses[0]
    if guess in image.correct or guess in image.unclear:
        return guess, RIGHT
    if has_reviews(world, kind) and guess not in image.wrong:
        return guess, UNREVIEWED
    return guess, WRONG
