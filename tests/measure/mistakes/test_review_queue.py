"""Tests of :mod:`heldout.measure.mistakes.review_queue`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.measure.mistakes.between_models import suspects
from heldout.measure.mistakes.categories import Proposal
from heldout.measure.mistakes.panel import PanelAnswers, Ruling
from heldout.measure.mistakes.review_queue import (
    Queue,
    empty_classes,
    label_queue,
    open_pairs,
    row_weights,
)
from heldout.measure.mistakes.reviewed_accuracy import accuracy_records, reviewed_accuracies
from heldout.measure.mistakes.verdicts import RIGHT, UNREVIEWED, WRONG, verdicts
from heldout.measure.score.measure import measure
from tests.measure.mistakes.made import counted, plain_state, set_of_kind
from tests.measure.mistakes.review_case import answer_head, both_verdicts
from tests.measure.score.worlds import Image, World, single_label, world_testset, worlds

# Bounds and estimates of accuracy: exact when all is reviewed, and honest before that.


@settings(max_examples=80)
@given(worlds(every_class=True), st.sampled_from(["single", "multilabel"]))
def test_open_pairs_are_those_that_nobody_has_judged(world: World, kind: str) -> None:
    try:
        found = verdicts(set_of_kind(world, kind), world.predictions())
    except NotApplicable:
        return
    pairs = open_pairs(found, average="images")
    state = UNREVIEWED if found.reviewed else WRONG
    expected: dict[tuple[str, str], set[str]] = {}
    for model in world.logits:
        for row, image in counted(world, kind):
            guess, said = plain_state(world, kind, model, row)
            if said == state and guess >= 0:
                expected.setdefault((image.id, world.space.ids[guess]), set()).add(model)
    assert pairs.pairs == tuple(sorted(expected, key=lambda k: (k[0], world.space.index(k[1]))))
    for key, made in zip(pairs.pairs, pairs.made, strict=True):
        assert {found.models[m] for m in np.flatnonzero(made)} == expected[key]
    assert ((pairs.odds > 0) & (pairs.odds < 1)).all() and (pairs.keys >= 0).all()


@settings(max_examples=60)
@given(worlds(every_class=True, failures=False))
def test_bounds_are_the_scores_of_both_extremes(world: World) -> None:
    testset = set_of_kind(world, "multilabel")
    try:
        found = verdicts(testset, world.predictions())
    except NotApplicable:
        return
    for average, metrics in (("images", ["mla_micro"]), ("classes", ["mla", "mla_upper"])):
        measured = measure(testset, world.predictions(), metrics=metrics, absent_classes="skip")
        bounds = reviewed_accuracies(open_pairs(found, average=average), {}, replicates=20)
        for m, item in enumerate(bounds):
            assert item.lower == pytest.approx(float(measured[0].estimates()[m]))
            if average == "classes":
                assert item.upper == pytest.approx(float(measured[1].estimates()[m]))
            if item.open:
                assert item.value is None and item.reason and "queue" in item.reason
            else:
                assert item.value == item.lower == item.upper


def test_everything_answered_is_the_whole_truth() -> None:
    whole, partial = both_verdicts(3)
    for average in ("images", "classes"):
        pairs = open_pairs(partial, average=average)
        found = reviewed_accuracies(pairs, answer_head(pairs, whole, len(pairs)), replicates=50)
        for m, item in enumerate(found):
            exact = float(row_weights(whole, average) @ (whole.states[:, m] == RIGHT))
            assert item.lower == item.upper == item.value == pytest.approx(exact)
            assert item.review is not None and item.review.width == 0
            assert item.interval is not None and item.interval.width > 0.05, "images are a sample"
            assert item.open == 0 and item.answered == int(pairs.made[:, m].sum())


def test_the_interval_holds_the_whole_truth() -> None:
    held = total = 0
    widths = []
    for seed in range(25):
        whole, partial = both_verdicts(seed)
        pairs = open_pairs(partial, average="classes", seed=seed)
        found = reviewed_accuracies(pairs, answer_head(pairs, whole, 40), replicates=20)
        for m, item in enumerate(found):
            exact = float(pairs.weights @ (whole.states[:, m] == RIGHT))
            assert item.review is not None and item.value is not None
            assert item.lower <= item.review.low <= item.value <= item.review.high <= item.upper
            held += item.review.low <= exact <= item.review.high
            total += 1
            widths.append(item.review.width / (item.upper - item.lower + 1e-12))
    assert held / total >= 0.9
    assert np.mean(widths) < 0.8, "answers narrow what bounds leave open"


def test_answers_from_elsewhere_are_known_and_tell_nothing_of_the_rest() -> None:
    whole, partial = both_verdicts(1)
    pairs = open_pairs(partial, average="images")
    elsewhere = reviewed_accuracies(pairs, answer_head(pairs, whole, 30, queue=""), replicates=20)
    none = reviewed_accuracies(pairs, {}, replicates=20)
    for some, before in zip(elsewhere, none, strict=True):
        assert some.value is None and some.drawn == 0 and some.answered > 0
        assert before.lower <= some.lower <= some.upper < before.upper
    both = answer_head(pairs, whole, 60) | answer_head(pairs, whole, 20, queue="")
    for item in reviewed_accuracies(pairs, both, replicates=20):
        assert item.value is not None and 0 < item.drawn < item.answered


def test_the_sample_ends_at_the_first_gap() -> None:
    whole, partial = both_verdicts(2)
    pairs = open_pairs(partial, average="images")
    answers = answer_head(pairs, whole, 50)
    gap = pairs.pairs[int(np.argsort(pairs.keys)[10])]
    maker = int(np.flatnonzero(pairs.made[pairs.pairs.index(gap)])[0])
    with_gap = {key: ruling for key, ruling in answers.items() if key != gap}
    full = reviewed_accuracies(pairs, answers, replicates=20)[maker]
    short = reviewed_accuracies(pairs, with_gap, replicates=20)[maker]
    assert short.drawn < full.drawn and short.answered == full.answered - 1
    assert short.drawn <= 10


def test_a_panel_overrules_the_lists() -> None:
    whole, _ = both_verdicts(4)
    pairs = open_pairs(whole, average="images")
    assert len(pairs) == 0
    row = int(np.flatnonzero(whole.states[:, 0] == RIGHT)[0])
    other = int(np.flatnonzero(whole.states[:, 0] == WRONG)[0])
    ids = whole.truth.space.ids
    says = {}
    for at, answer in ((row, "wrong"), (other, "unclear")):
        key = (whole.image_ids[at], ids[int(whole.guesses[at, 0])])
        says[key] = Ruling(*key, answer, None, None, 1, (0, 0, 1))
    before = reviewed_accuracies(pairs, {}, replicates=20)[0]
    one = {key: ruling for key, ruling in says.items() if ruling.answer == "wrong"}
    after = reviewed_accuracies(pairs, one, replicates=20)[0]
    assert after.lower == pytest.approx(before.lower - 1 / len(whole)) and after.overruled == 1
    assert reviewed_accuracies(pairs, says, replicates=20)[0].lower == pytest.approx(before.lower)


def test_keys_do_not_depend_on_the_models() -> None:
    _, partial = both_verdicts(5)
    every = open_pairs(partial, average="classes")
    alone = open_pairs(partial.of_models(["m1"]), average="classes")
    keys = dict(zip(every.pairs, every.keys.tolist(), strict=True))
    assert len(alone) and all(
        keys[key] == value for key, value in zip(alone.pairs, alone.keys.tolist(), strict=True)
    )
    assert alone.design == every.design
    assert open_pairs(partial, average="classes", seed=1).design != every.design
    assert open_pairs(partial, average="images").design != every.design


def test_predictions_guide_where_there_are_reviews() -> None:
    whole, partial = both_verdicts(6, n=480)
    pairs = open_pairs(partial, average="images")
    answers = answer_head(pairs, whole, len(pairs))
    good = np.array([answers[key].accepted for key in pairs.pairs])
    assert good.any() and not good.all()
    assert pairs.odds[good].mean() > pairs.odds[~good].mean() + 0.15


def test_under_one_class_an_image_every_error_is_open() -> None:
    rng = np.random.default_rng(0)
    labels = [i % 3 for i in range(30)]
    world = single_label(labels, 3, {"m": rng.normal(size=(30, 3)).tolist()})
    found = verdicts(set_of_kind(world, "single"), world.predictions())
    (item,) = reviewed_accuracies(open_pairs(found, average="images"), {}, replicates=20)
    assert item.upper == pytest.approx(1.0) and item.open == int(found.wrong.sum())


def test_records_say_what_each_number_is() -> None:
    whole, partial = both_verdicts(7)
    pairs = open_pairs(partial, average="classes")
    found = reviewed_accuracies(pairs, answer_head(pairs, whole, 40), replicates=20)
    records = accuracy_records(pairs, found, metric="mla")
    names = [r.metric for r in records if r.record == "score" and r.model == "m0"]  # type: ignore[union-attr]
    assert names == ["mla_lower", "mla_upper", "mla_estimate", "mla_review"]
    by = {r.metric: r for r in records if r.record == "score" and r.model == "m0"}  # type: ignore[union-attr]
    assert by["mla_lower"].low is None and by["mla_lower"].reason  # type: ignore[union-attr]
    assert by["mla_estimate"].low < by["mla_review"].low  # type: ignore[operator, union-attr]
    counts = {r.name: r.value for r in records if r.record == "count" and r.model == "m0"}  # type: ignore[union-attr]
    assert counts["n_open"] + counts["n_answered"] == int(pairs.made[:, 0].sum())
    assert all(math.isfinite(r.value) for r in records)


def test_an_empty_class_is_named() -> None:
    world = single_label([0, 0, 1, 1], 3, {"m": np.eye(3)[[0, 1, 1, 0]].tolist()})
    found = verdicts(set_of_kind(world, "single"), world.predictions())
    assert empty_classes(found) == ("c2",)
    np.testing.assert_allclose(row_weights(found, "classes"), [0.25] * 4)


# Labels to doubt, as a queue.


NOBODY = PanelAnswers({}, {})


def _hot(place: int) -> tuple[float, ...]:
    return tuple(float(c == place) for c in range(4))


def asked(
    world: World, panel: PanelAnswers = NOBODY, at_least: int | None = None
) -> tuple[Queue, tuple[Proposal, ...]]:
    made = verdicts(world_testset(world), world.predictions())
    return label_queue(made, suspects(made, at_least=at_least), panel)


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
    queue, evidence = asked(WORLD)
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
    more, _ = asked(WORLD, at_least=2)
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
    queue, _ = asked(WORLD, panel)
    assert [(m.image_id, m.prediction) for m in queue.entries] == [("i001", "c0"), ("i000", "c1")]
    assert queue.judged == 2


def test_images_without_a_label_or_an_answer() -> None:
    images = (Image("a", None, (0,)), Image("b", 1, (1,)))
    world = World(4, images, {"m": (_hot(2), None), "n": (_hot(2), None)})
    queue, evidence = asked(world)
    assert [(m.image_id, m.prediction) for m in queue.entries] == [("a", "c2"), ("b", "c1")]
    assert "its label" not in evidence[0].evidence[0].text
    assert "say" not in evidence[1].evidence[0].text
