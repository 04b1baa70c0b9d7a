"""Categories and severity of mistakes: by rules, or learned from judged ones, with the evidence for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from heldout.core.errors import NotApplicable
from heldout.core.schema import Document
from heldout.data.judgements.judgement import CATEGORIES, SEVERITIES
from heldout.data.judgements.judgement import NO_MISTAKE as NO_MISTAKE
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.mistakes.evidence import EvidenceTable, feature_kinds
from heldout.measure.mistakes.verdicts import Key
from heldout.stats.intervals import normal_quantile

if TYPE_CHECKING:
    from heldout.measure.mistakes.logistic import LogisticModel

FINE_GRAINED = "Fine-grained error"
OUT_OF_VOCABULARY = "Fine-grained error with OOV"
NON_PROTOTYPICAL = "Non-prototypical"
SPURIOUS = "Spurious Correlation"
OTHER = "Other"

PROPOSABLE: tuple[str, ...] = (NO_MISTAKE, *CATEGORIES)
"""What a proposal may say: that it is no mistake, or a category that people may answer."""


class Evidence(Document, frozen=True, kw_only=False):
    """One thing that is known about a mistake.

    ``kind``   which one, such as ``affinity`` (the table in docs/mistake-categories.md)
    ``text``   for a person, in a sentence
    ``value``  the number behind it
    """

    kind: str
    text: str
    value: float


class Proposal(Document, frozen=True, kw_only=False):
    """What kind of mistake a wrong (image, prediction) pair may be, and why.

    ``category``              one of :data:`PROPOSABLE`
    ``severity``              ``Major`` or ``Minor`` where the interval of its probability lies on one
                              side of a half; None where it does not, or nothing was learned
    ``severity_probability``  of ``Major``, with its interval ``severity_low`` to ``severity_high``
    ``basis``                 ``rules`` or ``learned``
    ``scores``                a number in 0 … 1 for each category. From rules it is the strength of the
                              evidence, a half where the rule just holds; from judged mistakes it is a
                              probability
    ``evidence``              what speaks for the category, strongest first; where nothing does, what
                              is known
    """

    image_id: str
    prediction: str
    category: str
    severity: str | None = None
    severity_probability: float | None = None
    severity_low: float | None = None
    severity_high: float | None = None
    basis: str = "rules"
    scores: dict[str, float] = msgspec.field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()

    @property
    def key(self) -> Key:
        """What a judgement of it is keyed by."""
        return self.image_id, self.prediction


ORDER: tuple[str, ...] = (
    NO_MISTAKE,
    FINE_GRAINED,
    OUT_OF_VOCABULARY,
    SPURIOUS,
    NON_PROTOTYPICAL,
    OTHER,
)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Where each kind of evidence begins to hold.

    ``lca_size``       at most this many classes under the lowest common ancestor; None:
                       :func:`usual_lca_size` of the label space
    ``affinity``       at least so much
    ``cooccurrence``   at least this many images with both classes
    ``typicality``     among this share of least typical images
    ``outside_share``  at least this share of the image-text similarity on things that are not classes
    """

    lca_size: float | None = None
    affinity: float = 0.1
    cooccurrence: float = 2.0
    typicality: float = 0.05
    outside_share: float = 0.5


def usual_lca_size(classes: int) -> float:
    """How many classes two of a kind may stand among: 25 of 1,000, 8 of 100, 3 of 10.

    It grows with the root of the number of classes: a tree of twice as many has more kinds, and more
    classes of a kind.
    """
    return max(3.0, float(np.floor(0.8 * np.sqrt(classes))))


def strengths(table: EvidenceTable, rules: Rules | None = None) -> np.ndarray:
    """How strongly each category of :data:`ORDER` is supported, float (n, 6) in 0 … 1.

    A half is where a rule begins to hold. ``Other`` has what the strongest of the rest leaves.
    """
    at = rules or Rules()
    likeness = table.column("same_superclass")
    if "same_superclass" not in table.columns:
        most = at.lca_size or usual_lca_size(len(table.knowledge.space))
        near = most / (most + table.column("lca_size"))
        alike = table.column("affinity")
        likeness = np.fmax(near, alike / (alike + at.affinity))
    together = table.column("cooccurrence")
    share = table.column("outside_share")
    # Two lines that meet in the threshold: 0 stays 0, the threshold is a half, 1 stays 1.
    outside = np.where(
        share < at.outside_share,
        0.5 * share / at.outside_share,
        1.0 - 0.5 * (1.0 - share) / max(1.0 - at.outside_share, 1e-9),
    )
    found = [
        table.collapsed.astype(np.float64),
        likeness,
        outside,
        together / (together + at.cooccurrence),
        at.typicality / (at.typicality + table.column("typicality")),
    ]
    known = np.nan_to_num(np.stack(found, axis=1), nan=0.0)
    return np.hstack([known, 1.0 - known.max(axis=1, keepdims=True, initial=0.0)])


def first_that_holds(found: np.ndarray) -> np.ndarray:
    """The first category whose strength reaches a half, else ``Other``; places in :data:`ORDER`."""
    holds = found >= 0.5
    holds[:, -1] = True
    return np.asarray(holds.argmax(axis=1))


REASONS: Mapping[str, tuple[str, ...]] = {
    NO_MISTAKE: ("lca_size",),
    FINE_GRAINED: ("same_superclass", "affinity", "lca_size", "path_distance"),
    OUT_OF_VOCABULARY: ("outside_share",),
    SPURIOUS: ("cooccurrence", "cooccurrence_share"),
    NON_PROTOTYPICAL: ("typicality",),
    OTHER: (),
}
"""The kinds of evidence that speak for each category, when rules decide."""


def reliability(
    table: EvidenceTable,
    proposals: Sequence[Proposal],
    judged: Mapping[Key, tuple[str, str]],
) -> str:
    """How often proposals by rules are right: on judged mistakes among these, else on published ones."""
    pairs = [(p.category, judged[p.key][0]) for p in proposals if p.key in judged]
    if pairs:
        same = sum(proposed == answer for proposed, answer in pairs)
        return f"people say the same of {same:,} of {len(pairs):,} judged ones among these"
    validated = LabelSpace.load("imagenet-1k").fingerprint
    if "same_superclass" in table.columns or table.knowledge.space.fingerprint != validated:
        return "not compared with what people say: judge some (heldout mistakes queue)"
    return _PUBLISHED[table.knowledge.peers is not None]


# Of the 378 mistakes of ViT-3B on ImageNet (Vasudevan et al. 2022) by benchmarks/mistake_categories.py,
# and of the 819 that Peychev et al. 2023 call spurious.
_PUBLISHED = {
    False: "people say the same of 162 of 378 published mistakes of ImageNet",
    True: "people say the same of 217 of 378 published mistakes of ImageNet; without superclasses 670 of "
    "819 spurious correlations pass for fine-grained",
}


def grouped_folds(
    images: Sequence[str], answers: Sequence[str], folds: int, *, rng: np.random.Generator
) -> np.ndarray:
    """The fold of each mistake, int64 (n,): all mistakes of one image are in one fold.

    Images are dealt out one by one, those of the rarest answer first, so that every fold gets its
    share of every answer. The order in which mistakes come does not matter.
    """
    count = Counter(answers)
    rarest: dict[str, tuple[int, str]] = {}
    for image, answer in zip(images, answers, strict=True):
        mine = (count[answer], answer)
        rarest[image] = min(rarest.get(image, mine), mine)
    names = sorted(rarest)
    chance = rng.permutation(len(names)).tolist()
    order = sorted(range(len(names)), key=lambda place: (rarest[names[place]], chance[place]))
    fold = {names[place]: dealt % folds for dealt, place in enumerate(order)}
    return np.array([fold[image] for image in images], dtype=np.int64)


RIDGES: tuple[float, ...] = (100.0, 30.0, 10.0, 3.0, 1.0)
BALANCES: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
FOLDS, OUTER_FOLDS = 5, 10
FEWEST = 5
"""A category with fewer judged mistakes is not learned, and never proposed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned:
    """What was learned from judged mistakes: a regression of answers on evidence.

    ``answers``  those that had enough mistakes, sorted
    ``kinds``    the evidence that the columns of ``regression`` stand for
    ``prior``    (answers,): their shares among the judged mistakes
    ``balance``  how far rare answers are favoured: 0 not at all, 1 as if all were equally frequent
    """

    answers: tuple[str, ...]
    kinds: tuple[str, ...]
    regression: LogisticModel
    prior: np.ndarray
    balance: float

    def probabilities(self, table: EvidenceTable) -> np.ndarray:
        """(n, answers), each row summing to one."""
        return self.regression.probabilities(table.features(self.kinds))

    def choose(self, probabilities: np.ndarray) -> np.ndarray:
        """The answer to each row, as a place in ``answers``; int64 (n,)."""
        return np.asarray((probabilities / self.prior**self.balance).argmax(axis=1))

    def pulls(self, table: EvidenceTable) -> np.ndarray:
        """How far each column moves each answer from its average, (n, answers, columns)."""
        reduced = self.regression.reduced(table.features(self.kinds))
        coefficients = self.regression.coefficients - self.regression.coefficients.mean(axis=0)
        found: np.ndarray = reduced[:, None, :] * coefficients[None, :, :]
        return found

    def interval(self, table: EvidenceTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of two answers, the probability of the second and the limits of its interval, (n,) each."""
        values = table.features(self.kinds)
        logits = self.regression.logits(values)
        odds = logits[:, 1] - logits[:, 0]
        reach = normal_quantile(_LEVEL) * self.regression.spread(values)
        return _sigmoid(odds), _sigmoid(odds - reach), _sigmoid(odds + reach)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found


def learn(table: EvidenceTable, answers: Sequence[str], *, seed: int = 0) -> Learned:
    """Learn from the judged answer to each mistake of ``table``, such as its category."""
    from heldout.measure.mistakes.logistic import fit_logistic
    from heldout.stats.agreement import cohen_kappa

    counts = Counter(answers)
    common = tuple(sorted(answer for answer, n in counts.items() if n >= FEWEST))
    if len(common) < 2 or not table.columns:
        raise NotApplicable(
            f"nothing can be learned from {len(answers)} judged mistakes: two categories of at "
            f"least {FEWEST} are needed",
            fix="judge more mistakes, or go by rules",
        )
    rows = [row for row, answer in enumerate(answers) if answer in common]
    mine = [answers[row] for row in rows]
    codes = np.array([common.index(answer) for answer in mine])
    values = table.features()[rows]
    prior = np.bincount(codes) / len(codes)
    images = [table.mistakes.image_ids[row] for row in rows]
    folds = grouped_folds(images, mine, FOLDS, rng=np.random.default_rng(seed))
    ridge, guessed = _tuned_ridge(values, codes, len(common), folds)
    kappas = [cohen_kappa((guessed / prior**balance).argmax(axis=1), codes) for balance in BALANCES]
    return Learned(
        answers=common,
        kinds=tuple(table.columns),
        regression=fit_logistic(values, codes, len(common), ridge=ridge),
        prior=prior,
        balance=BALANCES[int(np.argmax(kappas))],
    )


def _tuned_ridge(
    values: np.ndarray, codes: np.ndarray, categories: int, folds: np.ndarray
) -> tuple[float, np.ndarray]:
    """The ridge of least log-loss outside the training folds, and its probabilities there (n, k).

    Of equal ones the strongest.
    """
    from heldout.measure.mistakes.logistic import fit_logistic

    losses, outside = [], []
    for ridge in RIDGES:
        guessed = np.empty((len(codes), categories))
        for fold in np.unique(folds).tolist():
            out = folds == fold
            fitted = fit_logistic(values[~out], codes[~out], categories, ridge=ridge)
            guessed[out] = fitted.probabilities(values[out])
        losses.append(-np.log(np.maximum(guessed[np.arange(len(codes)), codes], 1e-12)).mean())
        outside.append(guessed)
    best = int(np.argmin(losses))
    return RIDGES[best], outside[best]


MAJOR, MINOR = SEVERITIES[0], SEVERITIES[1]
_LESS = "Less than Major"  # sorts before Major, so that the second answer is the worse
_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Lessons:
    """What judged mistakes teach: categories, and whether they are Major where it can be learned."""

    categories: Learned
    severity: Learned | None = None


def lessons_from(
    table: EvidenceTable, verdicts: Mapping[Key, tuple[str, str]], *, seed: int = 0
) -> Lessons:
    """What can be learned from judged mistakes.

    ``verdicts`` are category and severity by (image, prediction); mistakes of ``table`` that are not
    among them are passed over. Severity is left out where too few are of either kind.
    """
    judged = table.take([row for row, key in enumerate(table.mistakes.keys) if key in verdicts])
    answers = [verdicts[key] for key in judged.mistakes.keys]
    categories = learn(judged, [category for category, _ in answers], seed=seed)
    try:
        severity = learn(judged, major_or_less([severity for _, severity in answers]), seed=seed)
    except NotApplicable:
        severity = None
    return Lessons(categories, severity)


def major_or_less(severities: Sequence[str]) -> list[str]:
    """Severities as two answers; Borderline counts with Minor."""
    return [MAJOR if severity == MAJOR else _LESS for severity in severities]


def suggested(low: float, high: float) -> str | None:
    """What to suggest: a severity where the interval leaves no doubt, else None."""
    if low > 0.5:
        return MAJOR
    return MINOR if high < 0.5 else None


def decided(verdicts: Mapping[Key, tuple[str, str]]) -> dict[Key, tuple[str, str]]:
    """Verdicts that name a category and a severity; those that reviewers did not agree on are out."""
    return {
        key: (category, severity)
        for key, (category, severity) in sorted(verdicts.items())
        if category in CATEGORIES and severity in SEVERITIES
    }


_LEAST_AFFINITY = 0.005
_TEXTS = {
    "lca_size": "{pair} stand under {node}, with {n} of {classes} classes",
    "path_distance": "{n} steps lie between {pair} in the hierarchy",
    "same_superclass": "{pair} are both {group}",
    "affinity": "models that guess the rarer of {pair} guess the other too: {value:.0%} beyond chance",
    "cooccurrence": "{n} other images show {prediction} together with {label}",
    "cooccurrence_share": "{value:.0%} of what is seen beside the rarer of {pair} is the other",
    "labels": "the image has {n} right {labels}",
    "peers_right": "{value:.0%} of other models are right on this image",
    "peers_same": "{value:.0%} of other models make the same mistake",
    "peers_listed": "{value:.0%} of other models have {prediction} among their best {ranks}",
    "peers_spread": "{models} models give about {answers} different answers",
    "typicality": "the image is more typical of its class than {value:.0%} of images",
    "outside_share": "{value:.0%} of the image-text similarity is with things that are not classes"
    "{most}",
}


class Wording:
    """Says what an evidence table knows of a mistake."""

    def __init__(self, table: EvidenceTable) -> None:
        self.table = table
        space = table.knowledge.space
        counts = Counter(item.name for item in space)
        # A class as people call it, with its id where others share the name.
        self._names = [
            f"{item.name} ({item.id})" if counts[item.name] > 1 else item.name for item in space
        ]

    def say(self, kind: str, row: int) -> Evidence | None:
        """One kind of evidence about the mistake in a row; None where it is not known."""
        table, knowledge = self.table, self.table.knowledge
        known = table.columns.get(kind)
        if known is None or np.isnan(known[row]):
            return None
        value = float(known[row])
        # 0 % beyond chance, or a node that holds most classes, does not explain a mistake.
        if (
            value < _LEAST_AFFINITY
            if kind == "affinity"
            else (kind == "lca_size" and value > len(self._names) / 2)
        ):
            return None
        prediction = self._names[table.mistakes.predictions[row]]
        label = self._names[table.nearest[kind][row]] if kind in table.nearest else ""
        said: dict[str, object] = {
            "value": value,
            "n": int(value),
            "prediction": prediction,
            "label": label,
            "pair": f"{prediction} and {label}",
            "classes": len(self._names),
            "labels": "label" if value == 1 else "labels",
        }
        text = _TEXTS.get(kind, "")
        if kind == "lca_size" and knowledge.closeness is not None:
            node = knowledge.closeness.node(int(table.nodes[row])) if table.nodes[row] >= 0 else ""
            said["node"] = knowledge.node_names.get(node, node)
            text = text if node else "{pair} have no common ancestor"
        elif kind == "same_superclass" and knowledge.superclasses is not None:
            said["group"] = list(knowledge.superclasses.groups)[table.groups[row]]
            if table.groups[row] < 0:
                text = "no superclass holds {prediction} and a right label"
        elif kind.startswith("peers_") and knowledge.peers is not None:
            models = len(knowledge.peers.models)
            said |= {"models": models, "answers": round(value * models)}
            said["ranks"] = knowledge.peers.topk.shape[2]
        elif kind == "outside_share":
            best = table.outsiders[row]
            said["most"] = "" if best is None else f", most with {best}"
        return Evidence(kind, text.format(**said), value)

    def same(self, row: int) -> Evidence:
        """That the prediction is not a mistake."""
        mistakes, prediction = self.table.mistakes, self.table.mistakes.predictions[row]
        lists = mistakes.acceptable
        right = lists.values[lists.starts[row] : lists.starts[row + 1]].tolist()
        labels = " or ".join(self._names[label] for label in right)
        text = f"{self._names[prediction]} also counts as right where {labels} does"
        if prediction in right:
            text = f"{self._names[prediction]} is a right label here"
        return Evidence("collapse", text, 1.0)


SHOWN = 4
"""The most evidence that a proposal carries."""
_FACTS = ("affinity", "lca_size", "cooccurrence", "peers_same")


def propose(table: EvidenceTable, lessons: Lessons | None = None) -> tuple[Proposal, ...]:
    """A proposal for each mistake of a table, in their order: by rules, or by what was learned."""
    if not len(table):
        return ()
    if lessons is None:
        names, scores = ORDER, strengths(table)
        chosen = first_that_holds(scores)
    else:
        learned = lessons.categories
        scores = learned.probabilities(table)
        chosen = learned.choose(scores) + 1
        chosen[table.collapsed] = 0
        # What is not a mistake is not a matter of probability: the table says so, or it does not.
        sure = table.collapsed.astype(np.float64)[:, None]
        names, scores = (NO_MISTAKE, *learned.answers), np.hstack([sure, scores * (1 - sure)])
    places = {name: place for place, name in enumerate(names)}
    words, ranked, listed = Wording(table), _ranked(table, lessons, chosen, names), scores.tolist()
    limits: Iterable[tuple[float, float, float]] = ()
    if lessons is not None and lessons.severity is not None:
        limits = zip(*(part.tolist() for part in lessons.severity.interval(table)), strict=True)
    found = []
    for row, (place, severity) in enumerate(zip_longest(chosen.tolist(), limits)):
        if names[place] == NO_MISTAKE:
            evidence = [words.same(row)]
        else:
            said = (words.say(kind, row) for kind in ranked[row] or _FACTS)
            evidence = [item for item in said if item is not None][:SHOWN]
        major, low, high = severity or (None, None, None)
        found.append(
            Proposal(
                *table.mistakes.keys[row],
                names[place],
                None if severity is None else suggested(*severity[1:]),
                major,
                low,
                high,
                "rules" if lessons is None else "learned",
                {name: listed[row][places[name]] if name in places else 0.0 for name in PROPOSABLE},
                tuple(evidence),
            )
        )
    return tuple(found)


def propose_learning(
    table: EvidenceTable,
    judged: EvidenceTable,
    verdicts: Mapping[Key, tuple[str, str]],
    *,
    seed: int = 0,
) -> tuple[Proposal, ...]:
    """Proposals for the mistakes of ``table``, learned from those of ``judged``.

    Nothing is proposed for an image from judgements of the same image: these images are dealt into
    ten folds, and each fold's mistakes are proposed from the other folds.
    """
    known = [(key[0], verdicts[key][0]) for key in judged.mistakes.keys if key in verdicts]
    images, answers = [image for image, _ in known], [answer for _, answer in known]
    lessons = lessons_from(judged, verdicts, seed=seed)
    dealt = grouped_folds(images, answers, OUTER_FOLDS, rng=np.random.default_rng(seed))
    fold_of = dict(zip(images, dealt.tolist(), strict=True))
    folds = np.array([fold_of.get(image, -1) for image in table.mistakes.image_ids], dtype=np.int64)
    found: dict[int, Proposal] = {}
    for fold in np.unique(folds).tolist():
        if fold >= 0:
            others = {key: said for key, said in verdicts.items() if fold_of.get(key[0]) != fold}
            lessons_now = lessons_from(judged, others, seed=seed)
        else:
            lessons_now = lessons
        rows = np.flatnonzero(folds == fold)
        found.update(zip(rows.tolist(), propose(table.take(rows), lessons_now), strict=True))
    return tuple(found[row] for row in range(len(table)))


def _ranked(
    table: EvidenceTable, lessons: Lessons | None, chosen: np.ndarray, names: Sequence[str]
) -> list[tuple[str, ...]]:
    """For each mistake the kinds of evidence that speak for its category, strongest first."""
    if lessons is None:
        known = {
            name: tuple(kind for kind in kinds if kind in table.columns)
            for name, kinds in REASONS.items()
        }
        return [known[names[place]] for place in chosen.tolist()]
    kinds = lessons.categories.kinds
    owner = [kinds.index(kind) for kind in feature_kinds(kinds)]
    pulls = lessons.categories.pulls(table)[np.arange(len(table)), np.maximum(chosen - 1, 0)]
    mine = pulls @ np.eye(len(kinds))[owner]  # a kind may have several columns
    order = np.argsort(-mine, axis=1, kind="stable")
    return [
        tuple(kinds[at] for at in ranks if row[at] > 0)
        for ranks, row in zip(order.tolist(), mine.tolist(), strict=True)
    ]
