"""Verdicts: which predictions are right under a truth, which are mistakes, and classes that collapse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, LabelError, NotApplicable, UserError
from heldout.core.files import existing_file, read_json
from heldout.data.labels.label_map import LabelMap
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.mistakes.logistic import Logistic, fit_logistic
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

BUILT_IN = ("imagenet-1k",)

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

    def __len__(self) -> int:
        return len(self.also)

    def pairs(self) -> set[tuple[str, str]]:
        """(class, what it may also be called), each once."""
        return {(key, other) for key, others in self.also.items() for other in others}

    def widen(self, truth: Truth) -> Truth:
        """A truth whose correct and unclear lists also hold what their labels may be called."""
        space = truth.space
        entries = [[c] for c in range(len(space))]
        for key, others in self.also.items():
            if key in space:
                entries[space.index(key)] += [space.index(o) for o in others if o in space]
        starts = np.concatenate([[0], np.cumsum([len(entry) for entry in entries])])
        values = np.array([value for entry in entries for value in entry], dtype=np.int64)

        def widened(lists: LabelLists) -> LabelLists:
            return lists.expanded(starts, values, len(space))

        return replace(truth, correct=widened(truth.correct), unclear=widened(truth.unclear))


def load_collapse(name_or_path: str | Path, *, label_space: LabelSpace) -> Collapse:
    """A built-in table by name, or a JSON or TOML file; its classes are checked.

    A file is an object ``{class: class or [classes]}``, or has that object under ``also``, and may
    give ``synonyms``: lists of classes that all count for each other. Classes are ids, positions in
    the label space, or names that only one class has.
    """
    text = str(name_or_path)
    if text in BUILT_IN:
        return _built_in(text, label_space)
    path = Path(name_or_path)
    if path.suffix not in (".json", ".toml"):
        raise UserError(
            f"no collapse table {text!r}",
            fix=f"use {', '.join(BUILT_IN)}, or a .json or .toml file",
        )
    value = _document(existing_file(path, "collapse table"))
    also = value.get("also", {} if "synonyms" in value else value)
    synonyms = value.get("synonyms", [])
    if not isinstance(also, dict) or not isinstance(synonyms, list):
        raise BadFile(path, "is no table of classes", fix='write {"also": {"mug": ["cup"]}}')
    found: dict[str, dict[str, None]] = {}

    def add(key: object, others: object) -> None:
        mine = _class_id(key, label_space, path)
        for other in others if isinstance(others, list) else [others]:
            theirs = _class_id(other, label_space, path)
            if theirs != mine:
                found.setdefault(mine, {})[theirs] = None

    for key, others in also.items():
        if key != "schema_version":
            add(key, others)
    for group in synonyms:
        if not isinstance(group, list) or len(group) < 2:
            raise BadFile(path, f"has the synonyms {group!r}", fix="list at least two classes")
        for key in group:
            add(key, group)
    if not found:
        raise BadFile(path, "names no classes", fix='write {"also": {"mug": ["cup"]}}')
    return Collapse(path.stem, {key: tuple(others) for key, others in sorted(found.items())})


def _built_in(name: str, label_space: LabelSpace) -> Collapse:
    ids = LabelSpace.load("imagenet-1k").ids
    also: dict[str, tuple[str, ...]] = {
        ids[key]: (ids[other],) for key, other in _CONTAINED.items()
    }
    for group in _SYNONYMS:
        for key in group:
            also[ids[key]] = tuple(ids[other] for other in group if other != key)
    # A set of some of the classes keeps what is about them.
    known = {
        key: others
        for key, given in sorted(also.items())
        if key in label_space and (others := tuple(o for o in given if o in label_space))
    }
    if not known:
        raise LabelError(
            f"collapse table {name} is about no class of {label_space.name}", fix="give a file"
        )
    return Collapse(name, known)


def _document(path: Path) -> dict[str, Any]:
    if path.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadFile(path, f"is not TOML ({error})", fix="mend it") from None
    value = read_json(path)
    if not isinstance(value, dict):
        raise BadFile(path, "is not a JSON object", fix='write {"also": {"mug": ["cup"]}}')
    return value


def _class_id(value: object, space: LabelSpace, path: Path) -> str:
    """A class by id, by position (a number, or digits as text), or by a name that is its own."""
    text = str(value)
    if isinstance(value, str) and value in space:
        return value
    if not isinstance(value, bool) and text.isascii() and text.isdigit() and int(text) < len(space):
        return space.ids[int(text)]
    try:
        return space.by_name(text).id
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None


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
        """What would have been right on each row: correct and unclear labels, sorted, each once."""
        truth, size = self.truth, len(self.truth.space)
        keys = np.union1d(truth.correct.keys, truth.unclear.keys)
        rows, labels = np.divmod(keys, size)
        return LabelLists(np.searchsorted(rows, np.arange(len(truth) + 1)), labels, size)

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
    gathered = [_gathered(testset, name, collapse, label_map) for name in truths]
    names: list[str] = []
    hashes: list[str] = []
    for model in predictions:
        if model.model in names:
            raise UserError(
                f"{model.model} is there twice", fix="give each model a name of its own"
            )
        for each in gathered:
            guesses = ranked_predictions(model, testset, each.judged, label_map, logits=False)
            each.guesses.append(top1_predictions(guesses, label_map))
            each.states.append(_states(each.judged, guesses, each.reviewed))
        names.append(model.model)
        hashes.append(model.hash)
    if not names:
        raise UserError(f"no models to look at on {testset.name}", fix="name some with --model")
    return tuple(
        Verdicts(
            testset=testset,
            truth=each.truth,
            models=tuple(names),
            hashes=tuple(hashes),
            # A model's column lies together in memory: most of what follows goes model by model.
            guesses=np.stack(each.guesses).T,
            states=np.stack(each.states).T,
            left_out=each.left_out,
            reviewed=each.reviewed,
            label_map=label_map.describe() if label_map else "identity",
        )
        for each in gathered
    )


@dataclass(frozen=True, eq=False)
class _Gathered:
    """A truth as it counts (``truth``) and as guesses are judged by it, and what models answered."""

    truth: Truth
    judged: Truth
    reviewed: bool
    left_out: int
    guesses: list[np.ndarray]
    states: list[np.ndarray]


def _gathered(
    testset: TestSet, name: str, collapse: Collapse | None, label_map: LabelMap | None
) -> _Gathered:
    whole = counted = truth_arrays(testset, name)
    if label_map is not None:
        counted = whole.in_target(label_map)
    if collapse is not None:
        counted = collapse.widen(counted)
    kind = testset.card.truths[name].get("kind", "single")
    # Which rows count is what scores say: a multi-label accuracy leaves out what is problematic.
    include = not_problematic if kind == "multilabel" else has_label
    counted = rows_of(counted, np.flatnonzero(include(counted)))
    if not len(counted):
        raise NotApplicable(
            f"truth {name} of {testset.name} has no image to count", fix="choose another truth"
        )
    judged = counted
    if label_map is not None and label_map.reading == "full":
        judged = counted.judged_by(label_map)
    reviewed = kind == "multilabel" or bool(counted.wrong.lengths.any())
    return _Gathered(counted, judged, reviewed, len(whole) - len(counted), [], [])


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


_RIDGE = 1.0
_PRIOR = 2.0  # answers that a pair of classes starts with, at the rate of the whole truth
_ENOUGH = 20


def acceptability(verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The probability that ``classes[i]`` is acceptable for row ``rows[i]``; float64 (pairs,).

    Under a truth without reviews nothing can be learned: then it is the share of models that say
    so, one more model counted that does not.
    """
    said = _said(verdicts, rows, classes)
    learned = _learned(verdicts)
    if learned is None:
        return said * len(verdicts.models) / (len(verdicts.models) + 1.0)
    history, model = learned
    return np.asarray(model.probabilities(history.columns(rows, classes, said))[:, 1])


def standing_odds(verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The same from the truth's lists alone, whatever the models; 1/2 where there are none."""
    history = _History.of(verdicts)
    if history is None:
        return np.full(len(rows), 0.5)
    pair, _ = history.rates(rows, classes, leave_out=None)
    return np.asarray(pair)


class _History:
    """What a truth's lists say of labels other than an image's own.

    For a pair (label of the image, other class): how often it was accepted and refused; the same
    for the other class whatever the label.
    """

    def __init__(self, verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray, good: np.ndarray):
        self._verdicts = verdicts
        self.rows, self.classes, self.good = rows, classes, good
        self.width = len(verdicts.truth.space)
        self.rate = float((good.sum() + 1.0) / (len(good) + 2.0))
        keys = self._keys(rows, classes)
        self._pairs, place = np.unique(keys, return_inverse=True)
        place = place.reshape(-1)
        self._pair_n = np.bincount(place, minlength=len(self._pairs)).astype(np.float64)
        self._pair_good = np.bincount(place, weights=good, minlength=len(self._pairs))
        self._class_n = np.bincount(classes, minlength=self.width).astype(np.float64)
        self._class_good = np.bincount(classes, weights=good, minlength=self.width)

    @classmethod
    def of(cls, verdicts: Verdicts) -> _History | None:
        """The history of a truth, or None where reviewers left too little."""
        truth = verdicts.truth
        if not verdicts.reviewed:
            return None
        good_rows, good_classes = truth.correct.pairs()
        more_rows, more_classes = truth.unclear.pairs()
        width = len(truth.space)
        good = np.union1d(good_rows * width + good_classes, more_rows * width + more_classes)
        bad_rows, bad_classes = truth.wrong.pairs()
        # A label that is both counts as accepted: the hit wins here too.
        bad = np.setdiff1d(bad_rows * width + bad_classes, good)
        codes = np.concatenate([good, bad])
        answer = np.concatenate([np.ones(len(good)), np.zeros(len(bad))])
        rows, classes = np.divmod(codes, width)
        other = classes != truth.labels[rows]
        if answer[other].sum() < _ENOUGH or (1 - answer[other]).sum() < _ENOUGH:
            return None
        return cls(verdicts, rows[other], classes[other], answer[other])

    def _keys(self, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
        labels = self._verdicts.truth.labels[rows]
        return np.asarray((labels + 1) * self.width + classes)

    def rates(
        self, rows: np.ndarray, classes: np.ndarray, *, leave_out: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Smoothed shares of acceptance of the pair of classes, and of the other class.

        ``leave_out`` (pairs,) is the answer of each of these very pairs, to be taken out.
        """
        keys = self._keys(rows, classes)
        place = np.minimum(np.searchsorted(self._pairs, keys), len(self._pairs) - 1)
        there = self._pairs[place] == keys
        own = np.zeros(len(rows)) if leave_out is None else np.ones(len(rows))
        value = np.zeros(len(rows)) if leave_out is None else leave_out
        n = np.where(there, self._pair_n[place], 0.0) - own
        good = np.where(there, self._pair_good[place], 0.0) - value
        class_n, class_good = self._class_n[classes] - own, self._class_good[classes] - value
        by_class = (class_good + _PRIOR * self.rate) / (class_n + _PRIOR)
        return (good + _PRIOR * by_class) / (n + _PRIOR), by_class

    def columns(
        self,
        rows: np.ndarray,
        classes: np.ndarray,
        said: np.ndarray,
        *,
        leave_out: np.ndarray | None = None,
    ) -> np.ndarray:
        """What a regression sees of pairs; float64 (pairs, 3)."""
        pair, by_class = self.rates(rows, classes, leave_out=leave_out)
        return np.stack([_log_odds(pair), _log_odds(by_class), said], axis=1)


def _log_odds(p: np.ndarray) -> np.ndarray:
    inside = np.clip(p, 1e-4, 1.0 - 1e-4)
    return np.asarray(np.log(inside / (1.0 - inside)))


def _learned(verdicts: Verdicts) -> tuple[_History, Logistic] | None:
    history = _History.of(verdicts)
    if history is None:
        return None
    said = _said(verdicts, history.rows, history.classes)
    columns = history.columns(history.rows, history.classes, said, leave_out=history.good)
    fitted = fit_logistic(columns, history.good.astype(np.int64), 2, ridge=_RIDGE)
    return history, fitted


def _said(verdicts: Verdicts, rows: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The share of models that predict each pair."""
    return np.asarray((verdicts.guesses[rows] == classes[:, None]).mean(axis=1))


@dataclass(frozen=True)
class Mistake:
    """One wrong (image, prediction) pair.

    ``prediction``  class id
    ``acceptable``  class ids that would have been right, correct or unclear, the original label first
                    where it is one of them
    ``original``    class id of the image's own label, or None where it has none
    ``models``      who makes this mistake, in the order in which they were looked at
    ``reviewed``    whether the truth calls the prediction wrong; False where nobody has looked. Under
                    a truth without reviews every mistake counts as reviewed.
    """

    image_id: str
    prediction: str
    acceptable: tuple[str, ...]
    original: str | None
    models: tuple[str, ...]
    reviewed: bool


def mistakes_of(verdicts: Verdicts) -> tuple[Mistake, ...]:
    """Every wrong (image, prediction) pair of any model, sorted by both.

    Images without an output have no prediction and are not among them, nor are guesses that are no
    class of the set. An image with several rows in the truth has their labels together: a pair that
    is right by one of them is no mistake.
    """
    space = verdicts.truth.space
    rows, models = np.nonzero(verdicts.wrong & (verdicts.guesses >= 0))
    guesses = verdicts.guesses[rows, models].astype(np.int64)
    order = np.argsort(rows * len(space) + guesses, kind="stable")
    rows, models, guesses = rows[order], models[order], guesses[order]
    first = np.flatnonzero(np.r_[True, np.diff(rows * len(space) + guesses) != 0][: len(rows)])
    states = verdicts.states[rows[first], models[first]]
    ids, images, labels = space.ids, verdicts.image_ids, verdicts.truth.labels
    acceptable = _Acceptable(verdicts)
    found: dict[tuple[str, str], Mistake] = {}
    ends = np.r_[first, len(rows)][1:].tolist()
    names = [verdicts.models[m] for m in models.tolist()]
    for begin, end, row, guess, state in zip(
        first.tolist(),
        ends,
        rows[first].tolist(),
        guesses[first].tolist(),
        states.tolist(),
        strict=True,
    ):
        label = int(labels[row])
        mistake = Mistake(
            image_id=images[row],
            prediction=ids[guess],
            acceptable=acceptable.of(row),
            original=ids[label] if label >= 0 else None,
            models=tuple(names[begin:end]),
            reviewed=state == WRONG,
        )
        key = (mistake.image_id, mistake.prediction)
        found[key] = _joined(found[key], mistake) if key in found else mistake
    if len(set(images)) < len(images):
        found = _right_nowhere(found, verdicts, acceptable)
    return tuple(found[key] for key in sorted(found))


class _Acceptable:
    """The acceptable class ids of a row, made once a row."""

    def __init__(self, verdicts: Verdicts) -> None:
        truth = verdicts.truth
        self._ids, self._labels = truth.space.ids, truth.labels
        self._lists = [
            (part.starts.tolist(), part.values.tolist()) for part in (truth.correct, truth.unclear)
        ]
        self._known: dict[int, tuple[str, ...]] = {}

    def of(self, row: int) -> tuple[str, ...]:
        """Correct labels, then unclear ones, each once; the original first where it is there."""
        if row not in self._known:
            listed = dict.fromkeys(
                value
                for starts, values in self._lists
                for value in values[starts[row] : starts[row + 1]]
            )
            label = int(self._labels[row])
            if label in listed:
                listed = {label: None, **listed}
            self._known[row] = tuple(self._ids[value] for value in listed)
        return self._known[row]


def _joined(one: Mistake, other: Mistake) -> Mistake:
    return replace(
        one,
        acceptable=tuple(dict.fromkeys((*one.acceptable, *other.acceptable))),
        models=tuple(dict.fromkeys((*one.models, *other.models))),
        reviewed=one.reviewed or other.reviewed,
    )


def _right_nowhere(
    found: dict[tuple[str, str], Mistake], verdicts: Verdicts, acceptable: _Acceptable
) -> dict[tuple[str, str], Mistake]:
    """For images with several rows: all their labels together, and only pairs that are in none."""
    together: dict[str, dict[str, None]] = {}
    for row, image in enumerate(verdicts.image_ids):
        together.setdefault(image, {}).update(dict.fromkeys(acceptable.of(row)))
    return {
        key: replace(mistake, acceptable=tuple(together[mistake.image_id]))
        for key, mistake in found.items()
        if mistake.prediction not in together[mistake.image_id]
    }
