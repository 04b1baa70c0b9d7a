"""The one table of human answers: store, import, export, consensus."""

from __future__ import annotations

from heldout.judgements.consensus import RULES, UNCLEAR, Consensus, Rule, Verdict, consensus
from heldout.judgements.dawid_skene import Reliability, dawid_skene
from heldout.judgements.formats import read_judgements, write_judgements
from heldout.judgements.frequency import (
    SelectionFrequencies,
    SelectionFrequency,
    selection_frequency,
)
from heldout.judgements.judgement import WITHDRAWN, Judgement, pair_subject, utc_time
from heldout.judgements.panel import Panel, current_answers, panel, subject_key
from heldout.judgements.questions import CATEGORIES, QUESTIONS, SEVERITIES, Question
from heldout.judgements.store import Added, JudgementStore
from heldout.judgements.workers import WorkerQuality, worker_quality

__all__ = [
    "CATEGORIES",
    "QUESTIONS",
    "RULES",
    "SEVERITIES",
    "UNCLEAR",
    "WITHDRAWN",
    "Added",
    "Consensus",
    "Judgement",
    "JudgementStore",
    "Panel",
    "Question",
    "Reliability",
    "Rule",
    "SelectionFrequencies",
    "SelectionFrequency",
    "Verdict",
    "WorkerQuality",
    "consensus",
    "current_answers",
    "dawid_skene",
    "pair_subject",
    "panel",
    "read_judgements",
    "selection_frequency",
    "subject_key",
    "utc_time",
    "worker_quality",
    "write_judgements",
]
