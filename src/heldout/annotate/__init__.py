"""Annotation: classes for the images of a pool, from image-text models.

:func:`embed` makes vectors of images, :func:`class_embeddings` of classes, :func:`assign` finds the
nearest classes in memory that grows with neither, :func:`annotated_pool` writes them down.
"""

from __future__ import annotations

from heldout.annotate.agreement import Agreement, agreement, pool_agreement
from heldout.annotate.assigning import Assigned, assign, assign_blocks
from heldout.annotate.class_texts import (
    ClassPrompts,
    class_embeddings,
    class_list_hash,
    class_prompts,
    text_vectors,
)
from heldout.annotate.class_vectors import ClassVectors, class_vectors
from heldout.annotate.embedding import embed, encoder_key
from heldout.annotate.embeddings import Embeddings, read_embeddings, write_embeddings
from heldout.annotate.inputs import Candidates, find_candidates, folder_pool
from heldout.annotate.products import PRECISIONS
from heldout.annotate.similarities import Similarity, parse_similarities
from heldout.annotate.zero_shot import (
    AssignOptions,
    ClassSide,
    annotated_pool,
    shared_lines,
    write_parquet,
)

__all__ = [
    "PRECISIONS",
    "Agreement",
    "AssignOptions",
    "Assigned",
    "Candidates",
    "ClassPrompts",
    "ClassSide",
    "ClassVectors",
    "Embeddings",
    "Similarity",
    "agreement",
    "annotated_pool",
    "assign",
    "assign_blocks",
    "class_embeddings",
    "class_list_hash",
    "class_prompts",
    "class_vectors",
    "embed",
    "encoder_key",
    "find_candidates",
    "folder_pool",
    "parse_similarities",
    "pool_agreement",
    "read_embeddings",
    "shared_lines",
    "text_vectors",
    "write_embeddings",
    "write_parquet",
]
