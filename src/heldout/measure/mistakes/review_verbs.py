"""The verbs by which people review mistakes: propose, queue, panel, accuracy."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from heldout.core.context import Context, Result
from heldout.core.errors import NotApplicable
from heldout.core.records import Table, counts
from heldout.core.request import unused
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.published.answers import write_mistakes
from heldout.data.testset import TestSet, add_truth, find_testset
from heldout.measure.mistakes import requests
from heldout.measure.mistakes.between_models import read_peers
from heldout.measure.mistakes.categories import (
    Proposal,
    decided,
    propose_learning,
)
from heldout.measure.mistakes.categories import propose as propose_by
from heldout.measure.mistakes.evidence import (
    Knowledge,
    OutOfVocabulary,
    evidence_table,
    gather_knowledge,
    named_knowledge,
)
from heldout.measure.mistakes.inputs import MistakeInputs, read_inputs, truth_of_kind
from heldout.measure.mistakes.panel import (
    PARTS,
    PanelAgreement,
    Ruling,
    agreement,
    judged_kinds,
    panel_answers,
    read_mistake_file,
    rulings,
)
from heldout.measure.mistakes.review_queue import (
    accuracy_queue,
    empty_classes,
    hard_queue,
    how_to_answer,
    open_pairs,
    queue_rows,
    write_queue,
)
from heldout.measure.mistakes.reviewed_accuracy import (
    accuracy_records,
    next_revision,
    reviewed_accuracies,
    revise_truth,
)
from heldout.measure.mistakes.verdicts import Key, Mistakes, Verdicts, mistakes_at, mistakes_of
from heldout.measure.score.records import Summary
from heldout.models.adapters import load_encoder
from heldout.models.embeddings import embed
from heldout.models.predictions.ledger import stored_predictions
from heldout.stats.agreement import cohen_kappa

Answers = dict[Key, tuple[str, str]]
"""(image, prediction) to (category, severity)."""


class ProposedMistake(Proposal, frozen=True, kw_only=True):
    """A proposal, who makes the mistake, and what would have been right."""

    record: ClassVar[str] = "proposal"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: proposals",
        ("image=image_id", "prediction", "acceptable", "category", "severity", "evidence=reasons"),
    )
    testset: str
    truth: str
    models: tuple[str, ...]
    acceptable: tuple[str, ...]

    @property
    def reasons(self) -> str:
        """The evidence in words."""
        return "; ".join(item.text for item in self.evidence)


def propose(request: requests.ProposeRequest, context: Context) -> Result:
    """A proposal for every mistake."""
    inputs = read_inputs(request, context, collapse=None)
    testset, truth = inputs.testset, inputs.truth
    (found,) = inputs.verdicts()
    listed = mistakes_of(found)
    parts = judged_answers(inputs, request.judged)
    answers = dict(ChainMap(*parts.values()))  # where two sources differ, the first counts
    known = located(inputs, answers, where=", ".join(parts))
    knowledge = gathered(inputs, request, [listed, known])
    table = evidence_table(listed, knowledge)
    proposals: tuple[Proposal, ...] | None = None
    if len(known):
        try:
            judged = evidence_table(known, knowledge)
            proposals = propose_learning(table, judged, answers, seed=request.seed)
            context.note(f"learned from {len(known):,} judged mistakes of {', '.join(parts)}")
            context.note(_agreement(proposals, answers))
        except NotApplicable as error:
            if request.judged:
                raise
            context.note(error.message)
    if proposals is None:
        unused(request, "rules: no judged mistakes are learned from", "seed")
        proposals = propose_by(table)
        context.note("by rules: nothing is said about severity")
    context.note(f"evidence: {knowledge.sources or 'none'}")
    many = Counter(proposal.category for proposal in proposals)
    rows = [
        ProposedMistake(
            **msgspec.structs.asdict(proposal),
            testset=testset.name,
            truth=truth,
            models=mistake.models,
            acceptable=mistake.acceptable,
        )
        for proposal, mistake in zip(proposals[: request.top], listed, strict=False)
    ]
    categories = {f"n_proposed_{name}": many[name] for name in sorted(many)}
    numbers = counts(categories, testset=testset.name)
    severities = Counter(proposal.severity or "not clear" for proposal in proposals)
    told = ", ".join(f"{n:,} {name}" for name, n in sorted(severities.items()))
    return Result(
        records=[*numbers, *rows],
        brief=[*numbers, *rows],
        lines=[f"truth {truth}, {len(proposals):,} mistakes; suggested severity: {told}"],
    )


def _agreement(proposals: Sequence[Proposal], answers: Answers) -> str:
    """How far proposals agree with people, where both are there: each is made without its image."""
    pairs = [(p.category, answers[p.key][0]) for p in proposals if p.key in answers]
    if not pairs:
        return "none of these mistakes is judged: how good the proposals are is not known"
    same = sum(proposed == judged for proposed, judged in pairs)
    kappa = cohen_kappa(*zip(*pairs, strict=True))
    return (
        f"of {len(pairs):,} judged ones among these, each proposed from judgements of other images, "
        f"{100 * same / len(pairs):.0f} % have the people's category (kappa {kappa:.2f})"
    )


def judged_answers(inputs: MistakeInputs, names: Sequence[str]) -> dict[str, Answers]:
    """Judged mistakes by where they come from: files, or the workspace's judgements."""
    testset = inputs.testset
    if list(names) == ["none"]:
        return {}
    if names:
        files = [read_mistake_file(Path(name), label_space=testset.label_space) for name in names]
        return {file.path.name: decided(file.verdicts) for file in files}
    place = inputs.context.workspace.judgements
    found = decided(judged_kinds(judgements_about(testset, place, questions=["mistake"])))
    return {"the workspace": found} if found else {}


def located(inputs: MistakeInputs, answers: Answers, *, where: str) -> Mistakes:
    """Judged pairs as mistakes under the truth; what does not fit is noted."""
    truth, note = inputs.truth, inputs.context.note
    found, unknown, right = mistakes_at(inputs.testset, answers, truth=truth)
    if unknown:
        note(f"{where}: {unknown:,} judged mistakes are not in truth {truth}")
    if right:
        note(f"{where}: {right:,} judged mistakes are right by truth {truth}: left out")
    return found


def gathered(
    inputs: MistakeInputs, request: requests.ProposeRequest, mistakes: Sequence[Mistakes]
) -> Knowledge:
    """The knowledge that a request names, about these mistakes."""
    testset = inputs.testset
    knowledge = named_knowledge(
        testset,
        request,
        truth=inputs.truth,
        workspace=inputs.context.workspace,
        label_map=inputs.label_map,
        note=inputs.context.note,
        collapse=request.collapse,
        prototypes=request.prototypes,
    )
    if request.encoder is None:
        return knowledge
    encoder = load_encoder(request.encoder)
    if knowledge.hierarchy is None:
        inputs.context.note("no hierarchy: what is out of vocabulary cannot be looked for")
        return knowledge
    wanted = pa.array({image for group in mistakes for image in group.image_ids})
    chosen = pc.is_in(testset.image_ids, value_set=wanted)
    outsiders = OutOfVocabulary(
        space=knowledge.space,
        hierarchy=knowledge.hierarchy,
        names=knowledge.node_names,
        images=embed(
            replace(testset, images=testset.images.filter(chosen)),
            encoder,
            workspace=inputs.context.workspace,
            images=request.images,
        ),
        encoder=encoder,
    )
    return replace(knowledge, outsiders=outsiders)


def _reviewed(request: requests.Reviewed, context: Context) -> tuple[MistakeInputs, Verdicts, str]:
    """What people judge under one truth, and the average that fits it."""
    testset = context.find(request.testset, find_testset)
    truth = request.truth or truth_of_kind(testset, "multilabel")
    inputs = read_inputs(request, context, truth=truth)
    (verdicts,) = inputs.verdicts()
    kind = verdicts.testset.card.truths[verdicts.truth.name].get("kind", "single")
    return inputs, verdicts, request.average or ("classes" if kind == "multilabel" else "images")


@dataclass(frozen=True, kw_only=True)
class QueuedPair:
    """A pair of a queue, as a person is shown it."""

    record: ClassVar[str] = "queued"
    table: ClassVar[Table] = Table(
        "",
        ("rank:,", "image=image_id", "prediction", "labels", "models:,", "proposed"),
        rows=10,
    )
    rank: int
    image_id: str
    prediction: str
    labels: str
    models: int
    proposed: str


def queue(request: requests.QueueRequest, context: Context) -> Result:
    """Pairs to judge in the order of the aim, as a table or as a file to fill in."""
    inputs, verdicts, average = _reviewed(request, context)
    testset = inputs.testset
    panel = panel_answers(judgements_about(testset, context.workspace.judgements))
    if request.aim == "accuracy":
        pairs = open_pairs(verdicts, average=average, seed=request.seed)
        made = accuracy_queue(pairs, panel, people=request.people)
    else:
        made = hard_queue(verdicts, panel, wrong=request.wrong, people=request.people)
    pairs_left = len(made.entries)
    made = made.head(request.top)
    rows = queue_rows(made, _proposals(made.entries, inputs))
    some = f"the first {len(rows):,} of " if len(rows) < pairs_left else ""
    told = f"{some}{pairs_left:,} pairs to judge, {made.judged:,} are judged already"
    if request.out is not None:
        write_queue(request.out, rows)
        context.say(f"{request.out}: {told}")
        context.note(how_to_answer())
    shown = [
        QueuedPair(
            rank=row["rank"],
            image_id=row["image_id"],
            prediction=row["prediction_name"],
            labels="; ".join(row["label_names"]),
            models=len(row["models"]),
            proposed=row["proposed_category"],
        )
        for row in (rows if request.out is None else ())
    ]
    return Result(
        records=counts({"n_queue": len(rows), "n_judged": made.judged}, testset=testset.name),
        brief=shown,
        lines=[told] if request.out is None else (),
    )


def _proposals(mistakes: Mistakes, inputs: MistakeInputs) -> tuple[Proposal, ...]:
    if not len(mistakes):
        return ()
    knowledge = gather_knowledge(inputs.testset, truth=inputs.truth)
    return propose_by(evidence_table(mistakes, knowledge))


def panel(request: requests.PanelRequest, context: Context) -> Result:
    """How far reviewers agree, and what they rule; a revised truth, a file of mistakes."""
    testset = context.find(request.testset, find_testset)
    answers = judgements_about(testset, context.workspace.judgements)
    given = panel_answers(answers, fold=request.fold)
    if not given.answers:
        raise NotApplicable(
            f"nobody has judged a prediction on {testset.name}",
            fix="write a queue with heldout mistakes queue, and import it filled in",
        )
    made = rulings(given, rule=request.rule, share=request.share, people=request.people)
    agreements: list[PanelAgreement] = []
    for part in PARTS:
        try:
            agreements.append(agreement(given, part, seed=request.seed, level=request.level))
        except NotApplicable:
            continue
    if not agreements:
        context.note("nobody can be compared: no (image, prediction) was judged by two people")
    if request.add_truth:
        _add_revision(request, testset, made, answers, context)
    if request.out is not None:
        _write_mistakes(request, request.out, testset, made, context)
    said = Counter(ruling.answer for ruling in made.values())
    severities = Counter(ruling.severity for ruling in made.values())
    numbers = counts(
        {
            "n_rulings": len(made),
            **{f"n_{answer}": said[answer] for answer in ("correct", "unclear", "wrong")},
            **{
                f"n_severity_{name.lower()}": severities[name]
                for name in ("Major", "Minor", "Borderline", "unclear")
            },
        },
        testset=testset.name,
    )
    return Result(
        records=[*numbers, *_agreement_records(testset, agreements, request.level)],
        brief=[*(count for count in numbers if count.value), *agreements],
    )


def _add_revision(
    request: requests.PanelRequest,
    testset: TestSet,
    made: Mapping[Key, Ruling],
    answers: Sequence[Judgement],
    context: Context,
) -> None:
    base = request.truth or truth_of_kind(testset, "multilabel")
    revision = revise_truth(
        testset, base, made, rule=request.rule, people=request.people, judgements=answers
    )
    name = request.name or next_revision(base, testset.truths)
    grown = add_truth(testset, name, revision.table, provenance=revision.provenance)
    for text in revision.notes:
        context.note(text)
    context.say(f"{grown.name}: truth {name} revises {base}, now {grown.card.content_hash[:12]}")


def _write_mistakes(
    request: requests.PanelRequest,
    path: Path,
    testset: TestSet,
    made: Mapping[Key, Ruling],
    context: Context,
) -> None:
    """Wrong pairs in the published form: all, or those that the named models make."""
    wrong = {
        key: (ruling.category or "", ruling.severity or "")
        for key, ruling in made.items()
        if ruling.answer == "wrong"
    }
    if request.models:
        models = stored_predictions(testset, request.models, workspace=context.workspace)
        peers = read_peers(testset, models)
        firsts, ids = peers.topk[:, :, 0], testset.label_space.ids
        said = {(peers.image_ids[row], ids[firsts[row, m]]) for row, m in np.argwhere(firsts >= 0)}
        wrong = {key: kind for key, kind in wrong.items() if key in said}
    written = write_mistakes(path, decided(wrong), classes=testset.label_space.ids)
    context.say(f"{path}: {written:,} mistakes")
    if len(wrong) > written:
        context.note(
            f"{len(wrong) - written:,} wrong predictions without an agreed category and severity are "
            "left out"
        )


def _agreement_records(
    testset: TestSet, agreements: Sequence[PanelAgreement], level: float
) -> Iterator[Summary]:
    for item in agreements:
        share = Summary(
            model=None,
            testset=testset.name,
            truth="panel",
            metric="agreement",
            columns=item.part,
            n=item.subjects,
            testset_hash=testset.card.content_hash,
            name="share",
            value=item.share,
        )
        yield share
        yield replace(
            share,
            name="krippendorff_alpha",
            value=item.alpha,
            low=item.low,
            high=item.high,
            interval=None if item.low is None else "bootstrap-percentile",
            level=None if item.low is None else level,
            reason=None if item.alpha is not None else "all answers are the same",
        )
        for one, other, n, kappa in item.kappas:
            yield replace(share, n=n, name="cohen_kappa", at=f"{one} and {other}", value=kappa)


def accuracy(request: requests.AccuracyRequest, context: Context) -> Result:
    """The accuracy of every model: bounds, and an estimate from the answers to the queue."""
    inputs, verdicts, average = _reviewed(request, context)
    absent = len(empty_classes(verdicts))
    if average == "classes" and absent:
        context.note(f"{absent} classes have no image that counts: mla is the mean over the others")
    made = rulings(
        panel_answers(judgements_about(inputs.testset, context.workspace.judgements)),
        rule=request.rule,
        share=request.share,
        people=request.people,
    )
    pairs = open_pairs(verdicts, average=average, seed=request.seed)
    found = reviewed_accuracies(
        pairs, made, level=request.level, seed=request.seed, replicates=request.replicates
    )
    metric = "reviewed"
    if verdicts.reviewed:
        metric = "mla" if average == "classes" else "mla_micro"
    for reason in dict.fromkeys(item.reason for item in found if item.reason):
        context.note(reason)
    return Result(
        records=accuracy_records(pairs, found, metric=metric, level=request.level),
        brief=sorted(found, key=lambda item: (-item.lower, item.model)),
    )
