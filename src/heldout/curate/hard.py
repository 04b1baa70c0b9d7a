"""The recipe ``hard``: images of a test set that models get plainly wrong, by a panel's rulings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from heldout.core.context import Context, Result
from heldout.core.engine import Progress, no_progress
from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.core.records import counts as count_records
from heldout.curate.build import build_result, run_recipe
from heldout.curate.recipe import (
    BuildContext,
    Guarantees,
    Recipe,
    RecipeInput,
    RecipeResult,
    Source,
    Sources,
    TruthTable,
    pool_in,
)
from heldout.curate.requests import HardParameters, HardRequest
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.testset import find_testset
from heldout.data.testset.card import CHOSEN_FOR_MISTAKES
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import membership_schema, membership_table
from heldout.data.testset.testset import TestSet
from heldout.measure.mistakes.between_models import Peers, read_peers
from heldout.measure.mistakes.categories import MAJOR
from heldout.measure.mistakes.inputs import truth_of_kind
from heldout.measure.mistakes.panel import Ruling, panel_answers, rulings
from heldout.measure.mistakes.reviewed_accuracy import TruthRevision, revise_truth
from heldout.measure.mistakes.verdicts import Key
from heldout.models.predictions.ledger import stored_predictions

if TYPE_CHECKING:
    import pyarrow as pa


QUESTIONS = ("label", "mistake", "review")
"""The questions whose answers decide."""


def guesses_source(peers: Peers) -> RecipeInput:
    """First guesses as a source; its hash does not depend on the order of images and models."""
    rows = np.argsort(np.array(peers.image_ids, dtype=object), kind="stable")
    columns = sorted(range(len(peers.models)), key=peers.models.__getitem__)
    digest = hashlib.sha256(peers.space.fingerprint.encode())
    digest.update(canonical_json([peers.models[m] for m in columns]).encode())
    digest.update("\n".join(peers.image_ids[row] for row in rows.tolist()).encode())
    ordered = peers.topk[:, :, 0][rows][:, columns]
    digest.update(np.ascontiguousarray(ordered, "<i4").tobytes())
    return RecipeInput("predictions", digest.hexdigest(), peers, len(peers.models))


def judged(judgements: Iterable[Judgement], images: Sequence[str]) -> RecipeInput:
    """Those judgements that decide about some of these images, each once, as a source."""
    known = set(images)
    kept = {
        judgement.judgement_id: judgement
        for judgement in judgements
        if judgement.question in QUESTIONS and judgement.subject.get("image_id") in known
    }
    ids = sorted(kept)
    value = tuple(kept[key] for key in ids)
    return RecipeInput("judgements", sha256_text("\n".join(ids)), value, len(ids))


TRUTH = "reviewed"
WRONG_BY = "models_wrong"
CATEGORY = "mistake_category"
METRICS = ("accepted",)
"""Right if the first guess is correct or unclear, as a count and a share; classes are not averaged,
as most of them have no image here."""


@dataclass(frozen=True)
class HardImages:
    """Which images are hard, and how many were left at every stage.

    ``images``    ids, sorted
    ``wrong``     image -> how many models are wrong on it
    ``mistakes``  image -> the rulings on its models' wrong predictions
    ``waiting``   images that would be looked at further if all their predictions were reviewed
    """

    images: tuple[str, ...]
    wrong: Mapping[str, int]
    mistakes: Mapping[str, tuple[Ruling, ...]]
    counts: Mapping[str, int]
    waiting: tuple[str, ...]


class HardRecipe(Recipe):
    """Images of a test set that models get plainly wrong."""

    name = "hard"
    version = "1"
    parameters = HardParameters
    roles = ("pool", "predictions", "judgements")
    guarantees = Guarantees(selects=True, seeded=False)

    def plan(
        self,
        sources: Sources,
        parameters: HardParameters,
        *,
        seed: int = 0,
        progress: Progress = no_progress,
    ) -> HardImages:
        """Which images would be chosen, and which wait for review; nothing is written."""
        return _chosen(*_sources(sources), parameters)[1]

    def build(
        self, sources: Sources, parameters: HardParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """The hard images with the reviewed truth, and what kinds of mistakes they hold."""
        pool, peers, panel = _sources(sources)
        revision, chosen = _chosen(pool, peers, panel, parameters)
        if not chosen.images:
            stages = ", ".join(f"{n:,} {stage}" for stage, n in chosen.counts.items())
            raise NotApplicable(
                f"no image of {pool.name} is hard by this rule: {stages}",
                fix="judge more with heldout mistakes queue --aim hard, or ask for fewer models",
            )
        return _built(pool, peers.models, revision, chosen, parameters)


def _sources(sources: Sources) -> tuple[TestSet, Peers, tuple[Judgement, ...]]:
    guesses, panel = sources["predictions"], sources["judgements"]
    if not isinstance(guesses, RecipeInput) or not isinstance(panel, RecipeInput):
        raise UserError(
            "hard images are chosen by first guesses and judgements",
            fix="make them with guesses_source and judged",
        )
    return pool_in(sources), guesses.value, panel.value


def _chosen(
    pool: TestSet, peers: Peers, panel: tuple[Judgement, ...], parameters: HardParameters
) -> tuple[TruthRevision, HardImages]:
    made = rulings(
        panel_answers(panel),
        rule=parameters.rule,
        share=parameters.share,
        people=parameters.people,
    )
    if not made:
        few = f"no mistake on {pool.name} was judged by {parameters.people} people or more"
        raise NotApplicable(
            few if panel else f"nobody has judged a mistake on {pool.name}",
            fix="write a queue with heldout mistakes queue --aim hard, and import it filled in",
        )
    name = parameters.truth or truth_of_kind(pool, "multilabel")
    revision = revise_truth(
        pool, name, made, rule=parameters.rule, people=parameters.people, judgements=panel
    )
    return revision, choose(revision.table, peers, made, parameters)


def choose(
    truth: pa.Table, peers: Peers, made: Mapping[Key, Ruling], parameters: HardParameters
) -> HardImages:
    """Which images of a truth, with rulings laid over it, are hard.

    Reviewed is a prediction that is acceptable or called wrong: by a ruling, or by the lists of a
    truth that reviewers made. Under one class an image only rulings call anything wrong. A model
    without an output is wrong, and there is nothing to review about it.
    """
    models = len(peers.models)
    least, plain = _least(parameters, models)
    if least > models:
        raise UserError(f"{least} of {models} models wrong", fix=f"ask for at most {models}")
    ids = peers.space.ids
    images = _by_image(truth)
    rows = dict(zip(images, peers.rows(tuple(images)).tolist(), strict=True))
    counts = {"unproblematic": 0, "missed": 0, "reviewed": 0}
    wrong: dict[str, int] = {}
    mistakes: dict[str, tuple[Ruling, ...]] = {}
    waiting: list[str] = []
    for image in sorted(images):
        right, refused, problematic = images[image]
        if any(problematic):
            continue
        counts["unproblematic"] += 1
        if rows[image] < 0:
            raise MismatchError(
                f"the predictions lack image {image!r}", fix="predict on the whole set"
            )
        said = [ids[g] if g >= 0 else None for g in peers.topk[rows[image], :, 0].tolist()]
        errors = [guess for guess in said if guess not in right]
        if len(errors) < least:
            continue
        counts["missed"] += 1
        outputs = [guess for guess in errors if guess is not None]
        if any(guess not in refused for guess in outputs):
            waiting.append(image)
            continue
        counts["reviewed"] += 1
        found = [made[image, guess] for guess in outputs if (image, guess) in made]
        if sum(ruling.severity == MAJOR for ruling in found) >= plain:
            wrong[image] = len(errors)
            mistakes[image] = tuple(dict.fromkeys(found))
    return HardImages(tuple(wrong), wrong, mistakes, counts, tuple(waiting))


def _least(parameters: HardParameters, models: int) -> tuple[int, int]:
    """How many models must be wrong, and how many by a major mistake."""
    least = models if parameters.wrong is None else parameters.wrong
    return least, least if parameters.major is None else parameters.major


def _by_image(truth: pa.Table) -> dict[str, tuple[set[str], set[str], list[bool]]]:
    """Image -> acceptable labels, labels called wrong, problematic; of all its rows together."""
    found: dict[str, tuple[set[str], set[str], list[bool]]] = {}
    for row in truth.to_pylist():
        right, refused, problematic = found.setdefault(row["image_id"], (set(), set(), []))
        right.update(row["correct"], row["unclear"])
        refused.update(row["wrong"])
        problematic.append(row["problematic"])
    return found


def _built(
    pool: TestSet,
    models: Sequence[str],
    revision: TruthRevision,
    chosen: HardImages,
    parameters: HardParameters,
) -> RecipeResult:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(chosen.images, pa.string())

    def kept(table: Any) -> Any:
        return table.filter(pc.is_in(table["image_id"], value_set=wanted))

    images = kept(pool.images)
    if WRONG_BY in images.column_names:
        images = images.drop_columns([WRONG_BY])
    counts = [chosen.wrong[image] for image in images["image_id"].to_pylist()]
    images = images.append_column(WRONG_BY, pa.array(counts, pa.int64()))
    kinds = membership_table(
        [
            (image, CATEGORY, ruling.category)
            for image, found in chosen.mistakes.items()
            for ruling in found
            if ruling.category is not None
        ]
    )
    others = kept(pool.memberships).select(membership_schema().names)
    others = others.filter(pc.not_equal(others["column"], CATEGORY))
    provenance = {
        **revision.provenance,
        "source": f"truth {revision.provenance['revises']} of {pool.name} and judgements",
        "metrics": list(METRICS),
        CHOSEN_FOR_MISTAKES: True,
    }
    truths = {TRUTH: TruthTable(table=kept(revision.table), provenance=provenance)}
    kind = pool.card.truths.get("original", {}).get("kind", "single")
    if "original" in pool.truths and kind == "single":
        truths["original"] = TruthTable(
            table=kept(pool.truths["original"]),
            provenance={"kind": "single", "source": pool.name},
        )
    return RecipeResult(
        images=images,
        label_space=pool.label_space,
        truths=truths,
        memberships=pa.concat_tables([others, kinds]),
        columns={
            WRONG_BY: ColumnType(kind="ordered", unit=f"of {len(models)} models"),
            CATEGORY: ColumnType(kind="categorical", multi=True),
        },
        clusters=pool.card.clusters,
        counts=chosen.counts,
        citation=pool.card.citation,
        notes=_notes(models, chosen, parameters),
    )


def _notes(
    models: Sequence[str], chosen: HardImages, parameters: HardParameters
) -> tuple[str, ...]:
    n = len(models)
    least, plain = _least(parameters, n)
    listed = ", ".join(sorted(models))
    people = (
        f"{parameters.people} or more people" if parameters.people > 1 else "one person or more"
    )
    rule = (
        parameters.rule if parameters.share is None else f"{parameters.rule} {parameters.share:g}"
    )
    notes = [
        f"at least {least} of {n} models wrong ({listed}), at least {plain} of them with a mistake "
        f"that the panel calls {MAJOR}; panel: {people}, {rule}",
        "every prediction of these models on these images was reviewed",
    ]
    if chosen.waiting:
        notes.append(
            f"{len(chosen.waiting):,} further images wait for review (heldout mistakes queue --aim hard)"
        )
    notes.append("score by accepted: how many images have a correct or unclear first guess")
    return tuple(notes)


recipe = HardRecipe()


def build_hard(request: HardRequest, context: Context) -> Result:
    """Choose the hard images of a test set, and write them as one."""
    place = context.workspace
    parent = context.find(request.testset, find_testset)
    truth = request.truth or truth_of_kind(parent, "multilabel")
    asked = msgspec.structs.replace(request, truth=truth)
    stored = stored_predictions(
        parent,
        [name for name in request.models if name != "all"],
        workspace=place,
        exclude=request.exclude,
    )
    answers = judgements_about(parent, place.judgements)
    sources: dict[str, Source] = {
        "pool": parent,
        "predictions": guesses_source(read_peers(parent, stored)),
        "judgements": judged(answers, parent.image_ids.to_pylist()),
    }
    if request.plan:
        found = recipe.plan(sources, asked)
        left = {"images": len(found.images), "waiting": len(found.waiting)}
        counted = {"pool": len(parent), **found.counts, **left}
        return Result(records=count_records(counted, testset=parent.name))
    folder = request.out or place.testsets / (request.name or f"{parent.name}-hard")
    made = run_recipe(
        recipe,
        sources,
        folder=folder,
        runs=place.runs,
        parameters=asked,
        name=request.name,
        replace=request.replace,
    )
    return build_result(made, folder, count_records(made.card.counts, testset=made.name), context)
