"""Labels to doubt, as a queue."""

from __future__ import annotations

from heldout.measure.mistakes.between_models import model_consensus
from heldout.measure.mistakes.panel import PanelAnswers
from heldout.measure.mistakes.review_queue import label_queue
from heldout.measure.mistakes.verdicts import verdicts
from tests.measure.score.worlds import Image, World, single_label, world_testset

NOBODY = PanelAnswers({}, {})


def _hot(place: int) -> tuple[float, ...]:
    return tuple(float(c == place) for c in range(4))


def _consensus(world: World):  # type: ignore[no-untyped-def]
    return model_consensus(verdicts(world_testset(world), world.predictions()))


WORLD = single_label(
    [0, 0, 3],
    4,
    {
        "m": [_hot(1), _hot(1), _hot(3)],
        "n": [_hot(2), _hot(1), _hot(0)],
        "o": [_hot(1), _hot(1), _hot(0)],
    },
)


def test_two_questions_an_image_most_votes_first() -> None:
    queue, evidence = label_queue(_consensus(WORLD), NOBODY)
    assert [(m.image_id, m.prediction, m.models) for m in queue.entries] == [
        ("i001", "c1", ("m", "n", "o")),
        ("i001", "c0", ()),
        ("i000", "c1", ("m", "o")),
        ("i000", "c0", ()),
    ]
    assert queue.judged == 0 and queue.aim == "labels"
    assert [p.key for p in evidence] == [(m.image_id, m.prediction) for m in queue.entries]
    assert evidence[2].evidence[0].text == (
        "3 of 3 models miss the image; 2 of them say class 1; its label is class 0"
    )
    more, _ = label_queue(_consensus(WORLD), NOBODY, at_least=2)
    assert {m.image_id for m in more.entries} == {"i000", "i001", "i002"}
    assert more.name == queue.name


def test_what_is_judged_is_not_asked_again() -> None:
    panel = PanelAnswers(
        {
            ("ann", "i001", "c1"): ("correct", None, None),
            ("bob", "i001", "c1"): ("correct", None, None),
            ("ann", "i000", "c0"): ("wrong", "Other", "Minor"),
        },
        {},
    )
    queue, _ = label_queue(_consensus(WORLD), panel)
    assert [(m.image_id, m.prediction) for m in queue.entries] == [("i001", "c0"), ("i000", "c1")]
    assert queue.judged == 2


def test_images_without_a_label_or_an_answer() -> None:
    images = (Image("a", None, (0,)), Image("b", 1, (1,)))
    world = World(4, images, {"m": (_hot(2), None), "n": (_hot(2), None)})
    queue, evidence = label_queue(_consensus(world), NOBODY)
    assert [(m.image_id, m.prediction) for m in queue.entries] == [("a", "c2"), ("b", "c1")]
    assert "its label" not in evidence[0].evidence[0].text
    assert "say" not in evidence[1].evidence[0].text
