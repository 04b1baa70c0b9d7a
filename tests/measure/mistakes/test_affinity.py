"""Affinity: counts of pairs against plain loops, an image's own lists taken out, other sources."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile, LabelError
from heldout.measure.mistakes.between_models import Peers
from heldout.measure.mistakes.class_similarity import (
    PRIOR,
    Cooccurrence,
    SimilarityMatrix,
    co_prediction,
    from_confusions,
    from_cooccurrence,
    read_affinity,
)
from heldout.measure.mistakes.confusions import read_confusion_file
from tests.measure.mistakes.evidence_case import PETS, random_peers


def _plain(peers: Peers, a: int, b: int, *, without: int | None = None) -> float:
    """Lists with both over lists with the rarer, less chance, in loops."""
    both = n_a = n_b = total = 0
    for image in range(len(peers.image_ids)):
        if image == without:
            continue
        if peers.topk.shape[2] == 1:
            lists = [set(peers.topk[image, :, 0].tolist())]
        else:
            lists = [set(row.tolist()) for row in peers.topk[image]]
        total += len(lists)
        for held in lists:
            n_a += a in held
            n_b += b in held
            both += a in held and b in held
    base = max(n_a, n_b) / total
    return max(0.0, (both / (min(n_a, n_b) + PRIOR) - base) / max(1 - base, 1e-9))


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_co_prediction_counts_lists(ranks: int, seed: int) -> None:
    peers = random_peers(np.random.default_rng(seed), images=12, models=5, ranks=ranks)
    found = co_prediction(peers)
    pairs = list(combinations(range(len(PETS)), 2))
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    expected = [_plain(peers, one, other) for one, other in pairs]
    assert found.values(a, b) == pytest.approx(expected)
    assert found.values(b, a) == pytest.approx(expected)
    images = np.arange(len(pairs)) % 12
    expected = [
        _plain(peers, one, other, without=int(image))
        for (one, other), image in zip(pairs, images, strict=True)
    ]
    assert found.values(a, b, images) == pytest.approx(expected)
    assert found.values(a, b, np.full(len(a), -1)) == pytest.approx(found.values(a, b))


def test_a_class_is_itself() -> None:
    found = co_prediction(random_peers(np.random.default_rng(0), images=3, models=2, ranks=3))
    assert found.values(np.array([2]), np.array([2])).tolist() == [1.0]


def test_among_few_classes_chance_is_no_likeness() -> None:
    """Four best guesses of seven classes hold most of them, whatever the classes."""
    found = co_prediction(random_peers(np.random.default_rng(3), images=300, models=4, ranks=4))
    pairs = np.array(list(combinations(range(len(PETS)), 2)))
    assert found.values(pairs[:, 0], pairs[:, 1]).max() < 0.1


def test_confusions_by_ids_and_by_names(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('[["pug", "boxer", 3], ["pug", "tabby", 1], ["boxer", "pug", 1]]')
    found = from_confusions(read_confusion_file(path, label_space=PETS), label_space=PETS)
    a = np.array([PETS.index("pug")] * 3)
    b = np.array([PETS.index(name) for name in ("boxer", "tabby", "sofa")])
    assert found.values(a, b) == pytest.approx([4 / (4 + PRIOR), 1 / (1 + PRIOR), 0.0])
    assert read_affinity(path, label_space=PETS).values(a, b) == pytest.approx(found.values(a, b))


def test_a_matrix_counts_in_its_larger_direction(tmp_path: Path) -> None:
    matrix = np.zeros((len(PETS), len(PETS)))
    matrix[0, 1], matrix[1, 0] = 0.2, 0.7
    np.save(tmp_path / "m.npy", matrix)
    found = read_affinity(tmp_path / "m.npy", label_space=PETS)
    assert found.source == "similarity"
    assert found.values(np.array([0, 0]), np.array([1, 2])).tolist() == [0.7, 0.0]


def test_bad_affinities(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="shape"):
        SimilarityMatrix(PETS, np.zeros((2, 2)))
    with pytest.raises(LabelError, match="outside 0 to 1"):
        SimilarityMatrix(PETS, np.full((len(PETS), len(PETS)), 2.0))
    (tmp_path / "x.npy").write_bytes(b"nothing")
    for name in ("x.npy", "x.txt", "none.npy"):
        with pytest.raises(BadFile):
            read_affinity(tmp_path / name, label_space=PETS)


def test_co_occurrence_in_the_same_shape() -> None:
    first, second = np.array([1, 0]), np.array([2, 3])
    found = from_cooccurrence(
        Cooccurrence(
            testset="x", truth="y", without=None, space=PETS, first=first, second=second,
            n=np.array([5, 2]), images=9, empty=0, single=2, several=7,
        )
    )  # fmt: skip
    assert found.together(np.array([2, 3, 0]), np.array([1, 0, 1])).tolist() == [5, 2, 0]
