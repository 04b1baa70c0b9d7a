"""A small world of pets: hierarchy, peers, mistakes and people's verdicts, none of it ImageNet's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from heldout.data.labels import Class, Hierarchy, LabelSpace
from heldout.measure.mistakes.between_models import Peers
from heldout.measure.mistakes.class_similarity import PRIOR, PairCounts
from heldout.measure.mistakes.evidence import EvidenceTable, Knowledge, evidence_table
from heldout.measure.mistakes.verdicts import Mistake, Mistakes, grouped

PARENTS = {
    "beagle": ("dog",),
    "boxer": ("dog",),
    "pug": ("dog",),
    "tabby": ("cat",),
    "manx": ("cat",),
    "dog": ("pet",),
    "cat": ("pet",),
    "sofa": ("thing",),
    "leash": ("thing",),
    "collie": ("dog",),  # in the hierarchy, but no class
}
IDS = ("beagle", "boxer", "pug", "tabby", "manx", "sofa", "leash")
PETS = LabelSpace("pets", tuple(Class(name, names=(name,), parents=PARENTS[name]) for name in IDS))
TREE = Hierarchy(PARENTS, name="pets")


def mistake(image: str, prediction: str, *labels: str, models: tuple[str, ...] = ()) -> Mistake:
    return Mistake(
        image_id=image,
        prediction=prediction,
        acceptable=labels,
        models=models,
    )


def as_table(rows: Sequence[Mistake], space: LabelSpace = PETS) -> Mistakes:
    """Mistakes as columns, in the order given."""
    models = tuple(dict.fromkeys(name for row in rows for name in row.models))
    codes = [
        n * len(space) + space.index(label) for n, m in enumerate(rows) for label in m.acceptable
    ]
    return Mistakes(
        space=space,
        image_ids=tuple(row.image_id for row in rows),
        predictions=space.indices(row.prediction for row in rows),
        acceptable=grouped(np.array(codes, dtype=np.int64), len(rows), len(space)),
        models=models,
        made=np.array([[m in row.models for m in models] for row in rows], dtype=bool).reshape(
            len(rows), len(models)
        ),
        reviewed=np.ones(len(rows), dtype=bool),
    )


def evidence(rows: Sequence[Mistake], known: Knowledge) -> EvidenceTable:
    return evidence_table(as_table(rows, known.space), known)


def knowledge(**parts: object) -> Knowledge:
    return Knowledge(space=PETS, hierarchy=TREE, **parts)  # type: ignore[arg-type]


def counted(pairs: dict[tuple[str, str], int], space: LabelSpace = PETS) -> PairCounts:
    """Classes that came up together so often; each class as often as in all pairs together."""
    counts = np.zeros((len(space), len(space)))
    for pair, n in pairs.items():
        counts[tuple(sorted(map(space.index, pair)))] = n
    return PairCounts(space, sparse.csr_array(counts), counts.sum(axis=0) + counts.sum(axis=1))


def alike(values: dict[tuple[str, str], float], space: LabelSpace = PETS) -> PairCounts:
    """Classes that look alike by so much, and no others."""
    counts = np.zeros((len(space), len(space)))
    for pair, value in values.items():
        counts[tuple(sorted(map(space.index, pair)))] = 10 * value
    return PairCounts(space, sparse.csr_array(counts), np.full(len(space), 10.0 - PRIOR))


def make_peers(guesses: dict[str, list[list[str]]]) -> Peers:
    """Peers from the lists of each image, one list a model; shorter lists end in nothing."""
    most = max(len(lists) for lists in guesses.values())
    ranks = max(len(row) for lists in guesses.values() for row in lists)
    topk = np.full((len(guesses), most, ranks), -1, dtype=np.int32)
    for i, lists in enumerate(guesses.values()):
        for m, row in enumerate(lists):
            topk[i, m, : len(row)] = [PETS.index(name) for name in row]
    return Peers(
        space=PETS,
        models=tuple(f"m{m}" for m in range(most)),
        image_ids=tuple(guesses),
        topk=topk,
    )


def random_peers(rng: np.random.Generator, *, images: int, models: int, ranks: int) -> Peers:
    topk = np.stack(
        [
            np.stack([rng.permutation(len(PETS))[:ranks] for _ in range(models)])
            for _ in range(images)
        ]
    ).astype(np.int32)
    topk[rng.random(topk.shape) < 0.1] = -1
    return Peers(
        space=PETS,
        models=tuple(f"m{m}" for m in range(models)),
        image_ids=tuple(f"i{i}" for i in range(images)),
        topk=topk,
    )


def planted(
    n: int, seed: int, *, signal: bool = True, per_image: int = 1
) -> tuple[tuple[Mistake, ...], dict[tuple[str, str], tuple[str, str]]]:
    """Mistakes whose category and severity hang on the hierarchy, or on nothing at all."""
    rng = np.random.default_rng(seed)
    mistakes: list[Mistake] = []
    verdicts: dict[tuple[str, str], tuple[str, str]] = {}
    for number in range(n):
        label = str(rng.choice(IDS[:5]))
        others = [name for name in IDS if name != label]
        prediction = str(rng.choice(others))
        image = f"image-{number // per_image:04d}"
        if (image, prediction) in verdicts or any(
            m.image_id == image and prediction in m.acceptable for m in mistakes
        ):
            continue
        near = PARENTS[prediction] == PARENTS[label]
        if not signal:
            near = bool(rng.random() < 0.5)
        sure = rng.random() < 0.9
        category = "Fine-grained error" if near == sure else "Spurious Correlation"
        severity = "Minor" if near == sure else "Major"
        mistakes.append(mistake(image, prediction, label))
        verdicts[image, prediction] = (category, severity)
    return tuple(mistakes), verdicts
