"""Mistakes inside an evaluation: what kinds they are, as tallies, and accuracy that forgives some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from heldout.core.errors import NotApplicable
from heldout.core.workspace import Workspace
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels.label_map import LabelMap
from heldout.data.testset import TestSet
from heldout.measure.evaluation.reading import Reading
from heldout.measure.mistakes.categories import (
    Lessons,
    Proposal,
    decided,
    lessons_from,
    propose_from,
)
from heldout.measure.mistakes.evidence import EvidenceTable, evidence_table, gather_knowledge
from heldout.measure.mistakes.panel import judged_kinds, kinds_of
from heldout.measure.mistakes.tally import Study, forgiven, joined, tally, without_images
from heldout.measure.mistakes.verdicts import Verdicts, mistakes_of, verdicts
from heldout.measure.score.estimate import LEVEL, REPLICATES, scores
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Score, Tally
from heldout.measure.score.slices import cluster_column
from heldout.models.predictions import Predictions


class Watching:
    """Looks at every model's outputs as they pass, and keeps only its verdicts.

    ``refused`` says why there are none: a truth may have no image whose mistakes count, though some
    metric counts it.
    """

    def __init__(
        self, testset: TestSet, *, truth: str | None = None, label_map: LabelMap | None = None
    ) -> None:
        self._testset = testset
        self._truth = truth
        self._label_map = label_map
        self._parts: list[Verdicts] = []
        self._peers: list[Predictions] = []
        self.refused: str | None = None

    def see(self, predictions: Predictions) -> None:
        """Take one model's verdicts."""
        try:
            found = verdicts(
                self._testset, [predictions], truth=self._truth, label_map=self._label_map
            )
        except NotApplicable as refused:
            self.refused = refused.message
            return
        self._parts.append(found)
        light = replace(predictions, logits=None, features=None, stored_hash=predictions.hash)
        self._peers.append(light)

    def study(self, *, without: Iterable[int] = (), workspace: Workspace) -> Study:
        """The study of all that was seen, ``without`` some rows of the images table."""
        found = joined(self._parts)
        rows = list(without)
        return study_mistakes(
            without_images(found, rows) if rows else found,
            peers=self._peers,
            label_map=self._label_map,
            workspace=workspace,
        )


def study_mistakes(
    found: Verdicts,
    *,
    peers: Sequence[Predictions] = (),
    label_map: LabelMap | None = None,
    workspace: Workspace,
) -> Study:
    """Every mistake with its kind: as the workspace's judgements say, else as evidence proposes.

    ``peers`` are outputs of models on these images, those of the verdicts among them.
    """
    mistakes = mistakes_of(found)
    judgements = judgements_about(found.testset, workspace.judgements, questions=("mistake",))
    knowledge = gather_knowledge(
        found.testset,
        truth=found.truth.name,
        predictions=peers or None,
        label_map=label_map,
    )
    table = evidence_table(mistakes, knowledge)
    proposals = _with_severity(propose_from(table), table, _lessons(table, judgements))
    kinds = kinds_of(mistakes, judgements=judgements, proposals=proposals)
    return Study(verdicts=found, mistakes=mistakes, kinds=kinds)


def _with_severity(
    proposals: Sequence[Proposal], table: EvidenceTable, lessons: Lessons | None
) -> Sequence[Proposal]:
    """Proposals by rules, with what judged mistakes teach about severity.

    Categories are not taken from there: what was judged are a few models' mistakes, often better
    ones, among which nobody found a failure without a reason. Weaker models have many.
    """
    if lessons is None or lessons.severity is None:
        return proposals
    limits = zip(*(part.tolist() for part in lessons.severity.suggest(table)), strict=True)
    return [
        replace(item, severity_probability=p, severity_low=low, severity_high=high)
        for item, (p, low, high) in zip(proposals, limits, strict=True)
    ]


def _lessons(table: EvidenceTable, judgements: Sequence[Judgement]) -> Lessons | None:
    """What judged mistakes of these images teach; None where they are too few."""
    kinds = judged_kinds(judgements)
    judged = decided({key: (category, severity) for key, (category, severity, _) in kinds.items()})
    try:
        return lessons_from(table, judged) if judged else None
    except NotApplicable:
        return None


def mistake_records(
    study: Study,
    measured: Sequence[Measured],
    reading: Reading,
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Tally | Score]:
    """Tallies by model and slice, and scores of the leading metric with mistakes forgiven."""
    testset = study.verdicts.testset
    cluster = cluster_column(testset, reading.cluster)
    records: list[Tally | Score] = []
    records += tally(study, by=reading.slices(testset), cluster=cluster, level=level)
    for item in forgiven(study, measured[:1]):
        records += scores(item, cluster=cluster, seed=seed, replicates=replicates, level=level)
    return records
