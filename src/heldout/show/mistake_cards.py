"""Cards of single mistakes: the image, what it is, what was said, which kind, and on what evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.mistakes.kinds import JUDGED, UNJUDGED, Kind
from heldout.measure.mistakes.mistake import Mistake
from heldout.measure.mistakes.study import Study
from heldout.measure.mistakes.tallying import CATEGORY_ORDER, SEVERITY_ORDER, ordered
from heldout.measure.score.slices import factor_columns, format_value, parse_slice
from heldout.show.thumbnails import thumbnails
from heldout.show.wording import percent

SIDE = 176
MOST = 18
_MOST_EVIDENCE = 3
_MOST_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class MistakeCard:
    """One mistake as a page shows it.

    ``image``       a data URI, or empty where the image is not there
    ``right``       names of the classes that would have been right
    ``predicted``   name of the class that was said
    ``severity``    as judged; empty where nobody has
    ``suggestion``  what is suggested about the severity, in words; empty without any
    ``columns``     values of the columns that the test set varies, in words
    ``models``      who makes it, of ``of_models`` that were looked at
    ``aside``       anything else to say, such as what another model says of the image
    """

    testset: str
    image_id: str
    image: str = ""
    right: tuple[str, ...]
    predicted: str
    category: str
    severity: str = ""
    basis: str
    suggestion: str = ""
    evidence: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    of_models: int = 1
    aside: str = ""

    @property
    def alt(self) -> str:
        """The card's image in words."""
        return f"{self.image_id}: {', '.join(self.right)}, taken for {self.predicted}"


def gallery(study: Study, *, most: int = MOST, with_images: bool = True) -> list[MistakeCard]:
    """Mistakes worth looking at first, evenly over categories, with their images where present.

    In a category: judged before proposed, Major before Minor, then those that most models make.
    """
    chosen = spread(study, study.mistakes, most=most)
    return cards(study, chosen, with_images=with_images)


def spread(study: Study, mistakes: Iterable[Mistake], *, most: int) -> list[Mistake]:
    """At most ``most`` of some mistakes, in turns over their categories; sorted by category.

    In a category every confusion comes once before any comes twice.
    """
    ranked = sorted(mistakes, key=lambda m: _rank(study, m))
    seen: Counter[tuple[str, ...]] = Counter()
    turns: list[tuple[int, Mistake]] = []
    for mistake in ranked:
        pair = (*mistake.acceptable[:1], mistake.prediction)
        turns.append((seen[pair], mistake))
        seen[pair] += 1
    by_category: dict[str, list[Mistake]] = {}
    for _, mistake in sorted(turns, key=lambda turn: turn[0]):  # stable: else as ranked
        by_category.setdefault(_kind(study, mistake).category, []).append(mistake)
    names = ordered(set(by_category), CATEGORY_ORDER)
    taken: dict[str, int] = dict.fromkeys(names, 0)
    left = most
    while left and any(taken[name] < len(by_category[name]) for name in names):
        for name in names:
            if left and taken[name] < len(by_category[name]):
                taken[name] += 1
                left -= 1
    return [mistake for name in names for mistake in by_category[name][: taken[name]]]


def cards(
    study: Study, mistakes: Sequence[Mistake], *, with_images: bool = True
) -> list[MistakeCard]:
    """A card for each mistake, in the order given."""
    testset = study.verdicts.testset
    small = (
        thumbnails(testset, [mistake.image_id for mistake in mistakes], side=SIDE)
        if with_images
        else {}
    )
    columns = _columns(testset, [mistake.image_id for mistake in mistakes])
    space = study.verdicts.truth.space
    return [
        replace(
            _card(mistake, _kind(study, mistake), space),
            testset=testset.name,
            image=small.get(mistake.image_id, ""),
            columns=columns.get(mistake.image_id, ()),
            of_models=len(study.verdicts.models),
        )
        for mistake in mistakes
    ]


def _card(mistake: Mistake, kind: Kind, space: LabelSpace) -> MistakeCard:
    suggestion = ""
    if kind.major is not None:
        value, low, high = kind.major
        suggestion = f"Major with {percent(value, digits=0)} % ({percent(low, digits=0)}–"
        suggestion += f"{percent(high, digits=0)})"
    return MistakeCard(
        testset="",
        image_id=mistake.image_id,
        right=tuple(class_text(space, one) for one in mistake.acceptable[:_MOST_NAMES]),
        predicted=class_text(space, mistake.prediction),
        category=kind.category,
        severity="" if kind.severity == UNJUDGED else kind.severity,
        basis=kind.basis,
        suggestion=suggestion,
        evidence=tuple(item.text for item in kind.evidence[:_MOST_EVIDENCE]),
        models=mistake.models,
    )


def class_text(space: LabelSpace, class_id: str) -> str:
    """A class as a person reads it; with its id where another has the same name."""
    item = space.classes[space.index(class_id)]
    shared = sum(other.name == item.name for other in space.classes) > 1
    return f"{item.name} ({class_id})" if shared else item.name


def _kind(study: Study, mistake: Mistake) -> Kind:
    return study.kinds[mistake.image_id, mistake.prediction]


def _rank(study: Study, mistake: Mistake) -> tuple[bool, int, float, int, str, str]:
    kind = _kind(study, mistake)
    severity = SEVERITY_ORDER.index(kind.severity) if kind.severity in SEVERITY_ORDER else 9
    major = 0.0 if kind.major is None else kind.major[0]
    return (
        kind.basis != JUDGED,
        severity,
        -major,
        -len(mistake.models),
        mistake.image_id,
        mistake.prediction,
    )


def _columns(testset: TestSet, image_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By image: its values of the columns that the set declares as its factors, in words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    given = [c for entry in testset.card.factors for c in factor_columns(testset, entry)]
    ids = testset.image_ids.to_pylist()
    rows = {image: row for row, image in enumerate(ids)}
    wanted = [image for image in dict.fromkeys(image_ids) if image in rows]
    table = testset.images.take(pa.array([rows[image] for image in wanted], pa.int64()))
    mine = pc.is_in(testset.memberships["image_id"], value_set=pa.array(wanted, pa.string()))
    members = testset.memberships.filter(mine).to_pylist()
    found: dict[str, dict[str, list[str]]] = {image: {} for image in wanted}
    for name in dict.fromkeys(given):
        if name in table.column_names:
            for image, value in zip(wanted, table[name].to_pylist(), strict=True):
                if value is not None and value == value:
                    text = parse_slice(f"v={format_value(value)}")["v"]
                    found[image].setdefault(name, []).append(text)
        for row in members:
            if row["column"] == name:
                found[row["image_id"]].setdefault(name, []).append(str(row["value"]))
    return {
        image: tuple(f"{name} {_short(texts)}" for name, texts in by_name.items())
        for image, by_name in found.items()
    }


def _short(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_NAMES
    return ", ".join(texts[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
