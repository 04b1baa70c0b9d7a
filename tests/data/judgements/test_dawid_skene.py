from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.consensus import Panel, dawid_skene, from_codes


def simulated(
    seed: int, *, subjects: int, workers: int, answers: int, each: int, skill: float = 0.75
) -> tuple[Panel, np.ndarray]:
    """A panel whose workers follow the model, and the true answers."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, answers, subjects)
    right = rng.uniform(skill - 0.2, skill + 0.2, workers)
    subject = np.repeat(np.arange(subjects), each)
    worker = np.concatenate([rng.permutation(workers)[:each] for _ in range(subjects)])
    wrong = (truth[subject] + rng.integers(1, answers, len(subject))) % answers
    answer = np.where(rng.random(len(subject)) < right[worker], truth[subject], wrong)
    used, worker = np.unique(worker, return_inverse=True)
    made = from_codes(
        "test",
        tuple(f"s{n:04d}" for n in range(subjects)),
        tuple(f"w{n:03d}" for n in used),
        tuple("abcdef"[:answers]),
        subject,
        worker,
        answer,
    )
    return made, truth


def slow(panel: Panel, truths: list[int], smoothing: float, steps: int) -> list[list[float]]:
    """The same algorithm, one answer at a time."""
    rows = list(
        zip(panel.subject.tolist(), panel.worker.tolist(), panel.answer.tolist(), strict=True)
    )
    posterior = []
    for s in range(len(panel.subjects)):
        given_ = [a for subject, _, a in rows if subject == s]
        other = sum(a not in truths for a in given_) / len(truths)
        posterior.append([(given_.count(t) + other) / len(given_) for t in truths])
    for _ in range(steps):
        prior = [smoothing + sum(row[t] for row in posterior) for t in range(len(truths))]
        prior = [p / sum(prior) for p in prior]
        confusion = []
        for w in range(len(panel.workers)):
            tables = []
            for t in range(len(truths)):
                line = [smoothing] * len(panel.answers)
                for s, worker, a in rows:
                    if worker == w:
                        line[a] += posterior[s][t]
                tables.append([cell / sum(line) for cell in line])
            confusion.append(tables)
        posterior = []
        for s in range(len(panel.subjects)):
            weights = []
            for t in range(len(truths)):
                value = math.log(prior[t])
                for subject, w, a in rows:
                    if subject == s:
                        value += math.log(confusion[w][t][a])
                weights.append(value)
            top = max(weights)
            parts = [math.exp(value - top) for value in weights]
            posterior.append([part / sum(parts) for part in parts])
    return posterior


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(2, 8),
    st.integers(1, 4),
    st.integers(2, 4),
    st.integers(1, 4),
    st.sampled_from((0.01, 0.5)),
    st.booleans(),
)
def test_every_step_is_that_of_the_slow_algorithm(
    seed: int, subjects: int, workers: int, answers: int, steps: int, smoothing: float, fewer: bool
) -> None:
    made, _ = simulated(seed, subjects=subjects, workers=workers, answers=answers, each=workers)
    truths = [answers - 1, 0] if fewer else list(range(answers))
    fit = dawid_skene(
        made,
        truths=[made.answers[t] for t in truths],
        smoothing=smoothing,
        max_steps=steps,
        tolerance=1e-300,
    )
    expected = slow(made, truths, smoothing, len(fit.objective))
    np.testing.assert_allclose(fit.posterior, expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 5))
def test_em_never_lowers_its_objective_and_gives_probabilities(
    seed: int, answers: int, each: int
) -> None:
    made, _ = simulated(seed, subjects=30, workers=6, answers=answers, each=each)
    fit = dawid_skene(made, max_steps=50)
    scale = np.abs(fit.objective).max()
    assert (np.diff(fit.objective) >= -1e-9 * scale).all()
    np.testing.assert_allclose(fit.posterior.sum(axis=1), 1.0)
    np.testing.assert_allclose(fit.confusion.sum(axis=2), 1.0)
    np.testing.assert_allclose(fit.prior.sum(), 1.0)
    assert ((fit.accuracy > 0) & (fit.accuracy < 1)).all()


def test_it_finds_the_truth_and_the_skills_and_beats_counting_votes() -> None:
    made, truth = simulated(3, subjects=3000, workers=25, answers=3, each=5, skill=0.6)
    fit = dawid_skene(made)
    assert fit.converged
    inferred = (fit.posterior.argmax(axis=1) == truth).mean()
    counted = (made.counts().argmax(axis=1) == truth).mean()
    assert inferred > counted + 0.01
    mine = truth[made.subject] == made.answer
    skill = np.bincount(made.worker, weights=mine) / np.bincount(made.worker)
    np.testing.assert_allclose(fit.accuracy, skill, atol=0.06)


def test_a_contrarian_counts_as_evidence_for_the_opposite() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    answers = np.stack([truth, truth, np.where(rng.random(200) < 0.1, 1 - truth, truth), 1 - truth])
    made = from_codes(
        "test",
        tuple(f"s{n:03d}" for n in range(200)),
        ("w0", "w1", "w2", "w3"),
        ("a", "b"),
        np.tile(np.arange(200), 4),
        np.repeat(np.arange(4), 200),
        answers.ravel(),
    )
    fit = dawid_skene(made)
    assert (fit.posterior.argmax(axis=1) == truth).all()
    assert fit.accuracy[3] < 0.05 < 0.85 < fit.accuracy[2]


def test_the_result_does_not_depend_on_the_order_of_the_answers() -> None:
    made, _ = simulated(5, subjects=50, workers=6, answers=3, each=4)
    by = np.random.default_rng(1).permutation(len(made))
    again = from_codes(
        "test",
        made.subjects,
        made.workers,
        made.answers,
        made.subject[by],
        made.worker[by],
        made.answer[by],
    )
    assert (dawid_skene(made).posterior == dawid_skene(again).posterior).all()


def test_labels_are_right_or_wrong_however_unclear_they_look() -> None:
    made = from_codes(
        "label",
        ("s0", "s1"),
        ("w0", "w1"),
        ("correct", "unclear", "wrong"),
        np.array([0, 0, 1, 1]),
        np.array([0, 1, 0, 1]),
        np.array([0, 1, 2, 1]),
    )
    assert dawid_skene(made).truths == ("correct", "wrong")
    assert dawid_skene(made, truths=made.answers).truths == made.answers


def test_what_it_refuses() -> None:
    made, _ = simulated(0, subjects=3, workers=2, answers=2, each=2)
    for truths in ([], ["nope"]):
        with pytest.raises(UserError, match="choose among a, b"):
            dawid_skene(made, truths=truths)
    anonymous = from_codes(
        "test",
        made.subjects,
        made.workers,
        made.answers,
        made.subject,
        made.worker,
        made.answer,
        anonymous=True,
    )
    with pytest.raises(NotApplicable, match="totals"):
        dawid_skene(anonymous)
    assert not dawid_skene(made, max_steps=1, tolerance=1e-300).converged
