"""Which reader takes a file, and the readers of any folder or table."""

from heldout.data.importing.detect import read_testset, read_truth
from heldout.data.importing.folders import label_space_of_folders, read_folders
from heldout.data.importing.tabular import read_table
from heldout.data.published.cifar import read_cifar, write_images
from heldout.data.published.imagenetv2 import read_classes, read_imagenetv2
from heldout.data.published.siscore import read_siscore
from heldout.data.published.truths import (
    match_images,
    read_imagenet_m,
    read_multilabel,
    read_real,
    read_real_scores,
)

__all__ = [
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
