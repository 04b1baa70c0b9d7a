"""Readers of published answers: each turns one known file into judgements.

They are tolerant of what does not matter (further keys, order) and refuse what does, in one line
that names the file.
"""

from __future__ import annotations

from heldout.judgements.published.imagenetv2 import (
    read_blacklist,
    read_class_reviews,
    read_duplicate_reviews,
    read_near_duplicates,
)
from heldout.judgements.published.label_errors import choice_as_labels, read_label_errors
from heldout.judgements.published.mistakes import read_mistakes
from heldout.judgements.published.real import read_real_answers, read_real_panel

__all__ = [
    "choice_as_labels",
    "read_blacklist",
    "read_class_reviews",
    "read_duplicate_reviews",
    "read_label_errors",
    "read_mistakes",
    "read_near_duplicates",
    "read_real_answers",
    "read_real_panel",
]
