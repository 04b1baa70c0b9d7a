from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotApplicable
from heldout.curate.contexts.training_conflicts import (
    TrainingLog,
    conflict_matrix,
    read_training_log,
)


def log_of(exposure: np.ndarray, effect: np.ndarray, noise: float = 0.0) -> TrainingLog:
    """A log whose scores change by known effects."""
    changes = exposure @ effect
    changes = changes + np.random.default_rng(3).normal(scale=noise or 1e-300, size=changes.shape)
    scores = np.vstack([np.zeros(effect.shape[1]), np.cumsum(changes, axis=0)])
    return TrainingLog(
        steps=tuple(range(len(scores))),
        trained=tuple(f"dog(t{i})" for i in range(exposure.shape[1])),
        evaluated=tuple(f"dog(e{i})" for i in range(effect.shape[1])),
        exposure=exposure,
        scores=scores,
    )


EFFECT = np.array([[0.02, -0.01], [-0.01, 0.02], [0.0, 0.004]])


def test_one_subset_at_a_time_is_the_mean_change_by_image() -> None:
    exposure = np.array([[8.0, 0, 0], [0, 8, 0], [0, 0, 8]] * 4)
    log = log_of(exposure, EFFECT, noise=0.01)
    found = conflict_matrix(log)
    changes = np.diff(log.scores, axis=0)
    for place in range(3):
        mean = changes[exposure[:, place] > 0].mean(axis=0) / 8
        assert np.allclose(found.effect[place], mean, atol=1e-12)


def test_mixed_batches_are_taken_apart() -> None:
    exposure = np.random.default_rng(0).integers(0, 9, (40, 3)).astype(float)
    found = conflict_matrix(log_of(exposure, EFFECT))
    assert np.allclose(found.effect, EFFECT, atol=1e-10)
    assert np.allclose(found.contribution, [[1.0, -0.5], [-0.5, 1.0], [0.0, 0.2]], atol=1e-8)
    assert found.rank == 3 and found.intervals == 40 and found.notes == ()


def test_subsets_always_trained_together_share_an_effect_and_are_noted() -> None:
    exposure = np.array([[4.0, 4.0], [2.0, 2.0], [6.0, 6.0]])
    found = conflict_matrix(log_of(exposure, np.array([[0.03], [0.01]])))
    assert np.allclose(found.effect, 0.02)
    assert found.rank == 1
    assert "exposures of rank 1" in found.notes[0]
    assert "3 intervals for 2 training subsets" in found.notes[1]


@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=4).map(
        np.array
    )
)
def test_contributions_are_in_minus_one_to_one(effect: np.ndarray) -> None:
    found = conflict_matrix(log_of(np.eye(len(effect)), effect))
    effect, cells = found.effect, found.contribution
    assert (np.abs(cells) <= 1.0).all()
    for column in range(3):
        if np.abs(effect[:, column]).max() > 0:
            assert np.abs(cells[:, column]).max() == 1.0
            assert (np.sign(cells[:, column]) * np.sign(effect[:, column]) >= 0).all()
        else:
            assert (cells[:, column] == 0).all()


LOG = """step,subset,trained,score
0,dog(bed),99,0.50
0,dog(sea),,0.50
20,dog(bed),8,0.58
20,dog(sea),,0.46
40,dog(boat),4,
40,dog(bed),,0.56
40,dog(sea),,0.54
"""


def test_a_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    log = read_training_log(path)
    assert log.steps == (0, 20, 40)
    assert log.trained == ("dog(bed)", "dog(boat)")
    assert log.evaluated == ("dog(bed)", "dog(sea)")
    assert log.exposure.tolist() == [[8.0, 0.0], [0.0, 4.0]]  # nothing of before the first score
    found = conflict_matrix(log)
    assert np.allclose(found.effect, [[0.01, -0.005], [-0.005, 0.02]])


def test_exposure_between_checkpoints_counts_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,subset,trained,score\n0,e,,0\n5,t,3,\n10,t,4,\n10,e,,1\n12,t,9,\n")
    log = read_training_log(path)
    assert log.exposure.tolist() == [[7.0]]  # what follows the last score changed nothing known


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("20,dog(sea),,0.46\n", "", r"dog\(sea\) has no score at step 20"),
        ("0.58", "high", "row 3 has the score 'high'"),
        ("0.58", "nan", "row 3 has the score 'nan'"),
        ("20,dog(bed),8", "20,dog(bed),-8", "row 3 has the trained '-8'"),
        ("20,dog(sea)", "20,dog(bed)", r"dog\(bed\) is there twice at step 20"),
        ("20,dog(bed)", "20.5,dog(bed)", "row 3 lacks a whole step"),
        ("score", "points", "has no scores"),
    ],
)
def test_bad_logs_are_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(LOG.replace(old, new, 1))
    with pytest.raises(BadFile, match=said):
        read_training_log(path)


def test_a_log_that_says_nothing_is_refused() -> None:
    with pytest.raises(NotApplicable, match="one checkpoint"):
        conflict_matrix(log_of(np.zeros((0, 1)), np.zeros((1, 1))))
    with pytest.raises(NotApplicable, match="nothing was trained on"):
        conflict_matrix(log_of(np.zeros((2, 1)), np.zeros((1, 1))))


def test_what_was_trained_outside_the_checkpoints_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "step,subset,trained,score\n0,early,9,\n0,a,,0.5\n10,a,5,0.6\n15,b,2,\n20,a,3,0.65\n"
        "30,late,7,\n"
    )
    log = read_training_log(path)
    assert (log.steps, log.trained) == ((0, 10, 20), ("a", "b"))
    assert log.exposure.tolist() == [[5, 0], [3, 2]]
    assert conflict_matrix(log).rank == 2
