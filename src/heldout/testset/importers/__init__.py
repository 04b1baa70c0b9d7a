"""Test sets and truths from the world: one module a published shape."""

from heldout.testset.importers.cifar import read_cifar, write_images
from heldout.testset.importers.detect import read_classes, read_testset, read_truth
from heldout.testset.importers.folders import label_space_of_folders, read_folders
from heldout.testset.importers.imagenet_m import read_imagenet_m
from heldout.testset.importers.imagenetv2 import read_imagenetv2
from heldout.testset.importers.label_kinds import LABEL_KINDS, LabelKind
from heldout.testset.importers.matching import Match, match_images
from heldout.testset.importers.multilabel import read_multilabel
from heldout.testset.importers.real import read_real, read_real_scores
from heldout.testset.importers.siscore import read_siscore
from heldout.testset.importers.tabular import read_table
from heldout.testset.importers.truth_file import TruthFile

__all__ = [
    "LABEL_KINDS",
    "LabelKind",
    "Match",
    "TruthFile",
    "label_space_of_folders",
    "match_images",
    "read_cifar",
    "read_classes",
    "read_folders",
    "read_imagenet_m",
    "read_imagenetv2",
    "read_multilabel",
    "read_real",
    "read_real_scores",
    "read_siscore",
    "read_table",
    "read_testset",
    "read_truth",
    "write_images",
]
