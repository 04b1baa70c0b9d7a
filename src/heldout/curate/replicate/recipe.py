"""The recipe: candidates with votes in, a test set drawn by selection frequency out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from heldout.core.engine import Progress, no_progress
from heldout.core.errors import NotApplicable, UserError
from heldout.core.files import canonical_json, csv_text
from heldout.core.request import RequestError
from heldout.curate.crowd.stopping import BINS, USUAL_VOTES, State, StoppingRules
from heldout.curate.recipe import (
    BuildContext,
    Guarantees,
    Recipe,
    RecipeInput,
    RecipeResult,
    Sources,
    TruthTable,
    pool_in,
)
from heldout.curate.replicate.requests import ReplicateParameters
from heldout.curate.replicate.samplers import ClassDraw, Rule, Sample, VotedCandidate, sample
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.neighbours import Neighbours
from heldout.data.judgements.resolution import resolved_duplicates
from heldout.data.judgements.workers import (
    SelectionFrequency,
    counted_votes,
    selection_frequency,
)
from heldout.data.published.imagenetv2 import part_of
from heldout.data.published.imagenetv2_revisions import (
    FILE,
    FLAGS,
    REVIEW_FILE,
    ClassReview,
    Revision,
    carried_reviews,
    images_by_class,
    reviews_json,
)
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import membership_schema, truth_table
from heldout.data.testset.testset import TestSet

if TYPE_CHECKING:
    import pyarrow as pa

EXCLUDED = "excluded.csv"
"""The document that has the reason against every candidate that may not be drawn."""
FREQUENCY, VOTES, LOW, HIGH = "frequency", "votes", "frequency_low", "frequency_high"
"""Columns of the set: how often an image is selected, how many votes, and the interval."""

_STAGES = {
    "blacklisted": "not_blacklisted",
    "few_votes": "with_votes",
    "below_threshold": "at_threshold",
    "near_duplicate": "not_near_duplicate",
    "unreviewed": "eligible",
}
_PUBLISHED_NAMES = {
    "threshold": "sample_above_threshold",
    "matched": "sample_wnid_histogram",
    "top": "sample_best",
    "random": "sample_val_dummy",
    "annotated": "sample_val_annotated",
}


@dataclass(frozen=True)
class Exclusions:
    """What keeps candidates out: reviews and verdicts on near duplicates, and saved searches."""

    judgements: tuple[Judgement, ...]
    searches: tuple[Neighbours, ...]


@dataclass(frozen=True)
class Previous:
    """The revision before: (image, class) in the order of its list, and reviews of its classes."""

    rows: tuple[tuple[str, str], ...]
    file: str
    reviews: Mapping[str, ClassReview]

    @property
    def by_class(self) -> dict[str, list[str]]:
        """Class -> its images."""
        found: dict[str, list[str]] = {}
        for image, label in self.rows:
            found.setdefault(label, []).append(image)
        return found


def votes_source(votes: Iterable[Judgement]) -> RecipeInput:
    """Votes as a source; each once, whatever their order."""
    given = {vote.judgement_id: vote for vote in votes}
    ids = sorted(given)
    return RecipeInput("votes", _digest(ids), tuple(given[key] for key in ids), len(ids))


def exclusions_source(
    judgements: Iterable[Judgement], searches: Sequence[Neighbours] = ()
) -> RecipeInput:
    """Judgements that stand of the questions review and duplicate, and searches, as a source."""
    given = {one.judgement_id: one for one in judgements}
    ids = sorted(given)
    heads = sorted(
        canonical_json({k: v for k, v in search.search.items() if k != "files"})
        for search in searches
    )
    value = Exclusions(tuple(given[key] for key in ids), tuple(searches))
    return RecipeInput("exclusions", _digest([*ids, *heads]), value, len(ids))


def previous_source(
    rows: Sequence[tuple[str, str]],
    *,
    name: str,
    file: str,
    reviews: Mapping[str, ClassReview] | None = None,
) -> RecipeInput:
    """An earlier revision as a source; the order of its rows belongs to it."""
    marks = sorted((reviews or {}).items())
    digest = _digest([canonical_json([rows, marks])])
    return RecipeInput(name, digest, Previous(tuple(rows), file, dict(marks)), len(rows))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn, and what it rests on.

    ``votes``        votes that a candidate needed; ``people`` how many people voted
    ``controls``     test set of a grid's controls, or none -> how many grids say so
    ``rules``        when asking about an image stopped, if not with all votes
    ``frequencies``  (image, class) -> what people said
    ``targets``      by measure: down to which distance neighbours had to be looked at
    ``judged_pairs`` pairs of images that somebody judged
    """

    sample: Sample
    votes: int
    people: int
    controls: Mapping[str, int]
    rules: StoppingRules | None
    frequencies: Mapping[tuple[str, str], SelectionFrequency]
    targets: Mapping[str, float]
    measures: tuple[str, ...]
    judged_pairs: int
    previous: Previous | None

    def estimate(
        self, said: SelectionFrequency | None
    ) -> tuple[float | None, float | None, float | None]:
        """How often an image is selected, and the interval: unbiased if asking stopped by a rule."""
        if said is None:
            return None, None, None
        if self.rules is not None:
            rule, state = self.rules.of(said.class_id), _state(said)
            if (interval := rule.interval(state)) is not None:
                return rule.estimate(state), *interval
        return said.frequency, said.low, said.high

    @property
    def stages(self) -> dict[str, int]:
        """How many candidates are left after each reason."""
        excluded = self.sample.reasons
        left = sum(drawn.eligible for drawn in self.sample.classes) + sum(excluded.values())
        found = {"candidates": left}
        for reason, stage in _STAGES.items():
            left -= excluded[reason]  # type: ignore[index]
            found[stage] = left
        return found


class ReplicateRecipe(Recipe):
    """Images of a pool, drawn by class by how often people selected them."""

    name = "replicate"
    version = "1"
    parameters = ReplicateParameters
    roles = ("pool", "votes", "exclusions", "originals", "previous")
    optional = ("originals", "previous")
    guarantees = Guarantees(selects=True)

    def plan(
        self,
        sources: Sources,
        parameters: ReplicateParameters,
        *,
        seed: int = 0,
        progress: Progress = no_progress,
    ) -> Drawn:
        """What would be drawn; nothing is written."""
        return draw(sources, parameters, seed=seed)

    def build(
        self, sources: Sources, parameters: ReplicateParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """The rows of the set, its revision in the published form, and why others are not in it."""
        drawn = draw(sources, parameters, seed=seed)
        if not drawn.sample.rows:
            said = ", ".join(f"{n:,} {_words(name)}" for name, n in drawn.stages.items())
            raise NotApplicable(
                f"no candidate of {sources['pool'].name} may be drawn: {said}",
                fix="collect more candidates or votes, or ask for less (--votes, --min-frequency)",
            )
        return _built(pool_in(sources), drawn, parameters, seed)


def draw(sources: Sources, parameters: ReplicateParameters, *, seed: int) -> Drawn:
    """Draw from sources: see :class:`ReplicateRecipe`."""
    pool = pool_in(sources)
    votes = counted_votes(_value(sources, "votes", tuple))
    frequencies = {(one.image_id, one.class_id): one for one in selection_frequency(votes)}
    people = len({vote.who for vote in votes})
    needed = _votes_needed(parameters, people)
    rules = parameters.stopping(needed)

    def settled(said: SelectionFrequency | None) -> bool:
        return bool(rules and said and rules.of(said.class_id).settled(_state(said)))

    exclusions = _value(sources, "exclusions", Exclusions)
    classes = _classes(pool)
    previous = _value(sources, "previous", Previous) if "previous" in sources else None
    blacklist = {
        given.subject["image_id"]
        for given in exclusions.judgements
        if given.answer == "blacklisted"
    }
    originals = pool_in(sources, "originals") if "originals" in sources else None
    theirs = {} if originals is None else originals.file_hashes

    def elsewhere(image: str) -> str:
        if originals is not None and image in theirs:
            return originals.name
        part = part_of(image)  # published verdicts name images of ImageNet
        return "" if part == "candidate" else part

    known = resolved_duplicates(
        pool,
        exclusions.searches,
        exclusions.judgements,
        frequencies={
            image: frequencies[image, label].frequency
            for image, label in classes.items()
            if (image, label) in frequencies
        }
        or None,
        photo=parameters.photo,
        elsewhere=elsewhere,
    )
    unreviewed = known.unreviewed(list(classes))
    candidates: dict[str, list[VotedCandidate]] = {label: [] for label in classes.values()}
    for listed in (originals and images_by_class(originals), previous and previous.by_class):
        for label in listed or ():
            candidates.setdefault(label, [])
    _check_classes(candidates, parameters)
    for image, label in classes.items():
        said = frequencies.get((image, label))
        candidates[label].append(
            VotedCandidate(
                image_id=image,
                frequency=0.0 if said is None else said.frequency,
                votes=0 if said is None else said.n,
                settled=settled(said),
                blacklisted=image in blacklist,
                near_duplicate=image in known.graph.removed,
                unreviewed=image in unreviewed,
            )
        )
    like = None
    if originals is not None:
        enough = {key: f for key, f in frequencies.items() if f.n >= needed or settled(f)}
        like = _like(originals, enough)
    if parameters.sampler == "matched" and originals is not None and not any((like or {}).values()):
        raise NotApplicable(
            f"no image of {originals.name} has {needed} votes, so there is nothing to match",
            fix="show them in grids, as controls, or ask for fewer --votes",
        )
    made = sample(
        candidates,
        Rule(
            sampler=parameters.sampler,
            per_class=parameters.per_class,
            votes=needed,
            threshold=parameters.threshold,
            thresholds=parameters.thresholds,
            upward=parameters.upward,
        ),
        seed=seed,
        previous=None if previous is None else previous.by_class,
        originals=like,
        legacy=parameters.legacy,
    )
    limits = {search.label: search.search["threshold"] for search in exclusions.searches}
    return Drawn(
        sample=made,
        votes=needed,
        people=people,
        controls=_controls(votes),
        rules=rules,
        frequencies=frequencies,
        targets={name: limit for name, limit in sorted(limits.items()) if limit is not None},
        measures=tuple(sorted(limits)),
        judged_pairs=len(known.verdicts),
        previous=previous,
    )


def _controls(votes: Iterable[Judgement]) -> dict[str, int]:
    """Where controls were from -> grids; votes that were not asked for in grids say nothing."""
    grids = {
        str(vote.evidence["grid"]): str(vote.evidence["controls"])
        for vote in votes
        if {"grid", "controls"} <= vote.evidence.keys()
    }
    return dict(sorted(Counter(grids.values()).items()))


def _value(sources: Sources, role: str, kind: type[Any]) -> Any:
    source = sources[role]
    if not isinstance(source, RecipeInput) or not isinstance(source.value, kind):
        raise UserError(f"{source.name} are not {role}", fix=f"make them with {role}_source")
    return source.value


def _votes_needed(parameters: ReplicateParameters, people: int) -> int:
    """The votes that a candidate needs: never more than there are people."""
    if parameters.sampler == "random":
        return 0
    if not people:
        raise NotApplicable(
            "nobody has voted on these images",
            fix="import votes with heldout import judgements, or use --sampler random",
        )
    if parameters.votes is not None and parameters.votes > people:
        raise NotApplicable(
            f"{parameters.votes} votes of a candidate, and {people} people voted",
            fix=f"ask for at most {people}",
        )
    return parameters.votes or min(USUAL_VOTES, people)


def _classes(pool: TestSet) -> dict[str, str]:
    """Candidate -> its class. An image of several classes is refused; one of none is left out."""
    truth = pool.truth()
    found: dict[str, str] = {}
    for image, label in zip(
        truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True
    ):
        if label is None:
            continue
        if found.setdefault(image, label) != label:
            raise UserError(
                f"image {image!r} of {pool.name} has several classes",
                fix="list the photo once for each class, under ids of their own",
            )
    return found


def _check_classes(known: Mapping[str, Any], parameters: ReplicateParameters) -> None:
    foreign = sorted(set(parameters.thresholds) - known.keys())
    if foreign:
        raise RequestError(
            f"no candidate is of class {foreign[0]!r}",
            fix="correct {thresholds}, or leave it out",
        )


def _like(
    originals: TestSet, frequencies: Mapping[tuple[str, str], SelectionFrequency]
) -> dict[str, list[float]]:
    """Class -> the frequencies of its images in the original set."""
    found: dict[str, list[float]] = {}
    for label, images in images_by_class(originals).items():
        said = (frequencies.get((image, label)) for image in images)
        found[label] = [one.frequency for one in said if one is not None]
    return found


def _state(said: SelectionFrequency) -> State:
    return said.n - said.selected, said.selected


def _words(name: str) -> str:
    return name.replace("_", " ")


def _built(pool: TestSet, drawn: Drawn, parameters: ReplicateParameters, seed: int) -> RecipeResult:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = drawn.sample.rows
    ids = [image for image, _ in rows]
    classes = dict(rows)
    wanted = pa.array(ids, pa.string())

    def kept(table: Any) -> Any:
        return table.filter(pc.is_in(table["image_id"], value_set=wanted))

    after: dict[str, list[str]] = {}
    for image, label in rows:
        after.setdefault(label, []).append(image)
    reviews: dict[str, ClassReview] = {}
    if drawn.previous is not None and drawn.previous.reviews:
        reviews = carried_reviews(drawn.previous.reviews, drawn.previous.by_class, after)
    images = _with_columns(kept(pool.images), classes, drawn, reviews)
    documents = {
        FILE: _revision(drawn, parameters, seed).to_json(),
        EXCLUDED: csv_text(
            ("image_id", "class_id", "reason"),
            [
                (image, one.class_id, reason)
                for one in drawn.sample.classes
                for image, reason in one.excluded.items()
            ],
        ),
    }
    if reviews:
        documents[REVIEW_FILE] = reviews_json(reviews)
    provenance = pool.card.truths.get(pool.card.default_truth, {})
    return RecipeResult(
        images=images,
        label_space=pool.label_space,
        truths={
            pool.card.default_truth: TruthTable(
                table=truth_table(ids, [label for _, label in rows]),
                provenance={"kind": provenance.get("kind", "single"), "source": pool.name},
            )
        },
        memberships=kept(pool.memberships).select(membership_schema().names),
        columns={
            FREQUENCY: ColumnType(kind="ordered"),
            **{name: ColumnType(kind="ordered") for name in (VOTES, LOW, HIGH)},
            **({name: ColumnType(kind="categorical") for name in FLAGS} if reviews else {}),
        },
        counts=drawn.stages,
        documents={name: text.encode() for name, text in documents.items()},
        clusters=pool.card.clusters,
        citation=pool.card.citation,
        notes=tuple(notes(drawn, parameters)),
        report=drawn,
    )


def _with_columns(
    images: pa.Table,
    classes: Mapping[str, str],
    drawn: Drawn,
    reviews: Mapping[str, ClassReview],
) -> pa.Table:
    """The images with what people said of them; columns of these names in the pool are replaced."""
    import pyarrow as pa

    said = [
        drawn.frequencies.get((image, classes[image])) for image in images["image_id"].to_pylist()
    ]
    frequency, low, high = zip(*map(drawn.estimate, said), strict=True)
    made: dict[str, pa.Array] = {
        FREQUENCY: pa.array(frequency, pa.float64()),
        VOTES: pa.array([one.n if one else 0 for one in said], pa.int64()),
        LOW: pa.array(low, pa.float64()),
        HIGH: pa.array(high, pa.float64()),
    }
    if reviews:
        marks = [reviews[classes[image]] for image in images["image_id"].to_pylist()]
        made[FLAGS[0]] = pa.array([mark.reviewed for mark in marks])
        made[FLAGS[1]] = pa.array([mark.problematic for mark in marks])
    images = images.drop_columns([n for n in (*made, *FLAGS) if n in images.column_names])
    for name, column in made.items():
        images = images.append_column(name, column)
    return images


def _revision(drawn: Drawn, parameters: ReplicateParameters, seed: int) -> Revision:
    """The set as a published revision; who made it and when is left out, so that it can be repeated."""
    sampler, made = parameters.sampler, drawn.sample
    matched, by_threshold = sampler == "matched", sampler == "threshold"
    voted = sampler in ("threshold", "top", "annotated")
    return Revision(
        sampling_function=_PUBLISHED_NAMES[sampler],
        target_size=parameters.per_class * len(made.classes),
        selection_frequency_threshold=parameters.threshold if by_threshold else UNSET,
        histogram_bins=list(BINS) if matched else UNSET,
        min_num_annotations=drawn.votes if voted else UNSET,
        min_num_annotations_candidates=drawn.votes if matched else UNSET,
        min_num_annotations_val=drawn.votes if matched else UNSET,
        min_num_val_images_per_wnid=2 * parameters.per_class if matched else UNSET,
        near_duplicate_review_targets=dict(drawn.targets),
        seed=seed,
        image_filenames=list(made.rows),
        is_valid=made.is_valid,
        allow_upward_sampling=parameters.upward if matched else UNSET,
        starting_from=UNSET if drawn.previous is None else drawn.previous.file,
        wnid_thresholds=dict(parameters.thresholds) if by_threshold else UNSET,
    )


def notes(drawn: Drawn, parameters: ReplicateParameters) -> list[str]:
    """What the card says of votes, near duplicates, the revision before, and classes that are short."""
    made = drawn.sample
    found = []
    if drawn.votes:
        found.append(
            f"a candidate needed {drawn.votes} votes; {drawn.people:,} people voted on these images"
        )
    if drawn.controls:
        asked = (
            f"{count:,} without controls"
            if name == "none"
            else f"{count:,} with controls of {name}"
            for name, count in drawn.controls.items()
        )
        found.append(f"people answered grids, {' and '.join(asked)}")
    if drawn.rules is not None:
        fewer = sum(drawn.frequencies[row].n < drawn.votes for row in made.rows)
        found.append(
            f"asking about an image stopped by a rule ({fewer:,} of {len(made.rows):,} have fewer "
            f"votes): images were drawn by their share of votes, and the column {FREQUENCY} is "
            "without the bias that stopping gives to it"
        )
    if drawn.measures:
        near = (
            f"{name} (down to {drawn.targets[name]:g})" if name in drawn.targets else name
            for name in drawn.measures
        )
        found.append(
            f"near duplicates were searched for by {', '.join(near)}, and {drawn.judged_pairs:,} "
            "pairs judged; unreviewed means by these measures"
        )
    else:
        found.append(
            f"near duplicates were not searched for ({drawn.judged_pairs:,} pairs judged): no "
            "candidate counts as unreviewed"
        )
    if drawn.previous is not None:
        found.append(_carried(made, drawn.previous))
    if made.few:
        found.append(
            f"{_listed(made.few)}: fewer than {2 * parameters.per_class} images of the original set have "
            f"{drawn.votes} votes"
        )
    if made.short:
        listed = [
            f"{one.class_id} {len(one.images)} of {one.target}{_why(one)}" for one in made.short
        ]
        found.append(f"{len(made.short):,} classes are short: {_listed(listed)}")
    return found


def _carried(made: Sample, previous: Previous) -> str:
    """How many images of the revision before stay, and why the others do not."""
    before = previous.by_class
    lost = Counter[str]()
    for one in made.classes:
        for image in set(before.get(one.class_id, ())) - set(one.carried):
            reason = "not in the pool" if image in one.gone else "not drawn"
            lost[one.excluded.get(image, reason)] += 1
    kept = sum(len(one.carried) for one in made.classes)
    said = ", ".join(f"{n:,} {_words(reason)}" for reason, n in sorted(lost.items()))
    return f"{kept:,} of {len(previous.rows):,} images of {previous.file} stay" + (
        f" ({said})" if said else ""
    )


def _why(drawn: ClassDraw) -> str:
    """Why a class is short: what excludes its candidates, and the bins that lack some."""
    said = [f"{n:,} {_words(reason)}" for reason, n in drawn.reasons.items() if n]
    edges = (0.0, *BINS, 1.0)
    for part, low, high in zip(drawn.bins, edges, edges[1:], strict=False):
        lacking = part.target - len(part.images) - len(part.upward)
        if lacking:
            said.append(f"{lacking:,} missing of frequency {low:g} to {high:g}")
    return f" ({', '.join(said)})" if said else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return "; ".join(names[:5]) + more


recipe = ReplicateRecipe()
