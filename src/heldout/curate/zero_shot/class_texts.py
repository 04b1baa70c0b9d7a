"""Classes as texts and as vectors: names, templates, and classes that no text can tell apart."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from heldout.core.engine import JobResults, Progress, Threads, Unit, no_progress, unit_key
from heldout.core.engine.jobs import map_units
from heldout.core.engine.results import remove_job, working
from heldout.core.files import canonical_json, sha256_text
from heldout.core.workspace import Workspace
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.model import Encoder, unit_rows
from heldout.models.adapters.prompts import class_texts, prompt_templates
from heldout.models.embeddings import (
    Embeddings,
    embeddings_folder,
    encoder_facts,
    encoder_key,
    is_embeddings,
    read_embeddings,
    write_embeddings,
)
from heldout.models.predictions.run_models import in_images

WORK = "class-vectors-1"
_TEXTS = 128
"""Texts of a unit of work."""


@dataclass(frozen=True)
class ClassPrompts:
    """What each class of a label space is called, and the sentences around the name.

    ``names``      where the texts come from: ``lemmas``, ``first`` or a file
    ``templates``  their name: ``none``, ``single``, ``ensemble``, ``openai`` or a file
    """

    space: LabelSpace
    names: str = "lemmas"
    templates: str = "none"

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The text of each class."""
        return class_texts(self.space, self.names)

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """The sentences, with ``{}`` where the text goes."""
        return prompt_templates(self.templates)

    @cached_property
    def shared(self) -> tuple[tuple[str, ...], ...]:
        """Groups of classes with one text, ids in order; such classes are tied for every image."""
        groups: dict[str, list[str]] = {}
        for class_id, text in zip(self.space.ids, self.texts, strict=True):
            groups.setdefault(text, []).append(class_id)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)

    @property
    def key(self) -> str:
        """SHA-256 of all texts and templates, in order."""
        return sha256_text(canonical_json([self.texts, self.patterns]))

    def facts(self) -> dict[str, Any]:
        """What is written down of them beside what they were used for."""
        return {
            **class_facts(self.space, self.shared),
            "names": self.names,
            "templates": self.templates,
            "template_count": len(self.patterns),
            "texts_sha256": self.key,
        }


def class_facts(space: LabelSpace, shared: Sequence[Sequence[object]]) -> dict[str, Any]:
    """What is written down of classes; ``shared`` are the groups that nothing can tell apart."""
    return {
        "label_space": space.name,
        "classes": len(space),
        # of the ids, one a line: that of the published list file itself
        "class_list_sha256": sha256_text("".join(f"{class_id}\n" for class_id in space.ids)),
        "shared_texts": len(shared),
        "classes_with_shared_texts": sum(map(len, shared)),
    }


def class_embeddings(
    encoder: Encoder,
    prompts: ClassPrompts,
    *,
    workspace: Workspace,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> Embeddings:
    """Vectors of classes, from the workspace or made now; the same call again resumes.

    A class is the mean of the unit vectors of its prompts, made a unit vector again. Each distinct
    text is encoded once, so classes of one text have one vector to the bit.
    """
    folder = embeddings_folder(workspace, encoder) / f"classes-{prompts.key[:12]}"
    key = encoder_key(encoder)
    job = JobResults(workspace.runs / f"class-vectors-{prompts.key[:12]}-{key[:12]}")
    if is_embeddings(folder):
        found = read_embeddings(folder)
        if list(found.ids) == list(prompts.space.ids):
            remove_job(job.folder)
            return found
    # By length: texts of one length run together, so a unit is best made of texts like each other.
    texts = sorted(set(prompts.texts), key=lambda text: (len(text), text))
    per_unit = max(1, _TEXTS // len(prompts.patterns))
    units = [
        Unit(unit_key(WORK, texts=some, templates=prompts.patterns, encoder=key), some)
        for start in range(0, len(texts), per_unit)
        for some in [texts[start : start + per_unit]]
    ]

    def make(texts: Sequence[str]) -> bytes:
        handle = io.BytesIO()
        np.save(handle, text_vectors(encoder, texts, prompts.patterns), allow_pickle=False)
        return handle.getvalue()

    with working(job):
        results = map_units(
            make,
            units,
            name=job.folder.name,
            what=f"vectors of the classes of {prompts.space.name}",
            runs=workspace.runs,
            executor=Threads(workers),
            progress=in_images(progress, len(texts), len(units)),
        )
        made = np.concatenate(
            [np.load(io.BytesIO(results.read(unit.key)), allow_pickle=False) for unit in units]
        )
    place = {text: row for row, text in enumerate(texts)}
    vectors = made[[place[text] for text in prompts.texts]]
    facts = {"encoder": encoder_facts(encoder), **prompts.facts()}
    write_embeddings(folder, Embeddings(prompts.space.ids, vectors, facts), replace=True)
    remove_job(job.folder)
    return read_embeddings(folder)


def text_vectors(encoder: Encoder, texts: Sequence[str], patterns: Sequence[str]) -> np.ndarray:
    """Mean of the unit vectors of a text's prompts, as a unit vector: float32 (texts, d)."""
    prompts = [pattern.replace("{}", text) for text in texts for pattern in patterns]
    made = encoder.encode_texts(prompts).astype(np.float64)
    if len(patterns) == 1:
        return made.astype(np.float32)
    return unit_rows(made.reshape(len(texts), len(patterns), -1).mean(axis=1))
