"""Mistakes: wrong (image, prediction) pairs: confusions, consensus of models, categories, severity."""

from __future__ import annotations

from heldout.mistakes.affinity import Affinity, PairCounts, Similarity, co_prediction, read_affinity
from heldout.mistakes.categories import EXPLAINED, PROPOSABLE, Evidence, Proposal
from heldout.mistakes.collapse import Collapse, load_collapse
from heldout.mistakes.confusion_changes import ConfusionChange, confusion_changes
from heldout.mistakes.confusion_files import (
    ConfusionFile,
    PairDifference,
    compare_with_file,
    read_confusion_file,
    write_confusion_file,
)
from heldout.mistakes.confusions import ConfusionPair, Confusions, confusions
from heldout.mistakes.consensus import ModelConsensus, Suspect, model_consensus, suspects
from heldout.mistakes.cooccurrence import Cooccurrence, cooccurrence
from heldout.mistakes.estimates import ReviewedAccuracy, reviewed_accuracies
from heldout.mistakes.evidence import EvidenceTable, evidence_table
from heldout.mistakes.forgiving import forgiven
from heldout.mistakes.gathering import gather_knowledge, mistakes_at
from heldout.mistakes.groups import Groups, groups_of
from heldout.mistakes.knowledge import Knowledge, hierarchy_for
from heldout.mistakes.label_queue import label_queue
from heldout.mistakes.learning import Learned, learn
from heldout.mistakes.listed import ListedPredictions, listed_predictions
from heldout.mistakes.mistake import Mistake, mistakes_of
from heldout.mistakes.mistake_files import (
    FileAgreement,
    MistakeFile,
    file_agreement,
    read_mistake_file,
)
from heldout.mistakes.open_pairs import OpenPairs, open_pairs
from heldout.mistakes.out_of_vocabulary import OutOfVocabulary
from heldout.mistakes.overlap import (
    ChangedImage,
    Changes,
    Overlap,
    changed_images,
    changes,
    overlaps,
)
from heldout.mistakes.peers import Peers, read_peers
from heldout.mistakes.proposal_files import read_proposals, write_proposals
from heldout.mistakes.proposals import (
    Lessons,
    lessons_from,
    propose,
    propose_from,
    propose_learning,
)
from heldout.mistakes.quality import Agreement, agreement
from heldout.mistakes.queue import Queue, accuracy_queue, hard_queue, queue_rows, write_queue
from heldout.mistakes.revision import TruthRevision, revise_truth
from heldout.mistakes.rules import Rules
from heldout.mistakes.rulings import PanelAnswers, Ruling, panel_answers, rulings
from heldout.mistakes.study import Study
from heldout.mistakes.tallying import tally
from heldout.mistakes.validation import Validation, cross_validate, validate_on
from heldout.mistakes.vectors import Vectors, image_vectors, read_vectors, typicality
from heldout.mistakes.verdicts import (
    NOTHING,
    RIGHT,
    UNREVIEWED,
    WRONG,
    Verdicts,
    verdicts,
    verdicts_by_truth,
)

__all__ = [
    "EXPLAINED",
    "NOTHING",
    "PROPOSABLE",
    "RIGHT",
    "UNREVIEWED",
    "WRONG",
    "Affinity",
    "Agreement",
    "ChangedImage",
    "Changes",
    "Collapse",
    "ConfusionChange",
    "ConfusionFile",
    "ConfusionPair",
    "Confusions",
    "Cooccurrence",
    "Evidence",
    "EvidenceTable",
    "FileAgreement",
    "Groups",
    "Knowledge",
    "Learned",
    "Lessons",
    "ListedPredictions",
    "Mistake",
    "MistakeFile",
    "ModelConsensus",
    "OpenPairs",
    "OutOfVocabulary",
    "Overlap",
    "PairCounts",
    "PairDifference",
    "PanelAnswers",
    "Peers",
    "Proposal",
    "Queue",
    "ReviewedAccuracy",
    "Rules",
    "Ruling",
    "Similarity",
    "Study",
    "Suspect",
    "TruthRevision",
    "Validation",
    "Vectors",
    "Verdicts",
    "accuracy_queue",
    "agreement",
    "changed_images",
    "changes",
    "co_prediction",
    "compare_with_file",
    "confusion_changes",
    "confusions",
    "cooccurrence",
    "cross_validate",
    "evidence_table",
    "file_agreement",
    "forgiven",
    "gather_knowledge",
    "groups_of",
    "hard_queue",
    "hierarchy_for",
    "image_vectors",
    "label_queue",
    "learn",
    "lessons_from",
    "listed_predictions",
    "load_collapse",
    "mistakes_at",
    "mistakes_of",
    "model_consensus",
    "open_pairs",
    "overlaps",
    "panel_answers",
    "propose",
    "propose_from",
    "propose_learning",
    "queue_rows",
    "read_affinity",
    "read_confusion_file",
    "read_mistake_file",
    "read_peers",
    "read_proposals",
    "read_vectors",
    "reviewed_accuracies",
    "revise_truth",
    "rulings",
    "suspects",
    "tally",
    "typicality",
    "validate_on",
    "verdicts",
    "verdicts_by_truth",
    "write_confusion_file",
    "write_proposals",
    "write_queue",
]
