"""Metadata in: scene graphs, detections, captions, published subsets, YFCC100M, any table of tags.

Every reader yields a pool: images, and memberships (image_id, column, value). The columns are
``object`` (names of objects), ``attribute`` (``subject(attribute)``), ``general`` (location,
weather, places), ``relation`` (``subject(predicate object)``), ``supercategory``, ``synset``,
``caption_word``, ``subset`` (published ``subject(context)`` of two objects), or a table's own.
"""

from __future__ import annotations

from heldout.collect.options import ReaderOptions, read_ontology, read_words
from heldout.collect.reading import (
    SOURCES,
    Collected,
    Source,
    collect,
    collect_table,
    read_metadata,
    report_of,
)
from heldout.collect.report import Problem, Report

__all__ = [
    "SOURCES",
    "Collected",
    "Problem",
    "ReaderOptions",
    "Report",
    "Source",
    "collect",
    "collect_table",
    "read_metadata",
    "read_ontology",
    "read_words",
    "report_of",
]
