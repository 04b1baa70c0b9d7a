"""Categories and severity of mistakes: by rules, or learned from judged ones, with the evidence for each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, NotApplicable, UserError
from heldout.core.files import csv_text, existing_file, write_text
from heldout.data.judgements.judgement import CATEGORIES, SEVERITIES
from heldout.data.judgements.judgement import NO_MISTAKE as NO_MISTAKE
from heldout.data.labels.label_space import LabelSpace
from heldout.measure.mistakes.evidence import EvidenceTable, Knowledge, Outsider, evidence_table
from heldout.measure.mistakes.logistic import Logistic, fit_logistic
from heldout.measure.mistakes.verdicts import Mistake
from heldout.stats.agreement import cohen_kappa
from heldout.stats.intervals import normal_quantile

FINE_GRAINED = "Fine-grained error"
OUT_OF_VOCABULARY = "Fine-grained error with OOV"
NON_PROTOTYPICAL = "Non-prototypical"
SPURIOUS = "Spurious Correlation"
OTHER = "Other"

PROPOSABLE: tuple[str, ...] = (NO_MISTAKE, *CATEGORIES)
"""What a proposal may say: that it is no mistake, or a category that people may answer."""

EXPLAINED: tuple[str, ...] = tuple(name for name in CATEGORIES if name != OTHER)
"""Categories that name a reason; ``Other`` is a failure that nothing explains."""


@dataclass(frozen=True)
class Evidence:
    """One thing that is known about a mistake.

    ``kind``   which one, such as ``affinity`` (the table in docs/mistake-categories.md)
    ``text``   for a person, in a sentence
    ``value``  the number behind it
    """

    kind: str
    text: str
    value: float

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"kind": self.kind, "text": self.text, "value": self.value}


@dataclass(frozen=True)
class Proposal:
    """What kind of mistake a wrong (image, prediction) pair may be, and why.

    ``category``              one of :data:`PROPOSABLE`
    ``severity``              ``Major`` or ``Minor`` where the interval of its probability lies on one
                              side of a half; None where it does not, or nothing was learned
    ``severity_probability``  of ``Major``, with its interval ``severity_low`` to ``severity_high``
    ``evidence``              what speaks for the category, strongest first; where nothing does, what
                              is known
    ``scores``                a number in 0 … 1 for each category. From rules it is the strength of the
                              evidence, a half where the rule just holds; from judged mistakes it is a
                              probability
    ``basis``                 ``rules`` or ``learned``
    """

    image_id: str
    prediction: str
    category: str
    severity: str | None = None
    severity_probability: float | None = None
    severity_low: float | None = None
    severity_high: float | None = None
    evidence: tuple[Evidence, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    basis: str = "rules"

    @property
    def key(self) -> tuple[str, str]:
        """What a judgement of it is keyed by."""
        return self.image_id, self.prediction

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "image_id": self.image_id,
            "prediction": self.prediction,
            "category": self.category,
            "severity": self.severity,
            "severity_probability": self.severity_probability,
            "severity_low": self.severity_low,
            "severity_high": self.severity_high,
            "basis": self.basis,
            "scores": dict(self.scores),
            "evidence": [item.to_dict() for item in self.evidence],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Proposal:
        """The proposal that :meth:`to_dict` wrote."""
        fields = {name: value[name] for name in value if name not in ("record", "evidence")}
        return cls(**fields, evidence=tuple(Evidence(**item) for item in value["evidence"]))


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

    ``lca_size``       at most so many classes under the lowest common ancestor; None:
                       :func:`usual_lca_size` of the label space
    ``affinity``       at least so much
    ``cooccurrence``   at least so many images with both classes
    ``typicality``     among this share of least typical images
    ``outside_share``  at least so much of the image-text similarity on things that are no classes
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


def rule_categories(table: EvidenceTable, rules: Rules | None = None) -> tuple[str, ...]:
    """The category that the rules give each mistake."""
    return tuple(ORDER[place] for place in first_that_holds(strengths(table, rules)).tolist())


def reasons() -> Mapping[str, tuple[str, ...]]:
    """The kinds of evidence that speak for each category, when rules decide."""
    return {
        NO_MISTAKE: ("lca_size",),
        FINE_GRAINED: ("same_superclass", "affinity", "lca_size", "path_distance"),
        OUT_OF_VOCABULARY: ("outside_share",),
        SPURIOUS: ("cooccurrence", "cooccurrence_share"),
        NON_PROTOTYPICAL: ("typicality",),
        OTHER: (),
    }


def grouped_folds(
    images: Sequence[str], answers: Sequence[str], folds: int, *, rng: np.random.Generator
) -> np.ndarray:
    """The fold of each mistake, int64 (n,): all mistakes of one image are in one fold.

    Images are dealt out one by one, those of the rarest answer first, so that every fold gets its
    share of every answer. The order in which mistakes come does not matter.
    """
    if folds < 2:
        raise ValueError("there must be at least two folds")
    count = {answer: answers.count(answer) for answer in set(answers)}
    rarest: dict[str, tuple[int, str]] = {}
    for image, answer in zip(images, answers, strict=True):
        mine = (count[answer], answer)
        rarest[image] = min(rarest.get(image, mine), mine)
    names = sorted(rarest)
    chance = rng.permutation(len(names)).tolist()
    order = sorted(range(len(names)), key=lambda place: (rarest[names[place]], chance[place]))
    fold = {names[place]: dealt % folds for dealt, place in enumerate(order)}
    return np.array([fold[image] for image in images], dtype=np.int64)


RIDGES: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
BALANCES: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
FOLDS = 5
FEWEST = 5
"""A category with fewer judged mistakes is not learned, and never proposed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Learned:
    """What was learned from judged mistakes.

    ``categories``  those that had enough mistakes, sorted
    ``kinds``       the evidence that the columns of ``regression`` stand for
    ``prior``       (categories,): their shares among the judged mistakes
    ``n``           judged mistakes that it was learned from
    """

    categories: tuple[str, ...]
    kinds: tuple[str, ...]
    regression: Logistic
    prior: np.ndarray
    ridge: float
    balance: float
    n: int

    def probabilities(self, table: EvidenceTable) -> np.ndarray:
        """(n, categories), each row summing to one."""
        return self.regression.probabilities(self._values(table))

    def choose(self, probabilities: np.ndarray) -> np.ndarray:
        """The category of each row, as a place in ``categories``; int64 (n,)."""
        return np.asarray((probabilities / self.prior**self.balance).argmax(axis=1))

    def pulls(self, table: EvidenceTable) -> np.ndarray:
        """How far each column moves each category from its average, (n, categories, columns)."""
        reduced = self.regression.reduced(self._values(table))
        coefficients = self.regression.coefficients - self.regression.coefficients.mean(axis=0)
        found: np.ndarray = reduced[:, None, :] * coefficients[None, :, :]
        return found

    def _values(self, table: EvidenceTable) -> np.ndarray:
        kinds, values = table.features()
        return values_for(self.kinds, kinds, values)


def values_for(wanted: Sequence[str], kinds: Sequence[str], values: np.ndarray) -> np.ndarray:
    """Columns for the kinds that were learned from; NaN for one that is not known now."""
    places: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    columns = []
    seen: dict[str, int] = {}
    for kind in wanted:
        turn = seen.get(kind, 0)
        seen[kind] = turn + 1
        if kind in places:
            columns.append(values[:, places[kind][turn]])
        else:
            columns.append(np.full(len(values), np.nan))
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0))


def learn(
    table: EvidenceTable,
    answers: Sequence[str],
    *,
    seed: int = 0,
    ridges: Sequence[float] = RIDGES,
    balances: Sequence[float] = BALANCES,
    folds: int = FOLDS,
) -> Learned:
    """Learn from the judged category of each mistake of ``table``."""
    kinds, values = table.features()
    images = [mistake.image_id for mistake in table.mistakes]
    return learn_from(
        kinds, values, images, answers, seed=seed, ridges=ridges, balances=balances, folds=folds
    )


def learn_from(
    kinds: tuple[str, ...],
    values: np.ndarray,
    images: Sequence[str],
    answers: Sequence[str],
    *,
    seed: int = 0,
    ridges: Sequence[float] = RIDGES,
    balances: Sequence[float] = BALANCES,
    folds: int = FOLDS,
) -> Learned:
    """:func:`learn` from features (n, d) of kinds; ``images`` keep folds apart."""
    counts = {answer: list(answers).count(answer) for answer in sorted(set(answers))}
    categories = tuple(answer for answer, n in counts.items() if n >= FEWEST)
    if len(categories) < 2 or not kinds:
        raise NotApplicable(
            f"categories cannot be learned from {len(answers)} judged mistakes: two categories of at "
            f"least {FEWEST} are needed",
            fix="judge more mistakes, or go by rules",
        )
    place = {category: code for code, category in enumerate(categories)}
    kept = np.array([answer in place for answer in answers])
    x = values[kept]
    mine = [answer for answer in answers if answer in place]
    codes = np.array([place[answer] for answer in mine])
    seen = [image for image, keep in zip(images, kept.tolist(), strict=True) if keep]
    prior = np.bincount(codes, minlength=len(categories)) / len(codes)
    parts = grouped_folds(seen, mine, folds, rng=np.random.default_rng(seed))
    ridge, guessed = tuned_ridge(x, codes, len(categories), parts, ridges)
    kappas = [cohen_kappa((guessed / prior**balance).argmax(axis=1), codes) for balance in balances]
    balance = balances[int(np.argmax(kappas))]
    regression = fit_logistic(x, codes, len(categories), ridge=ridge)
    return Learned(
        categories=categories,
        kinds=kinds,
        regression=regression,
        prior=prior,
        ridge=ridge,
        balance=balance,
        n=len(codes),
    )


def tuned_ridge(
    values: np.ndarray,
    codes: np.ndarray,
    categories: int,
    folds: np.ndarray,
    ridges: Sequence[float] = RIDGES,
) -> tuple[float, np.ndarray]:
    """The ridge of least log-loss outside the training folds, and its probabilities there (n, k).

    Of equal ones the strongest.
    """
    best: tuple[float, float, np.ndarray] | None = None
    for ridge in sorted(ridges, reverse=True):
        guessed = np.empty((len(codes), categories))
        for fold in np.unique(folds).tolist():
            out = folds == fold
            fitted = fit_logistic(values[~out], codes[~out], categories, ridge=ridge)
            guessed[out] = fitted.probabilities(values[out])
        loss = float(-np.log(np.maximum(guessed[np.arange(len(codes)), codes], 1e-12)).mean())
        if best is None or loss < best[0]:
            best = (loss, ridge, guessed)
    if best is None:
        raise ValueError("there must be at least one ridge")
    return best[1], best[2]


MAJOR = SEVERITIES[0]
NOT_MAJOR = SEVERITIES[1]
_LEVEL = 0.95


@dataclass(frozen=True, eq=False, kw_only=True)
class SeverityModel:
    """What was learned about severity; ``share`` of the judged mistakes are Major."""

    kinds: tuple[str, ...]
    regression: Logistic
    ridge: float
    share: float
    n: int
    level: float = _LEVEL

    def suggest(self, table: EvidenceTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Probability of Major and the limits of its interval, (n,) each."""
        kinds, values = table.features()
        return self.suggest_from(values_for(self.kinds, kinds, values))

    def suggest_from(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """:meth:`suggest` for features (n, d) of ``kinds``."""
        logits = self.regression.logits(values)
        odds = logits[:, 1] - logits[:, 0]
        reach = normal_quantile(self.level) * self.regression.spread(values, 1)
        return _sigmoid(odds), _sigmoid(odds - reach), _sigmoid(odds + reach)


def learn_severity(
    kinds: tuple[str, ...],
    values: np.ndarray,
    images: Sequence[str],
    severities: Sequence[str],
    *,
    seed: int = 0,
    ridges: Sequence[float] = RIDGES,
    folds: int = FOLDS,
    level: float = _LEVEL,
) -> SeverityModel:
    """Learn from judged severities; Borderline counts with Minor."""
    major = np.array([severity == MAJOR for severity in severities], dtype=np.int64)
    if min(major.sum(), len(major) - major.sum()) < FEWEST or not kinds:
        raise NotApplicable(
            f"severity cannot be learned: {int(major.sum())} of {len(major)} judged mistakes are Major",
            fix=f"judge at least {FEWEST} Major and {FEWEST} other mistakes",
        )
    parts = grouped_folds(
        images, [str(code) for code in major.tolist()], folds, rng=np.random.default_rng(seed)
    )
    ridge, _ = tuned_ridge(values, major, 2, parts, ridges)
    return SeverityModel(
        kinds=kinds,
        regression=fit_logistic(values, major, 2, ridge=ridge),
        ridge=ridge,
        share=float(major.mean()),
        n=len(major),
        level=level,
    )


def suggested(low: float, high: float) -> str | None:
    """What to suggest: a severity where the interval leaves no doubt, else None."""
    if low > 0.5:
        return MAJOR
    return NOT_MAJOR if high < 0.5 else None


def _sigmoid(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = 0.5 * (1.0 + np.tanh(0.5 * values))
    return found


SCHEMA_VERSION = 1
COLUMNS = (
    "image_id",
    "prediction",
    "prediction_name",
    "acceptable",
    "acceptable_names",
    "models",
    "category",
    "severity",
    "severity_probability",
    "severity_low",
    "severity_high",
    "basis",
    *(f"score: {name}" for name in PROPOSABLE),
    "evidence",
)
"""Columns of the table; lists are joined by ``; ``."""


def write_proposals(
    path: Path,
    proposals: Sequence[Proposal],
    *,
    mistakes: Sequence[Mistake],
    label_space: LabelSpace,
) -> None:
    """Write proposals beside their mistakes: ``.jsonl`` holds everything, ``.csv`` is for reading."""
    if path.suffix == ".jsonl":
        lines = [
            json.dumps({"schema_version": SCHEMA_VERSION, **proposal.to_dict()}, ensure_ascii=False)
            for proposal in proposals
        ]
        write_text(path, "".join(f"{line}\n" for line in lines))
        return
    if path.suffix != ".csv":
        raise UserError(f"{path.name} is neither .csv nor .jsonl", fix="name such a file")
    rows = []
    for proposal, mistake in zip(proposals, mistakes, strict=True):
        numbers = (
            proposal.severity_probability,
            proposal.severity_low,
            proposal.severity_high,
        )
        rows.append(
            [
                proposal.image_id,
                proposal.prediction,
                label_space.get(proposal.prediction).name,
                "; ".join(mistake.acceptable),
                "; ".join(label_space.get(label).name for label in mistake.acceptable),
                "; ".join(mistake.models),
                proposal.category,
                proposal.severity or "",
                *("" if number is None else f"{number:.4f}" for number in numbers),
                proposal.basis,
                *(f"{proposal.scores.get(name, 0.0):.4f}" for name in PROPOSABLE),
                "; ".join(item.text for item in proposal.evidence),
            ]
        )
    write_text(path, csv_text(COLUMNS, rows))


def read_proposals(path: Path) -> tuple[Proposal, ...]:
    """The proposals of a ``.jsonl`` file that :func:`write_proposals` wrote."""
    existing_file(path, "file of proposals")
    found = []
    # By newlines alone: ids may hold other characters that end a line in Unicode.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            if value.pop("schema_version") > SCHEMA_VERSION:
                raise BadFile(path, "was written by a newer heldout", fix="upgrade heldout")
            found.append(Proposal.from_dict(value))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadFile(
                path, f"line {number} is no proposal", fix="write it with heldout mistakes propose"
            ) from None
    return tuple(found)


class Wording:
    """Says what an evidence table knows of a mistake."""

    def __init__(self, table: EvidenceTable) -> None:
        self.table = table
        self.space: LabelSpace = table.knowledge.space

    def say(self, kind: str, row: int) -> Evidence | None:
        """One kind of evidence about the mistake in a row; None where it is not known."""
        known = self.table.columns.get(kind)
        if known is None or np.isnan(known[row]):
            return None
        value = float(known[row])
        return Evidence(kind, getattr(self, f"_{kind}")(row, value), value)

    def same(self, row: int) -> Evidence:
        """That the prediction is no mistake."""
        mistake = self.table.mistakes[row]
        labels = " or ".join(self._name(label) for label in mistake.acceptable)
        if mistake.prediction in mistake.acceptable:
            return Evidence("collapse", f"{self._prediction(row)} is a right label here", 1.0)
        text = f"{self._prediction(row)} also counts as right where {labels} does"
        return Evidence("collapse", text, 1.0)

    def class_name(self, position: int) -> str:
        """A class as people call it, with its id where others share the name."""
        item = self.space.classes[position]
        return f"{item.name} ({item.id})" if item.name in self._ambiguous else item.name

    @cached_property
    def _ambiguous(self) -> frozenset[str]:
        counts = Counter(item.name for item in self.space)
        return frozenset(name for name, n in counts.items() if n > 1)

    @cached_property
    def _outsiders(self) -> dict[tuple[str, str], Outsider]:
        known = self.table.knowledge.outsiders
        return {} if known is None else known.best(self.table.mistakes)

    def _name(self, class_id: str) -> str:
        return self.class_name(self.space.index(class_id))

    def _prediction(self, row: int) -> str:
        return self.class_name(int(self.table.predictions[row]))

    def _label(self, kind: str, row: int) -> str:
        return self.class_name(int(self.table.nearest[kind][row]))

    def _lca_size(self, row: int, value: float) -> str:
        pair = f"{self._prediction(row)} and {self._label('lca_size', row)}"
        code, closeness = int(self.table.nodes[row]), self.table.knowledge.closeness
        if code < 0 or closeness is None:
            return f"{pair} have no common ancestor"
        node = closeness.node(code)
        name = self.table.knowledge.node_names.get(node, node)
        return f"{pair} stand under {name}, with {int(value)} of {len(self.space)} classes"

    def _path_distance(self, row: int, value: float) -> str:
        label = self._label("path_distance", row)
        return (
            f"{int(value)} steps lie between {self._prediction(row)} and {label} in the hierarchy"
        )

    def _same_superclass(self, row: int, value: float) -> str:
        known, code = self.table.knowledge.superclasses, int(self.table.groups[row])
        if known is None or code < 0:
            return f"no superclass holds {self._prediction(row)} and a right label"
        name = list(known.groups)[code]
        return f"{self._prediction(row)} and {self._label('same_superclass', row)} are both {name}"

    def _affinity(self, row: int, value: float) -> str:
        known = self.table.knowledge.affinity
        pair = f"{self._prediction(row)} and {self._label('affinity', row)}"
        if known is None or known.source == "similarity":
            return f"{pair} have a similarity of {value:.2f}"
        if known.source == "confusions":
            return f"{value:.0%} of the confusions of the rarer of {pair} are with the other"
        return (
            f"models that guess the rarer of {pair} guess the other too: {value:.0%} beyond chance"
        )

    def _cooccurrence(self, row: int, value: float) -> str:
        label = self._label("cooccurrence", row)
        return f"{int(value)} other images show {self._prediction(row)} together with {label}"

    def _cooccurrence_share(self, row: int, value: float) -> str:
        pair = f"{self._prediction(row)} and {self._label('cooccurrence_share', row)}"
        return f"{value:.0%} of what is seen beside the rarer of {pair} is the other"

    def _labels(self, row: int, value: float) -> str:
        return f"the image has {int(value)} right label{'s' if value != 1 else ''}"

    def _peers_right(self, row: int, value: float) -> str:
        return f"{value:.0%} of other models are right on this image"

    def _peers_same(self, row: int, value: float) -> str:
        return f"{value:.0%} of other models make the same mistake"

    def _peers_listed(self, row: int, value: float) -> str:
        best = self.table.knowledge.peers
        ranks = best.topk.shape[2] if best else 0
        return f"{value:.0%} of other models have {self._prediction(row)} among their best {ranks}"

    def _peers_spread(self, row: int, value: float) -> str:
        known = self.table.knowledge.peers
        models = len(known.models) if known else 0
        return f"{models} models give about {round(value * models)} different answers"

    def _typicality(self, row: int, value: float) -> str:
        return f"the image is more typical of its class than {value:.0%} of images"

    def _outside_share(self, row: int, value: float) -> str:
        mistake = self.table.mistakes[row]
        best = self._outsiders.get((mistake.image_id, mistake.prediction))
        text = f"{value:.0%} of the image-text similarity is with things that are no classes"
        return text if best is None else f"{text}, most with {best.name}"


Key = tuple[str, str]
SHOWN = 4
_FACTS = ("affinity", "lca_size", "cooccurrence", "peers_same")


@dataclass(frozen=True, eq=False)
class Lessons:
    """What judged mistakes teach: categories, and severity where it can be learned."""

    categories: Learned
    severity: SeverityModel | None = None


def propose(
    mistakes: Sequence[Mistake],
    knowledge: Knowledge,
    *,
    lessons: Lessons | None = None,
    rules: Rules | None = None,
    shown: int = SHOWN,
) -> tuple[Proposal, ...]:
    """A proposal for each mistake, in their order; ``shown`` is the most evidence each carries."""
    return propose_from(evidence_table(mistakes, knowledge), lessons, rules=rules, shown=shown)


def propose_from(
    table: EvidenceTable,
    lessons: Lessons | None = None,
    *,
    rules: Rules | None = None,
    shown: int = SHOWN,
) -> tuple[Proposal, ...]:
    """:func:`propose` from evidence that is at hand."""
    if not len(table):
        return ()
    if lessons is None:
        names, scores = ORDER, strengths(table, rules)
        chosen = first_that_holds(scores)
    else:
        learned = lessons.categories
        scores = learned.probabilities(table)
        chosen = learned.choose(scores) + 1
        chosen[table.collapsed] = 0
        # What is no mistake is not a matter of probability: the table says so, or it does not.
        sure = table.collapsed.astype(np.float64)[:, None]
        names, scores = (NO_MISTAKE, *learned.categories), np.hstack([sure, scores * (1 - sure)])
    order = [names.index(name) if name in names else -1 for name in PROPOSABLE]
    words = Wording(table)
    ranked = _ranked(table, lessons, chosen, names)
    severity = None if lessons is None else lessons.severity
    limits = None if severity is None else [part.tolist() for part in severity.suggest(table)]
    listed = scores.tolist()
    proposals = []
    for row, place in enumerate(chosen.tolist()):
        mistake, mine = table.mistakes[row], listed[row]
        major, low, high = (None, None, None) if limits is None else (part[row] for part in limits)
        proposals.append(
            Proposal(
                image_id=mistake.image_id,
                prediction=mistake.prediction,
                category=names[place],
                severity=None if low is None or high is None else suggested(low, high),
                severity_probability=major,
                severity_low=low,
                severity_high=high,
                evidence=_evidence(words, row, names[place], ranked[row], shown),
                scores={
                    name: 0.0 if at < 0 else mine[at]
                    for name, at in zip(PROPOSABLE, order, strict=True)
                },
                basis="rules" if lessons is None else "learned",
            )
        )
    return tuple(proposals)


def lessons_from(
    table: EvidenceTable, verdicts: Mapping[Key, tuple[str, str]], *, seed: int = 0
) -> Lessons:
    """What can be learned from judged mistakes.

    ``verdicts`` are category and severity by (image, prediction); mistakes of ``table`` that are not
    among them are passed over. Severity is left out where too few are of either kind.
    """
    rows = [
        row
        for row, mistake in enumerate(table.mistakes)
        if (mistake.image_id, mistake.prediction) in verdicts
    ]
    judged = rows_of_table(table, rows)
    answers = [verdicts[mistake.image_id, mistake.prediction] for mistake in judged.mistakes]
    kinds, values = judged.features()
    images = [mistake.image_id for mistake in judged.mistakes]
    categories = learn(judged, [category for category, _ in answers], seed=seed)
    try:
        severity = learn_severity(
            kinds, values, images, [severity for _, severity in answers], seed=seed
        )
    except NotApplicable:
        return Lessons(categories)
    return Lessons(categories, severity)


def propose_learning(
    table: EvidenceTable,
    judged: EvidenceTable,
    verdicts: Mapping[Key, tuple[str, str]],
    *,
    folds: int = 10,
    seed: int = 0,
    shown: int = SHOWN,
) -> tuple[Proposal, ...]:
    """Proposals for the mistakes of ``table``, learned from those of ``judged``.

    Nothing is proposed for an image from judgements of the same image: these images are dealt into
    folds, and each fold's mistakes are proposed from the other folds.
    """
    known = [
        (mistake.image_id, verdicts[mistake.image_id, mistake.prediction][0])
        for mistake in judged.mistakes
        if (mistake.image_id, mistake.prediction) in verdicts
    ]
    lessons = lessons_from(judged, verdicts, seed=seed)
    mine = {mistake.image_id for mistake in table.mistakes}
    if mine.isdisjoint(image for image, _ in known):
        return propose_from(table, lessons, shown=shown)
    parts = grouped_folds(
        [image for image, _ in known],
        [answer for _, answer in known],
        folds,
        rng=np.random.default_rng(seed),
    )
    fold_of = {image: fold for (image, _), fold in zip(known, parts.tolist(), strict=True)}
    places = [fold_of.get(mistake.image_id, -1) for mistake in table.mistakes]
    found: list[Proposal | None] = [None] * len(table)
    for fold in sorted(set(places)):
        rows = [row for row, place in enumerate(places) if place == fold]
        if fold >= 0:
            others = {
                key: answer for key, answer in verdicts.items() if fold_of.get(key[0]) != fold
            }
            lessons_now = lessons_from(judged, others, seed=seed)
        else:
            lessons_now = lessons
        proposed = propose_from(rows_of_table(table, rows), lessons_now, shown=shown)
        for row, proposal in zip(rows, proposed, strict=True):
            found[row] = proposal
    return tuple(proposal for proposal in found if proposal is not None)


def decided(verdicts: Mapping[Key, tuple[str, str]]) -> dict[Key, tuple[str, str]]:
    """Verdicts that name a category and a severity; those that reviewers did not agree on are out."""
    return {
        key: (category, severity)
        for key, (category, severity) in sorted(verdicts.items())
        if category in CATEGORIES and severity in SEVERITIES
    }


def rows_of_table(table: EvidenceTable, rows: Sequence[int]) -> EvidenceTable:
    """An evidence table cut to some of its rows, in that order."""
    where = np.asarray(rows, dtype=np.int64)
    return EvidenceTable(
        knowledge=table.knowledge,
        mistakes=tuple(table.mistakes[row] for row in rows),
        predictions=table.predictions[where],
        columns={kind: values[where] for kind, values in table.columns.items()},
        nearest={kind: values[where] for kind, values in table.nearest.items()},
        nodes=table.nodes[where],
        groups=table.groups[where],
        collapsed=table.collapsed[where],
    )


def _ranked(
    table: EvidenceTable, lessons: Lessons | None, chosen: np.ndarray, names: Sequence[str]
) -> list[tuple[str, ...]]:
    """For each mistake the kinds of evidence that speak for its category, strongest first."""
    if lessons is None:
        known = {
            name: tuple(kind for kind in kinds if kind in table.columns)
            for name, kinds in reasons().items()
        }
        return [known[names[place]] for place in chosen.tolist()]
    learned = lessons.categories
    kinds = tuple(dict.fromkeys(learned.kinds))
    joined = np.array([[kind == other for other in kinds] for kind in learned.kinds], dtype=float)
    pulls = learned.pulls(table)
    mine = pulls[np.arange(len(table)), np.maximum(chosen - 1, 0)] @ joined
    order = np.argsort(-mine, axis=1, kind="stable")
    return [
        tuple(kinds[at] for at in ranks if row[at] > 0)
        for ranks, row in zip(order.tolist(), mine.tolist(), strict=True)
    ]


def _evidence(
    words: Wording, row: int, category: str, ranked: Sequence[str], shown: int
) -> tuple[Evidence, ...]:
    if shown < 1:
        return ()
    if category == NO_MISTAKE:
        return (words.same(row),)
    said = [words.say(kind, row) for kind in (ranked or _FACTS)]
    return tuple(item for item in said if item is not None)[:shown]
