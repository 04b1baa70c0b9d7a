"""The verb annotate: classes for the images of a pool."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from heldout.core.context import Context, Result
from heldout.core.engine import Shard, Tick
from heldout.core.engine.jobs import ShardsMissing
from heldout.core.errors import EXIT_DONE, EXIT_FAILED_IMAGES, NotApplicable, UserError
from heldout.core.records import counts
from heldout.core.request import unused
from heldout.core.workspace import slug
from heldout.curate.pool_images import PoolImages, find_images, note_failures
from heldout.curate.zero_shot.assign import check_top_k, class_vectors, parse_similarities
from heldout.curate.zero_shot.class_texts import ClassPrompts, class_embeddings, class_facts
from heldout.curate.zero_shot.label_pool import (
    Annotation,
    AnnotationCounts,
    annotated_pool,
    write_parquet,
)
from heldout.curate.zero_shot.requests import OWN, AnnotateRequest
from heldout.data.importing import read_classes
from heldout.data.labels import LabelSpace
from heldout.data.testset.testset import TestSet, save
from heldout.models.adapters import Encoder, load_encoder, parse_model_args
from heldout.models.embeddings import Embeddings, embed, read_embeddings, rows_of
from heldout.models.predictions.pixels import image_files


def annotate(request: AnnotateRequest, context: Context) -> Result:
    """Encode images and classes, give every image the nearest class, write a pool or a file."""
    found = find_images(context, request.pool)
    if found.embeddings is not None:
        unused(request, "vectors of images", "images", "shard")
    encoder = _encoder(request, found, context)
    similarities = parse_similarities(
        request.similarities, scale=None if encoder is None else encoder.scale
    )
    share = Shard.parse(request.shard) if request.shard else None
    space = _label_space(found, request.classes, context)
    check_top_k(request.top, len(space))
    if found.embeddings is None and found.pool is not None:
        # Images that cannot be had are refused before thousands of texts are encoded for them.
        image_files(found.pool, request.images or found.pool.source)
    classes, facts = _classes(request, encoder, space, context)
    try:
        vectors = _vectors(request, found, encoder, share, context)
    except ShardsMissing as missing:
        if share is None:
            raise
        context.say(f"shard {request.shard} is done: {missing.message}; {missing.fix}")
        return Result(records=counts({"images": missing.total, "images_embedded": missing.done}))
    annotation = Annotation(
        embeddings=vectors,
        space=space,
        classes=classes,
        class_facts=facts,
        similarities=similarities,
        k=request.top,
        workers=request.workers,
    )
    target = request.out or context.workspace.pools / (request.name or f"{found.name}-zero-shot")
    made: TestSet | None = None
    with context.progress("assign") as progress:
        began = time.monotonic()
        size = len(vectors if found.pool is None else found.pool)
        tally = AnnotationCounts(
            lambda done: progress(Tick(done, 0, 0, size, time.monotonic() - began))
        )
        if target.suffix == ".parquet":
            write_parquet(annotation, tally, target, replace=request.replace)
        else:
            made = annotated_pool(
                found.pool, annotation, tally, name=request.name or slug(target.resolve().name)
            )
    if made is not None:
        made = save(made, target, replace=request.replace)
    numbers = {
        "images": tally.images,
        "images_without_vector": tally.without_vector,
        "images_tied": tally.tied,
        "classes": len(space),
        "classes_assigned": len(tally.used),
        "shared_texts": facts["shared_texts"],
        "classes_with_shared_texts": facts["classes_with_shared_texts"],
    }
    context.say(f"{tally.images:,} images, {len(tally.used):,} of {len(space):,} classes, {target}")
    return Result(
        records=counts(numbers),
        value=made,
        code=EXIT_FAILED_IMAGES if tally.without_vector else EXIT_DONE,
    )


def _encoder(request: AnnotateRequest, found: PoolImages, context: Context) -> Encoder | None:
    if request.encoder is not None:
        given = parse_model_args(request.encoder_args or {})
        return context.find(request.encoder, lambda _, name: load_encoder(name, **given))
    if found.embeddings is None or request.class_vectors is None:
        raise UserError(
            f"which encoder for {'classes' if found.embeddings else 'images and classes'}",
            fix="name it with --encoder, such as conse; or give --class-vectors too",
        )
    return None


def _label_space(found: PoolImages, classes: str, context: Context) -> LabelSpace:
    if classes != OWN:
        return context.find(classes, lambda _, name: read_classes(name))
    if found.pool is None or found.pool.space is None:
        raise NotApplicable(
            f"{found.name} has no classes of its own",
            fix="name a label space with --classes, such as imagenet-21k",
        )
    return found.pool.space


def _classes(
    request: AnnotateRequest, encoder: Encoder | None, space: LabelSpace, context: Context
) -> tuple[np.ndarray, dict[str, Any]]:
    """Vectors of the classes, given or of their texts, and what they come from."""
    if request.class_vectors is not None:
        given = read_embeddings(request.class_vectors)
        vectors = given.vectors[rows_of(given, space.ids, what="classes")]
        facts = class_facts(space, class_vectors(vectors).shared)
        return vectors, facts | {"vectors": dict(given.facts)}
    if encoder is None:
        raise UserError("which encoder for classes", fix="name it with --encoder")
    prompts = ClassPrompts(space, request.class_texts, request.templates)
    if prompts.shared:
        largest = sorted(prompts.shared, key=lambda group: (-len(group), group[0]))[:3]
        examples = "; ".join(f"{space.get(ids[0]).name}: {', '.join(ids)}" for ids in largest)
        context.note(
            f"{len(prompts.shared):,} texts are shared by "
            f"{sum(map(len, prompts.shared)):,} classes, which are always tied ({examples})"
        )
    with context.progress("class texts", what="texts") as progress:
        made = class_embeddings(
            encoder,
            prompts,
            workspace=context.workspace,
            workers=request.workers,
            progress=progress,
        )
    return made.vectors, {k: v for k, v in made.facts.items() if k != "rows"}


def _vectors(
    request: AnnotateRequest,
    found: PoolImages,
    encoder: Encoder | None,
    shard: Shard | None,
    context: Context,
) -> Embeddings:
    """Vectors of the images: given, or made and kept."""
    if found.embeddings is not None:
        return found.embeddings
    if encoder is None or found.pool is None:
        raise UserError("which encoder for images", fix="name it with --encoder")
    with context.progress("embed") as progress:
        made = embed(
            found.pool,
            encoder,
            workspace=context.workspace,
            images=request.images or found.pool.source,
            workers=request.workers,
            shard=shard,
            progress=progress,
        )
    note_failures(made, context)
    return made
