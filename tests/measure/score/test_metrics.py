"""Tests of :mod:`heldout.measure.score.metrics`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import LabelError, NotApplicable, UserError
from heldout.data.labels import Class, Hierarchy, LabelSpace, hierarchy_map
from heldout.data.testset import Card, make_testset, truth_table
from heldout.measure.score.compare import compare
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.measure.score.metrics import (
    BINS,
    get_metric,
    hierarchy_of,
    path_distances,
)
from heldout.measure.score.truth import log_sum_exp
from tests.measure.score.worlds import Image, World, single_label, world_testset, worlds

# Calibration against plain Python with exact fractions of exponentials.


getcontext().prec = 60


def probabilities(world: World, model: str, row: int) -> list[float]:
    """Softmax in many digits; the uniform guess for a failure."""
    logits = world.logits[model][row]
    if logits is None:
        return [1 / world.classes] * world.classes
    powers = [Decimal(value).exp() for value in logits]
    return [float(power / sum(powers)) for power in powers]


def slow_ece(confidence: list[float], hits: list[bool], count: int) -> float:
    """Guo et al.'s definition with bins ((b - 1) / B, b / B]."""
    total = 0.0
    for b in range(count):
        inside = [
            i
            for i, c in enumerate(confidence)
            if (b / count < c <= (b + 1) / count) or (b == 0 and c == 0)
        ]
        if inside:
            accuracy = sum(hits[i] for i in inside) / len(inside)
            average = math.fsum(confidence[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - average)
    return total


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_nll_and_brier(world: World) -> None:
    nll, brier = measure(world_testset(world), world.predictions(), metrics=["nll", "brier"])
    counted = [row for row, image in enumerate(world.images) if image.correct]
    for m, model in enumerate(nll.models):
        for place, row in enumerate(counted):
            p = probabilities(world, model, row)
            right = set(world.images[row].correct)
            assert nll.values[place, m] == pytest.approx(
                -math.log(sum(p[c] for c in right)), abs=1e-9
            )
            target = [1 / len(right) if c in right else 0.0 for c in range(world.classes)]
            expected = sum((a - b) ** 2 for a, b in zip(p, target, strict=True))
            assert brier.values[place, m] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(worlds(lists=False, maximum=30))
def test_ece_end_to_end(world: World) -> None:
    (measured,) = measure(world_testset(world), world.predictions(), metrics=["ece"])
    for m, model in enumerate(measured.models):
        p = [probabilities(world, model, row) for row in range(len(world.images))]
        hits = [
            world.guesses(model, row)[:1] == [image.label] for row, image in enumerate(world.images)
        ]
        found = measured.confidence[:, m]  # type: ignore[index]
        assert found == pytest.approx([max(row) for row in p])
        assert measured.estimates()[m] == pytest.approx(slow_ece(found.tolist(), hits, BINS))


def slow_classwise(p: np.ndarray, target: np.ndarray) -> float:
    """Kull et al.'s definition, a class, a bin and an image at a time."""
    n, classes = p.shape
    total = 0.0
    for c in range(classes):
        for b in range(BINS):
            inside = [
                i
                for i in range(n)
                if b / BINS < p[i, c] <= (b + 1) / BINS or (b == 0 and p[i, c] == 0)
            ]
            if inside:
                share = math.fsum(target[i, c] for i in inside) / len(inside)
                average = math.fsum(p[i, c] for i in inside) / len(inside)
                total += len(inside) / n * abs(share - average)
    return total / classes


def slow_folded(p: np.ndarray, target: np.ndarray) -> float:
    """What signs that change take off the variance, a class and a bin at a time."""
    n, classes = p.shape
    total = 0.0
    for c in range(classes):
        for b in range(BINS):
            inside = [i for i in range(n) if max(math.ceil(p[i, c] * BINS - 1e-12), 1) == b + 1]
            gaps = [target[i, c] - p[i, c] for i in inside]
            size = math.fsum(g * g for g in gaps)
            if math.fsum(abs(g) * (1 - abs(g)) for g in gaps) > 0.25:
                m = 1.1 * abs(math.fsum(gaps)) / math.sqrt(size)
                mean = math.sqrt(2 / math.pi) * math.exp(-m * m / 2) + m * math.erf(m / 2**0.5)
                total += (mean**2 - m**2) * size
    return total / (classes * max(classes - 1, 1))


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from([1, 7, 1 << 21]))
def test_classwise_ece_by_its_definition(world: World, cells: int) -> None:
    """In blocks of any size; what images add is nothing in all, as targets and p both sum to 1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heldout.measure.score.metrics._CELLS", cells)
        (measured,) = measure(
            world_testset(world), world.predictions(dtype="<f8"), metrics=["ece_classwise"]
        )
    counted = [row for row, image in enumerate(world.images) if image.correct]
    for m, model in enumerate(measured.models):
        given_logits = [world.logits[model][row] for row in counted]
        logits = np.array([row or (0.0,) * world.classes for row in given_logits])
        p = np.minimum(np.exp(logits - log_sum_exp(logits)[:, None]), 1.0)
        target = np.zeros_like(p)
        for place, row in enumerate(counted):
            right = set(world.images[row].correct)
            target[place, list(right)] = 1 / len(right)
        expected = slow_classwise(p, target)
        assert measured.estimates()[m] == pytest.approx(expected, abs=1e-12)
        assert measured.folded is not None
        assert measured.folded[:, m].sum() == pytest.approx(slow_folded(p, target), abs=1e-9)
        assert 0 <= expected <= 2 / world.classes + 1e-12
        record = scores(measured, by=["class"])[m]
        assert record.value == pytest.approx(expected, abs=1e-12)
        if counted[1:]:
            assert record.low is not None and record.high is not None
            assert 0 <= record.low <= record.value <= record.high <= 2 / world.classes


@pytest.mark.parametrize("told", [1.0, 2.0])
@pytest.mark.parametrize("films", [0, 12])
def test_the_interval_of_classwise_ece_covers(told: float, films: int) -> None:
    """What such sets show on average; of 100, more than 11 miss it once in 200 at 95 %."""
    rng, n, found = np.random.default_rng(8), 240, []
    for _ in range(100):
        odds = rng.normal(0, 1.5, (n, 3))
        shift = rng.normal(0, 1, (films, 3))[np.arange(n) * films // n] if films else 0.0
        label = (odds + shift + rng.gumbel(size=odds.shape)).argmax(axis=1)
        world = single_label(label.tolist(), 3, {"m": (told * odds).tolist()})
        testset = world_testset(world, film=[f"f{i * films // n}" for i in range(n)])
        (measured,) = measure(testset, world.predictions(dtype="<f8"), metrics=["ece_classwise"])
        found += scores(measured, cluster="film" if films else None)
    value, low, high = np.array([(r.value, r.low, r.high) for r in found], dtype=float).T
    mean = value.mean()
    assert np.mean((low <= mean) & (mean <= high)) >= 0.89
    assert np.median(high - low) <= 1.4 * np.subtract(*np.quantile(value, [0.975, 0.025]))
    kind = "cluster" if films else "plain"
    assert found[0].interval == f"{kind}-t, 15 bins of equal width, noise of 240 images included"


def test_an_image_of_two_rows_counts_once_in_classwise_ece() -> None:
    """Two rows with a label each are one image with half of its target in each."""
    logits = {"m": [(2.0, 1.0, 0.0), (0.0, 1.0, 0.5), (0.3, 0.1, 0.9)]}
    single = world_testset(single_label([0, 1, 2], 3, logits))
    twice = make_testset(
        Card(name="made", label_space="made"),
        images=single.images,
        truths={
            "original": truth_table(
                ["i000", "i000", "i001", "i002"],
                ["c0", "c1", "c1", "c2"],
                correct=[["c0"], ["c1"], ["c1"], ["c2"]],
            )
        },
        label_space=single.label_space,
    )
    world = single_label([0, 1, 2], 3, logits)
    (measured,) = measure(twice, world.predictions(dtype="<f8"), metrics=["ece_classwise"])
    rows = np.array(logits["m"])
    p = np.exp(rows - log_sum_exp(rows)[:, None])
    target = np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])
    assert scores(measured)[0].value == pytest.approx(slow_classwise(p, target))
    assert scores(measured)[0].n == 3


def test_classwise_ece_at_its_limits() -> None:
    sure = single_label(
        [0, 1], 2, {"right": [(99, -99), (-99, 99)], "wrong": [(-99, 99), (99, -99)]}
    )
    (measured,) = measure(world_testset(sure), sure.predictions(), metrics=["ece_classwise"])
    assert measured.estimates() == pytest.approx([0.0, 1.0], abs=1e-12)
    (record,) = compare(measured, [("wrong", "right")])
    assert (record.difference, record.p) == (pytest.approx(1.0), None)
    assert "have no test" in str(record.reason)
    with pytest.raises(NotApplicable, match="a number of all images"):
        measured.select(np.array([0]))
    one = single_label([0, 0], 1, {"m": [(3.0,), None]})
    (alone,) = measure(world_testset(one), one.predictions(), metrics=["ece_classwise"])
    assert alone.estimates().tolist() == [0.0]
    for metric in ("ece", "ece_classwise"):
        with pytest.raises(NotApplicable, match=f"{metric} needs logits, right keeps only its top"):
            measure(world_testset(sure), sure.predictions(keep="topk"), metrics=[metric])
    with pytest.raises(UserError, match="cannot be weighted"):
        get_metric("ece_classwise_weighted")


def test_the_loss_stays_finite_where_probabilities_vanish() -> None:
    world = single_label([1, 0], 2, {"m": [(60000.0, -60000.0), (0.0, 0.0)]})
    for dtype in ("<f2", "<f4", "<f8"):
        (measured,) = measure(world_testset(world), world.predictions(dtype=dtype), metrics=["nll"])
        expected = float(np.dtype(dtype).type(60000)) - float(np.dtype(dtype).type(-60000))
        assert measured.values[:, 0] == pytest.approx([expected, math.log(2)])


def test_probability_zero_is_refused_for_nll_and_fine_for_brier() -> None:
    world = single_label([1, 0], 2, {"m": [(0.0, -math.inf), (0.0, -math.inf)]})
    testset = world_testset(world)
    with pytest.raises(
        NotApplicable, match="nll of m on made is infinite: 1 images have probability 0"
    ):
        measure(testset, world.predictions(), metrics=["nll"])
    (brier,) = measure(testset, world.predictions(), metrics=["brier"])
    assert brier.values[:, 0].tolist() == [2.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad: float) -> None:
    world = single_label([1, 0], 2, {"m": [(0.0, bad), (0.0, 1.0)]})
    with pytest.raises(NotApplicable, match="NaN or infinite logits for 1 images, such as 'i000'"):
        measure(world_testset(world), world.predictions(), metrics=["nll"])


def test_half_precision_is_computed_in_double() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (200, 50)).astype(np.float16)
    exact = [math.log(math.fsum(math.exp(float(v)) for v in row)) for row in logits]
    assert log_sum_exp(logits) == pytest.approx(exact, abs=1e-12)


def test_failed_images_are_the_uniform_guess() -> None:
    world = single_label([0, 1], 4, {"m": [None, (0, 9, 0, 0)]})
    nll, brier, ece, top1 = measure(
        world_testset(world), world.predictions(), metrics=["nll", "brier", "ece", "top1"]
    )
    assert nll.values[0, 0] == pytest.approx(math.log(4))
    assert brier.values[0, 0] == pytest.approx(1 - 1 / 4)
    assert ece.confidence is not None and ece.confidence[0, 0] == pytest.approx(1 / 4)
    assert ece.values[0, 0] == pytest.approx(-1 / 4)
    assert top1.values[:, 0].tolist() == [False, True]
    assert top1.failed == (1,)


def calibrated_world(n: int, shift: float, seed: int) -> World:
    """Two classes; the first guess is right with its confidence less ``shift``."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.6, 0.99, n)
    right = rng.random(n) < confidence - shift
    logit = np.log(confidence / (1 - confidence))
    return single_label(np.where(right, 0, 1).tolist(), 2, {"m": [(float(v), 0.0) for v in logit]})


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.2])
def test_the_interval_of_ece_covers(shift: float) -> None:
    """Of 40 sets the 95 % interval misses at most 6: the chance of more is below one in 5,000."""
    missed = 0
    for seed in range(40):
        world = calibrated_world(400, shift, seed)
        (measured,) = measure(world_testset(world), world.predictions(), metrics=["ece"])
        (record,) = scores(measured, replicates=200, seed=seed)
        assert record.low is not None and record.high is not None
        assert 0 <= record.low <= record.value <= record.high <= 1
        assert record.high - record.low < 0.2  # a share of 400 images is known to 0.1
        missed += not record.low <= shift <= record.high
    assert missed <= 6
    assert record.interval == "plain-simulated-t, 15 bins of equal width"


def test_an_ece_that_no_calibrated_model_shows_is_above_zero() -> None:
    lows = {0.0: [], 0.12: []}
    for shift, found in lows.items():
        for seed in range(5):
            world = calibrated_world(400, shift, seed)
            (measured,) = measure(world_testset(world), world.predictions(), metrics=["ece"])
            found += [record.low for record in scores(measured, replicates=200)]
    assert set(lows[0.0]) == {0.0} and min(lows[0.12]) > 0.03


def test_the_interval_of_ece_ends_at_one() -> None:
    rng = np.random.default_rng(0)
    logits = [(float(v), 0.0) for v in rng.uniform(3, 9, 60)]
    world = single_label([0] + [1] * 59, 2, {"m": logits})  # sure, and nearly always wrong
    (measured,) = measure(world_testset(world), world.predictions(), metrics=["ece"])
    (record,) = scores(measured, replicates=200)
    assert record.low is not None and record.high is not None
    assert 0.9 < record.low < record.value < record.high <= 1


# Distances on a hierarchy against breadth-first search in plain Python.


@st.composite
def trees(draw: st.DrawFn) -> LabelSpace:
    """Classes under a random graph without cycles, with several parents and several roots."""
    inner = draw(st.integers(1, 5))
    parents: dict[str, tuple[str, ...]] = {}
    for i in range(inner):
        above = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        parents[f"n{i}"] = tuple(f"n{a}" for a in above)
    classes = draw(st.integers(2, 5))
    items = [Class(node, parents=above) for node, above in parents.items()]
    items += [
        Class(
            f"c{i}",
            parents=tuple(
                f"n{a}"
                for a in draw(
                    st.lists(st.integers(0, inner - 1), min_size=1, max_size=2, unique=True)
                )
            ),
        )
        for i in range(classes)
    ]
    return LabelSpace("tree", tuple(items))


def above(space: LabelSpace, node: str) -> set[str]:
    item = space.get(node)
    return {node}.union(*(above(space, parent) for parent in item.parents))


@settings(max_examples=40, deadline=None)
@given(trees(), st.integers(0, 2**32 - 1))
def test_metrics_take_the_nearest_correct_label(space: LabelSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, classes = 8, len(space)
    world = single_label(
        rng.integers(0, classes, n).tolist(), classes, {"m": rng.normal(size=(n, classes)).tolist()}
    )
    tree = Hierarchy.from_label_space(space)
    testset = world_testset(world, space=space)
    (found,) = measure(
        testset, [world.prediction("m", space=space)], metrics=["hierarchical_distance"]
    )
    for row, image in enumerate(world.images):
        guess = world.guesses("m", row)[0]
        assert found.values[row, 0] == tree.path_distance(
            space.ids[guess], space.ids[image.label or 0]
        )


def test_several_labels_and_failures() -> None:
    space = LabelSpace(
        "pets",
        (
            Class("cat", parents=("pet",)),
            Class("dog", parents=("pet",)),
            Class("car", parents=("thing",)),
            Class("pet", parents=("thing",)),
        ),
    )
    assert path_distances(space).row(0).tolist() == [0, 2, 3, 1]
    world = single_label([0, 0], 4, {"m": [(0, 1, 0, 0), None]})
    (distance,) = measure(
        world_testset(world, space=space),
        [world.prediction("m", space=space)],
        metrics=["hierarchical_distance"],
    )
    assert distance.values[:, 0].tolist() == [2, 3]  # without an output: the farthest guess
    assert not distance.metric.higher_is_better


def test_wordnet_is_found_by_id() -> None:
    space = LabelSpace.load("cifar-10")
    assert hierarchy_of(space).name == "wordnet-3.0"
    cat, dog, ship = (space.by_name(name).id for name in ("cat", "dog", "ship"))
    row = path_distances(space).row(space.index(cat))
    assert row[space.index(dog)] < row[space.index(ship)]
    assert row[space.index(cat)] == 0
    with pytest.raises(LabelError, match="are in no hierarchy"):
        hierarchy_of(LabelSpace.from_ids("loose", ["x", "y"]))


def test_accuracy_through_a_hierarchy_map() -> None:
    """Hierarchical accuracy: predictions count for the node that they stand under."""
    cat, dog, car, animal, artifact = (
        "n02121808", "n02084071", "n02958343", "n00015388", "n00021939",
    )  # fmt: skip
    space = LabelSpace.from_ids("pets", [cat, dog, car])
    label_map = hierarchy_map(space, [animal, artifact], name="coarse", reading="full")
    world = single_label([0, 1, 2, 2], 3, {"m": [(0, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)]})
    testset = world_testset(world, space=space)
    predictions = [world.prediction("m", space=space)]
    assert measure(testset, predictions)[0].estimates().tolist() == [0.5]
    (coarse,) = measure(testset, predictions, label_map=label_map)
    assert coarse.estimates().tolist() == [0.75]
    assert coarse.label_map == "hierarchy:coarse:full"


# Every metric against loops over plain lists.


Hit = Callable[[Image, list[int]], bool]


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def top(k: int) -> Hit:
    return lambda image, guesses: any(guess in image.correct for guess in guesses[:k])


def in_correct(image: Image, guesses: list[int]) -> bool:
    return bool(guesses) and guesses[0] in image.correct


def accepted(image: Image, guesses: list[int]) -> bool:
    return bool(guesses) and (guesses[0] in image.correct or guesses[0] in image.unclear)


def judged(image: Image, guesses: list[int]) -> bool:
    return bool(guesses) and guesses[0] in (*image.correct, *image.unclear, *image.wrong)


def upper(image: Image, guesses: list[int]) -> bool:
    return accepted(image, guesses) or (bool(guesses) and not judged(image, guesses))


OVER_IMAGES: dict[str, tuple[Callable[[Image], bool], Hit]] = {
    "top1": (lambda image: bool(image.correct), top(1)),
    "top2": (lambda image: bool(image.correct), top(2)),
    "real": (lambda image: bool(image.correct), in_correct),
    "mla_micro": (lambda image: not image.problematic, accepted),
    "accepted": (lambda image: True, accepted),
}
OVER_CLASSES: dict[str, tuple[Callable[[Image], bool], Hit]] = {
    "mean_per_class": (lambda image: bool(image.correct), in_correct),
    "mla": (lambda image: not image.problematic, accepted),
    "mla_correct_only": (lambda image: not image.problematic, in_correct),
    "mla_upper": (lambda image: not image.problematic, upper),
}


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_metrics_over_images(world: World) -> None:
    found = measure(world_testset(world), world.predictions(), metrics=list(OVER_IMAGES))
    for measured, (name, (include, hit)) in zip(found, OVER_IMAGES.items(), strict=True):
        assert measured.metric.name == name
        counted = [row for row, image in enumerate(world.images) if include(image)]
        assert measured.left_out == len(world.images) - len(counted)
        for m, model in enumerate(measured.models):
            hits = [hit(world.images[row], world.guesses(model, row)) for row in counted]
            assert measured.values[:, m].tolist() == hits
            assert measured.estimates()[m] == pytest.approx(mean(list(map(float, hits))))
            assert measured.failed[m] == sum(world.logits[model][row] is None for row in counted)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_metrics_over_classes(world: World) -> None:
    for name, (include, hit) in OVER_CLASSES.items():
        counted = [row for row, image in enumerate(world.images) if include(image)]
        if not counted:
            continue
        (measured,) = measure(
            world_testset(world), world.predictions(), metrics=[name], absent_classes="skip"
        )
        for m, model in enumerate(measured.models):
            groups = defaultdict(list)
            for row in counted:
                image = world.images[row]
                groups[image.label].append(float(hit(image, world.guesses(model, row))))
            expected = mean([mean(values) for values in groups.values()])
            assert measured.estimates()[m] == pytest.approx(expected)
            if measured.metric.reviewed:
                unseen = [
                    bool(guesses) and not judged(world.images[row], guesses)
                    for row in counted
                    for guesses in [world.guesses(model, row)]
                ]
                assert measured.unreviewed[m] == sum(unseen)


def test_a_label_both_correct_and_wrong_is_a_hit_and_repeats_change_nothing() -> None:
    images = (
        Image("a", 0, correct=(0, 0), wrong=(0,)),
        Image("b", 1, correct=(1,), unclear=(0,), wrong=(0,)),
        Image("c", 1, correct=(1,), wrong=(0,)),
        Image("d", 0, correct=(0,), problematic=True),
    )
    world = World(2, images, {"m": ((1.0, 0.0),) * 4})
    found = measure(
        world_testset(world), world.predictions(), metrics=["mla", "mla_micro", "mla_upper"]
    )
    assert found[0].estimates().tolist() == [(1 + 1 / 2) / 2]
    assert found[1].estimates().tolist() == [2 / 3]
    assert found[1].left_out == 1
    assert found[2].unreviewed == (0,)


def test_absent_classes_are_an_error_or_skipped() -> None:
    world = single_label([0, 0, 2], 4, {"m": [(1, 0, 0, 0)] * 3})
    testset = world_testset(world)
    with pytest.raises(
        NotApplicable, match=r"2 of 4 classes have no image in .* such as c1 \(class 1\)"
    ):
        measure(testset, world.predictions(), metrics=["mean_per_class"])
    (measured,) = measure(
        testset, world.predictions(), metrics=["mean_per_class"], absent_classes="skip"
    )
    assert measured.estimates().tolist() == [0.5]


def test_classes_are_needed_to_average_over_them() -> None:
    world = World(2, (Image("a", None, (0,)), Image("b", 1, (1,))), {"m": ((1.0, 0.0),) * 2})
    testset, predictions = world_testset(world), world.predictions()
    with pytest.raises(NotApplicable, match="has images without a class"):
        measure(testset, predictions, metrics=["mla"])
    assert measure(testset, predictions, metrics=["real"])[0].estimates().tolist() == [0.5]


def test_no_image_to_count() -> None:
    world = World(2, (Image("a", 0), Image("b", 1)), {"m": ((1.0, 0.0),) * 2})
    with pytest.raises(NotApplicable, match="has no image to count"):
        measure(world_testset(world), world.predictions(), metrics=["top1"])


@settings(max_examples=40, deadline=None)
@given(worlds(lists=False))
def test_weighted_accuracy(world: World) -> None:
    weights = [float(1 + row % 3) for row in range(len(world.images))]
    testset = world_testset(world, weight=weights)
    for name, k in (("top1_weighted", 1), ("top2_weighted", 2)):
        (measured,) = measure(testset, world.predictions(), metrics=[name])
        for m, model in enumerate(measured.models):
            hits = [
                w * top(k)(i, world.guesses(model, r))
                for r, (i, w) in enumerate(zip(world.images, weights, strict=True))
            ]
            assert measured.estimates()[m] == pytest.approx(math.fsum(hits) / math.fsum(weights))


@pytest.mark.parametrize("weights", [[1.0, None], [-1.0, 2.0], [0.0, 0.0], [math.inf, 1.0]])
def test_bad_weights_are_refused(weights: list[float | None]) -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0)] * 2})
    with pytest.raises(NotApplicable, match="weight"):
        measure(
            world_testset(world, weight=weights), world.predictions(), metrics=["top1_weighted"]
        )


@pytest.mark.parametrize(
    "name",
    [
        "top0",
        "top",
        "ece20",
        "nope",
        "",
        "mla_weighted",
        "ece_weighted",
        "top1_weighted_weighted",
        "precision_weighted",
    ],
)
def test_names_that_are_no_metric(name: str) -> None:
    with pytest.raises(UserError):
        get_metric(name)


def test_names_keep_their_meaning() -> None:
    assert get_metric("top10").ranks == 10
    assert not get_metric("top1_weighted").counted and get_metric("top1").counted
    assert not get_metric("mla").counted and get_metric("mla_micro").counted
    assert not get_metric("nll").higher_is_better


def test_top_k_beyond_what_is_stored() -> None:
    world = single_label([2, 0], 3, {"m": [(3, 2, 1), (1, 2, 3)]})
    testset = world_testset(world)
    with_logits = world.predictions(k=1)
    assert measure(testset, with_logits, metrics=["top3"])[0].estimates().tolist() == [1.0]
    assert measure(testset, with_logits, metrics=["top2"])[0].estimates().tolist() == [0.0]
    with pytest.raises(NotApplicable, match="top2 needs 2 guesses, m keeps 1"):
        measure(testset, world.predictions(keep="topk", k=1), metrics=["top2"])
    every = world.predictions(keep="topk", k=3)  # all there are: top 5 of 3 classes is certain
    assert measure(testset, every, metrics=["top5"])[0].estimates().tolist() == [1.0]
    with pytest.raises(NotApplicable, match="nll needs logits, m keeps only its top 3"):
        measure(testset, every, metrics=["nll"])


def test_one_model_twice_is_refused() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0)] * 2})
    with pytest.raises(UserError, match="m is there twice"):
        measure(world_testset(world), world.predictions() * 2)
    with pytest.raises(UserError, match="no models"):
        measure(world_testset(world), [])


def test_column_and_models() -> None:
    world = single_label([0, 1], 2, {"b": [(1, 0)] * 2, "a": [(0, 1)] * 2})
    (measured,) = measure(world_testset(world), world.predictions())
    assert measured.models == ("b", "a")
    assert measured.column("a").tolist() == [False, True]
    assert measured.of_models(["a"]).values.tolist() == [[False], [True]]
    assert measured.select(np.array([1])).values.tolist() == [[False, True]]
    with pytest.raises(UserError, match="no model 'c'"):
        measured.column("c")
