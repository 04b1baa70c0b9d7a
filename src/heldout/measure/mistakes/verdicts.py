"""Verdicts: which predictions are right under a truth, which are mistakes, and classes that collapse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, LabelError, NotApplicable, UserError
from heldout.core.files import existing_file
from heldout.core.schema import convert, read_plain
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.superclasses import named_classes
from heldout.data.testset import TestSet
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import (
    accepted,
    get_metric,
    has_label,
    not_problematic,
)
from heldout.measure.score.truth import (
    LabelLists,
    RankedPredictions,
    Truth,
    ranked_predictions,
    top1_predictions,
    truth_arrays,
)
from heldout.models.predictions import Predictions

BUILT_IN = "imagenet-1k"

# Positions in ImageNet-1k: 21 classes. M. Peychev et al., "Automated classification of model errors on
# ImageNet", NeurIPS 2023.
_CONTAINED = {249: 248, 250: 248, 385: 101, 386: 101, 504: 968, 482: 848, 435: 876}
_SYNONYMS = ((836, 837), (638, 639), (657, 744), (620, 681), (664, 782), (356, 357, 358, 359))


@dataclass(frozen=True)
class Collapse:
    """For some class ids, the further ids that count as right where the class does.

    One step only, and directed: that a coffee mug may be called a cup does not make every cup a mug.
    """

    name: str
    also: Mapping[str, tuple[str, ...]]

    def codes(self, space: LabelSpace) -> np.ndarray:
        """The pairs among the classes of a space, as ``class * classes + other``; int64 (pairs,)."""
        size, place = len(space), {class_id: row for row, class_id in enumerate(space.ids)}
        return np.array(
            [
                place[key] * size + place[other]
                for key, others in self.also.items()
                for other in others
                if key in place and other in place
            ],
            dtype=np.int64,
        )

    def widen(self, truth: Truth) -> Truth:
        """A truth whose correct and unclear lists also hold what their labels may be called."""
        size = len(truth.space)
        own = np.arange(size) * (size + 1)
        wide = grouped(np.concatenate([own, self.codes(truth.space)]), size, size)
        return replace(
            truth,
            correct=truth.correct.expanded(wide.starts, wide.values, size),
            unclear=truth.unclear.expanded(wide.starts, wide.values, size),
        )


def load_collapse(name_or_path: str | Path, *, label_space: LabelSpace) -> Collapse:
    """A built-in table by name, or a JSON or TOML file; its classes are checked.

    A file is an object ``{class: class or [classes]}``, its classes named as in files of superclasses.
    """
    if str(name_or_path) == BUILT_IN:
        ids = LabelSpace.load(BUILT_IN).ids
        places = {
            *_CONTAINED.items(),
            *(two for same in _SYNONYMS for two in permutations(same, 2)),
        }
        named = [(ids[key], ids[other]) for key, other in sorted(places)]
        # A set of some of the classes keeps what is about them.
        found = _collapse(BUILT_IN, [two for two in named if {*two} <= {*label_space.ids}])
        if not found.also:
            raise LabelError(
                f"collapse table {found.name} is about no class of {label_space.name}",
                fix="give a file",
            )
        return found
    path = Path(name_or_path)
    if path.suffix not in (".json", ".toml"):
        raise UserError(
            f"no collapse table {path.name!r}",
            fix=f"use {BUILT_IN}, or a .json or .toml file",
        )
    fix = 'write {"mug": ["cup"]}'
    listed = convert(
        read_plain(existing_file(path, "collapse table")),
        dict[str, str | int | list[str | int]],
        where=path,
        fix=fix,
    )
    try:
        pairs = [
            (class_id, other)
            for key, others in listed.items()
            for class_id in named_classes(key, label_space)
            for entry in (others if isinstance(others, list) else [others])
            for other in named_classes(entry, label_space)
        ]
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None
    made = _collapse(path.stem, pairs)
    if not made.also:
        raise BadFile(path, "names no two classes", fix=fix)
    return made


def _collapse(name: str, pairs: Iterable[tuple[str, str]]) -> Collapse:
    found: dict[str, dict[str, None]] = {}
    for key, other in pairs:
        if key != other:
            found.setdefault(key, {})[other] = None
    return Collapse(name, {key: tuple(others) for key, others in sorted(found.items())})


RIGHT, WRONG, UNREVIEWED, NOTHING = 0, 1, 2, 3
"""What a truth says of a first guess.

``RIGHT``       correct or unclear; a label that is also called wrong stays right: the hit wins
``WRONG``       neither
``UNREVIEWED``  neither, and not called wrong either, in a truth that reviewers made: an error until
                somebody has looked
``NOTHING``     there is no output: an error as well
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdicts:
    """What one truth says of the first guesses of some models.

    ``truth``     the truth, cut to the n rows that count; rows are in order of image id
    ``hashes``    of the models' predictions
    ``guesses``   int32 (n, models): class index in ``truth.space``; -1 for no output, or for a class
                  that is not of the set
    ``states``    int8 (n, models): RIGHT, WRONG, UNREVIEWED or NOTHING
    ``left_out``  rows of the truth that do not count
    ``reviewed``  whether the truth is one of reviewers, who also say what is wrong
    """

    testset: TestSet
    truth: Truth
    models: tuple[str, ...]
    hashes: tuple[str, ...]
    guesses: np.ndarray
    states: np.ndarray
    left_out: int
    reviewed: bool = False
    label_map: str = "identity"

    def __len__(self) -> int:
        return len(self.truth)

    @cached_property
    def image_ids(self) -> tuple[str, ...]:
        """The image of every row."""
        return tuple(self.testset.image_ids.take(self.truth.rows).to_pylist())

    @cached_property
    def wrong(self) -> np.ndarray:
        """Whether a model is wrong on a row, whatever the reason; bool (n, models)."""
        return np.asarray(self.states != RIGHT)

    @cached_property
    def acceptable(self) -> LabelLists:
        """What would have been right on each row: correct labels, then unclear ones, each once."""
        rows, size = np.arange(len(self)), len(self.truth.space)
        return grouped(_listed(self.truth, rows), len(self), size)

    def position(self, model: str) -> int:
        """Which column a model is."""
        if model not in self.models:
            raise UserError(f"no model {model!r} here", fix=f"there is {', '.join(self.models)}")
        return self.models.index(model)

    def measured(self) -> Measured:
        """The verdicts as a measurement of hits, for what reads one."""
        return Measured(
            testset=self.testset,
            truth=self.truth.name,
            space=self.truth.space,
            metric=get_metric("accepted"),
            models=self.models,
            values=~self.wrong,
            rows=self.truth.rows,
            groups=self.truth.labels,
            label_map=self.label_map,
            hashes=self.hashes,
            left_out=self.left_out,
        )

    def of_models(self, models: Sequence[str]) -> Verdicts:
        """The same verdicts on some models, in that order."""
        where = [self.position(model) for model in models]
        return replace(
            self,
            models=tuple(models),
            hashes=tuple(self.hashes[m] for m in where),
            guesses=self.guesses[:, where],
            states=self.states[:, where],
        )


def verdicts(
    testset: TestSet,
    predictions: Iterable[Predictions],
    *,
    truth: str | None = None,
    collapse: Collapse | None = None,
    label_map: LabelMap | None = None,
) -> Verdicts:
    """The verdicts of one truth (the set's default if None) on models, in the order given.

    ``collapse`` says which further classes count as right where a class does. Each model's outputs
    are dropped before the next is read.
    """
    (found,) = verdicts_by_truth(
        testset,
        predictions,
        truths=[truth or testset.card.default_truth],
        collapse=collapse,
        label_map=label_map,
    )
    return found


def verdicts_by_truth(
    testset: TestSet,
    predictions: Iterable[Predictions],
    *,
    truths: Sequence[str],
    collapse: Collapse | None = None,
    label_map: LabelMap | None = None,
) -> tuple[Verdicts, ...]:
    """The verdicts of several truths on the same models, each model read once."""
    counted = [_counted(testset, name, collapse, label_map) for name in truths]
    judged = counted
    if label_map is not None and label_map.reading == "full":
        judged = [truth.judged_by(label_map) for truth in counted]
    reviewed = [
        _kind(testset, truth.name) == "multilabel" or bool(truth.wrong.lengths.any())
        for truth in counted
    ]
    guesses: list[list[np.ndarray]] = [[] for _ in truths]
    states: list[list[np.ndarray]] = [[] for _ in truths]
    names: list[str] = []
    hashes: list[str] = []
    for model in predictions:
        if model.model in names:
            raise UserError(
                f"{model.model} is there twice", fix="give each model a name of its own"
            )
        for place, truth in enumerate(judged):
            ranked = ranked_predictions(model, testset, truth, label_map, logits=False)
            guesses[place].append(top1_predictions(ranked, label_map))
            states[place].append(_states(truth, ranked, reviewed[place]))
        names.append(model.model)
        hashes.append(model.hash)
    if not names:
        raise UserError(f"no models to look at on {testset.name}", fix="name some with --model")
    return tuple(
        Verdicts(
            testset=testset,
            truth=truth,
            models=tuple(names),
            hashes=tuple(hashes),
            # A model's column lies together in memory: most of what follows goes model by model.
            guesses=np.stack(guesses[place]).T,
            states=np.stack(states[place]).T,
            left_out=len(testset.truth(truth.name)) - len(truth),
            reviewed=reviewed[place],
            label_map=label_map.describe() if label_map else "identity",
        )
        for place, truth in enumerate(counted)
    )


def _kind(testset: TestSet, truth: str) -> str:
    return str(testset.card.truths[truth].get("kind", "single"))


def _counted(
    testset: TestSet, name: str, collapse: Collapse | None, label_map: LabelMap | None
) -> Truth:
    """A truth cut to the rows that count."""
    truth = truth_arrays(testset, name)
    if label_map is not None:
        truth = truth.in_target(label_map)
    if collapse is not None:
        truth = collapse.widen(truth)
    # Which rows count is what scores say: a multi-label accuracy leaves out what is problematic.
    include = not_problematic if _kind(testset, name) == "multilabel" else has_label
    truth = rows_of(truth, np.flatnonzero(include(truth)))
    if not len(truth):
        raise NotApplicable(
            f"truth {name} of {testset.name} has no image to count", fix="choose another truth"
        )
    return truth


def _states(truth: Truth, guesses: RankedPredictions, reviewed: bool) -> np.ndarray:
    firsts = guesses.topk[:, 0]
    right = accepted(truth, guesses)
    states = np.where(right, RIGHT, WRONG).astype(np.int8)
    if reviewed:
        states[~right & ~truth.wrong.contain(firsts)] = UNREVIEWED
    # A class that is not of the set is wrong, and there is nothing to review about it.
    states[~right & (firsts < 0)] = WRONG
    if guesses.failed is not None:
        states[guesses.failed] = NOTHING
    return states


def _listed(truth: Truth, owners: np.ndarray) -> np.ndarray:
    """Every correct, then every unclear label as ``owner * classes + label``; ``owners`` (rows,)."""
    size = len(truth.space)
    return np.concatenate(
        [
            np.repeat(owners, part.lengths) * size + part.values
            for part in (truth.correct, truth.unclear)
        ]
    )


def grouped(codes: np.ndarray, owners: int, size: int) -> LabelLists:
    """The labels of codes ``owner * size + label`` by owner, in their order, each once."""
    kept, first = np.unique(codes, return_index=True)
    owner, labels = np.divmod(kept[np.lexsort((first, kept // size))], size)
    return LabelLists(np.searchsorted(owner, np.arange(owners + 1)), labels, size)


def rows_of(truth: Truth, rows: np.ndarray) -> Truth:
    """A truth cut to some of its rows, in that order."""
    return replace(
        truth,
        rows=truth.rows[rows],
        labels=truth.labels[rows],
        problematic=truth.problematic[rows],
        correct=truth.correct.select(rows),
        unclear=truth.unclear.select(rows),
        wrong=truth.wrong.select(rows),
    )


@dataclass(frozen=True)
class Mistake:
    """One wrong (image, prediction) pair.

    ``prediction``  class id
    ``acceptable``  class ids that would have been right, correct or unclear, the original label first
                    where it is one of them
    ``models``      who makes this mistake, in the order in which they were looked at
    """

    image_id: str
    prediction: str
    acceptable: tuple[str, ...]
    models: tuple[str, ...]


Key = tuple[str, str]
"""(image id, class id of the prediction)."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Mistakes:
    """Wrong (image, prediction) pairs as columns, each pair once; a row is a :class:`Mistake`.

    ``image_ids``    n of them
    ``predictions``  int64 (n,): class indices of ``space``
    ``acceptable``   lists of class indices
    ``models``, ``made``  names, and who of them makes the mistake: bool (n, models)
    ``reviewed``     bool (n,): whether the truth calls the prediction wrong; False where nobody has
                     looked. Under a truth without reviews every mistake counts as reviewed
    """

    space: LabelSpace
    image_ids: tuple[str, ...]
    predictions: np.ndarray
    acceptable: LabelLists
    models: tuple[str, ...]
    made: np.ndarray
    reviewed: np.ndarray

    def __len__(self) -> int:
        return len(self.image_ids)

    def __iter__(self) -> Iterator[Mistake]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, row: int) -> Mistake:
        ids, lists = self.space.ids, self.acceptable
        listed = lists.values[lists.starts[row] : lists.starts[row + 1]].tolist()
        return Mistake(
            image_id=self.image_ids[row],
            prediction=ids[self.predictions[row]],
            acceptable=tuple(ids[label] for label in listed),
            models=tuple(self.models[m] for m in np.flatnonzero(self.made[row]).tolist()),
        )

    @cached_property
    def keys(self) -> list[Key]:
        """(image id, class id) of every row."""
        ids = self.space.ids
        return [
            (image, ids[label])
            for image, label in zip(self.image_ids, self.predictions.tolist(), strict=True)
        ]

    def take(self, rows: Sequence[int] | np.ndarray) -> Mistakes:
        """Some of the rows, in that order."""
        where = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            image_ids=tuple(self.image_ids[row] for row in where.tolist()),
            predictions=self.predictions[where],
            acceptable=self.acceptable.select(where),
            made=self.made[where],
            reviewed=self.reviewed[where],
        )


def mistakes_of(verdicts: Verdicts) -> Mistakes:
    """Every wrong (image, prediction) pair of any model, sorted by both.

    Images without an output have no prediction and are not among them, nor are guesses that are not
    a class of the set. An image with several rows in the truth has their labels together: a pair
    that is right by one of them is not a mistake.
    """
    truth = verdicts.truth
    rows, models = np.nonzero(verdicts.wrong & (verdicts.guesses >= 0))
    codes = truth.rows[rows] * len(truth.space) + verdicts.guesses[rows, models]
    pairs, place = np.unique(codes, return_inverse=True)
    made = np.zeros((len(pairs), len(verdicts.models)), dtype=bool)
    made[place, models] = True
    reviewed = np.zeros(len(pairs), dtype=bool)
    reviewed[place[verdicts.states[rows, models] == WRONG]] = True
    found = _mistakes(verdicts.testset, truth, pairs, verdicts.models, made, reviewed)
    if len(np.unique(truth.rows)) == len(truth):
        return found
    return found.take(np.flatnonzero(~found.acceptable.contain(found.predictions)))


def mistakes_at(testset: TestSet, pairs: Iterable[Key], *, truth: str) -> tuple[Mistakes, int, int]:
    """(image, prediction) pairs as mistakes of no model, with what a truth takes as right.

    Also how many pairs the truth does not know (their image, or class), and how many it calls right.
    """
    arrays, asked = truth_arrays(testset, truth), set(pairs)
    size, space = len(arrays.space), arrays.space
    ids = testset.image_ids.take(arrays.rows).to_pylist()
    row_of = dict(zip(ids, arrays.rows.tolist(), strict=True))
    known = [
        row_of[image] * size + space.index(label)
        for image, label in asked
        if image in row_of and label in space
    ]
    codes, all_true = np.array(known, dtype=np.int64), np.ones((len(known), 1), dtype=bool)
    found = _mistakes(testset, arrays, codes, (), all_true[:, :0], all_true[:, 0])
    right = found.acceptable.contain(found.predictions)
    return found.take(np.flatnonzero(~right)), len(asked) - len(known), int(right.sum())


def _mistakes(
    testset: TestSet,
    truth: Truth,
    codes: np.ndarray,
    models: tuple[str, ...],
    made: np.ndarray,
    reviewed: np.ndarray,
) -> Mistakes:
    """Pairs given as ``image * classes + prediction``, sorted by ids."""
    size, ids = len(truth.space), truth.space.ids
    # What is right of an image: its own labels where they are listed, then correct, then unclear ones.
    known, listed = truth.labels >= 0, _listed(truth, truth.rows)
    own = truth.rows[known] * size + truth.labels[known]
    right = np.concatenate([own[np.isin(own, listed)], listed])
    acceptable = grouped(right, len(testset), size)

    images, predictions = np.divmod(codes, size)
    names = testset.image_ids.take(images).to_pylist()
    order = sorted(range(len(codes)), key=lambda row: (names[row], ids[predictions[row]]))
    return Mistakes(
        space=truth.space,
        image_ids=tuple(names[row] for row in order),
        predictions=predictions[order],
        acceptable=acceptable.select(images[order]),
        models=models,
        made=made[order],
        reviewed=reviewed[order],
    )
