"""``heldout annotate``: classes for the images of a pool."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import emit, note, say
from heldout.cli.options import (
    ImagesOption,
    JsonOption,
    ReplaceOption,
    ShardOption,
    WorkersOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace
    from heldout.curate.zero_shot.label_pool import ClassSide, PoolImages
    from heldout.data.labels import LabelSpace
    from heldout.models.adapters import Encoder
    from heldout.models.embeddings import Embeddings

OWN = "own"
"""``--classes own``: the label space that the images already have."""

app = typer.Typer(help="Give classes to the images of a pool.", no_args_is_help=True)


@app.callback()
def _annotate() -> None:
    pass


@app.command("zero-shot")
def zero_shot(
    images: Annotated[
        str,
        typer.Argument(
            help="Pool, test set, folder of images, or vectors: a folder, .npy or .npz file."
        ),
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            "-e",
            help="conse, conse:lite1, open_clip:ARCH/TAG, onnx-pair:FOLDER or file.py:object.",
        ),
    ] = None,
    encoder_args: Annotated[
        list[str] | None,
        typer.Option(help="Argument of the encoder: key=value, value as JSON; repeatable."),
    ] = None,
    classes: Annotated[
        str,
        typer.Option(
            help="Label space: a built-in name, a JSON file, a class_info.json, or own: the images'."
        ),
    ] = "imagenet-21k",
    class_names: Annotated[
        str,
        typer.Option(help="Class texts: lemmas (all names), first (distinct), or a file."),
    ] = "lemmas",
    templates: Annotated[
        str,
        typer.Option(
            help="Sentences around a name: none, single, ensemble (80), openai, or a file."
        ),
    ] = "none",
    class_vectors: Annotated[
        Path | None,
        typer.Option(help="Vectors of the classes, made elsewhere: as for images, ids of classes."),
    ] = None,
    similarity: Annotated[
        str,
        typer.Option(help="Columns to write: cosine, softmax@T, margin, lse@T; T may be scale."),
    ] = "cosine,softmax@1,margin",
    top_k: Annotated[int, typer.Option(help="How many classes to keep of each image.")] = 1,
    keep: Annotated[
        str, typer.Option(help="How vectors of images are kept: float32, or float16 for half.")
    ] = "float32",
    images_at: ImagesOption = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the new pool; from its folder by default.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the new pool, or a .parquet file; in the workspace by default.",
        ),
    ] = None,
    workers: WorkersOption = None,
    shard: ShardOption = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Label images with the nearest of many classes, by an image-text model."""
    from heldout.core.engine import Shard, Tick
    from heldout.core.engine.jobs import ShardsMissing
    from heldout.core.errors import EXIT_FAILED_IMAGES, UserError
    from heldout.core.progress import image_progress
    from heldout.core.records import Count
    from heldout.core.workspace import Workspace, slug
    from heldout.curate.zero_shot.assign import check_top_k, parse_similarities
    from heldout.curate.zero_shot.label_pool import (
        AssignOptions,
        annotated_pool,
        find_candidates,
        write_parquet,
    )
    from heldout.data.testset.testset import save
    from heldout.models.adapters import load_encoder, parse_model_args

    place = Workspace.find(workspace)
    candidates = find_candidates(place, images)
    if encoder is None and (candidates.embeddings is None or class_vectors is None):
        raise UserError(
            f"which encoder for {'classes' if candidates.embeddings else 'images and classes'}",
            fix="name it with --encoder, such as conse; or give --class-vectors too",
        )
    loaded = (
        None if encoder is None else load_encoder(encoder, **parse_model_args(encoder_args or []))
    )
    similarities = parse_similarities(similarity, scale=None if loaded is None else loaded.scale)
    options = AssignOptions(similarities, top_k, workers)
    share = None if shard is None else Shard.parse(shard)
    space = _label_space(candidates, classes)
    check_top_k(top_k, len(space))
    _check_images(candidates, images_at, keep)
    side = _classes(place, loaded, space, class_names, templates, class_vectors, workers)
    try:
        vectors = _vectors(place, candidates, loaded, side, images_at, keep, workers, share)
    except ShardsMissing as missing:
        if share is None:
            raise
        counts = {"images": missing.total, "images_embedded": missing.done}
        emit([Count(name=key, value=value) for key, value in counts.items()], as_json=as_json)
        say(f"shard {shard} is done: {missing.message}; {missing.fix}")
        return
    default = f"{candidates.name}-zero-shot"
    target = to or place.pools / (name or default)
    with image_progress("assign") as progress:
        import time

        began = time.monotonic()

        def tell(done: int) -> None:
            progress(Tick(done, 0, 0, len(candidates), time.monotonic() - began))

        if target.suffix == ".parquet":
            tally = write_parquet(vectors, side, options, target, replace=replace, progress=tell)
        else:
            made, tally = annotated_pool(
                candidates,
                vectors,
                side,
                options,
                name=name or slug(target.resolve().name),
                progress=tell,
            )
    if target.suffix != ".parquet":
        made = save(made, target, replace=replace)
    counts = {
        "images": tally.images,
        "images_without_vector": tally.without_vector,
        "images_tied": tally.tied,
        "classes": len(side.space),
        "classes_assigned": tally.classes_used,
        "shared_texts": side.facts.get("shared_texts", 0),
        "classes_with_shared_texts": side.facts.get("classes_with_shared_texts", 0),
    }
    if target.suffix != ".parquet" and candidates.pool is not None and candidates.pool.truths:
        from heldout.curate.zero_shot.label_pool import pool_agreement

        agreed = pool_agreement(made, side.space, truth=next(iter(candidates.pool.truths)))
        counts |= {f"labels_{key}": value for key, value in asdict(agreed).items()}
    emit([Count(name=key, value=value) for key, value in counts.items()], as_json=as_json)
    say(f"{tally.images:,} images, {tally.classes_used:,} of {len(side.space):,} classes, {target}")
    if tally.without_vector:
        raise typer.Exit(EXIT_FAILED_IMAGES)


def _check_images(candidates: PoolImages, images_at: str | None, keep: str) -> None:
    """Refuse images that cannot be had before thousands of texts are encoded for them."""
    from heldout.models.embeddings import check_dtype, pool_image_files

    check_dtype(keep)
    if candidates.embeddings is None and candidates.pool is not None:
        pool_image_files(candidates.pool, images_at or candidates.source)


def _label_space(candidates: PoolImages, classes: str) -> LabelSpace:
    from heldout.core.errors import NotApplicable
    from heldout.data.importing import read_classes

    if classes != OWN:
        return read_classes(classes)
    if candidates.pool is None or candidates.pool.space is None:
        raise NotApplicable(
            f"{candidates.name} has no classes of its own",
            fix="name a label space with --classes, such as imagenet-21k",
        )
    return candidates.pool.space


def _classes(
    workspace: Workspace,
    encoder: Encoder | None,
    space: LabelSpace,
    class_names: str,
    templates: str,
    given: Path | None,
    workers: int | None,
) -> ClassSide:
    from heldout.core.errors import UserError
    from heldout.core.progress import image_progress
    from heldout.curate.zero_shot.assign import class_vectors
    from heldout.curate.zero_shot.class_texts import (
        class_embeddings,
        class_list_hash,
        class_prompts,
    )
    from heldout.curate.zero_shot.label_pool import ClassSide, shared_lines
    from heldout.models.embeddings import read_embeddings, rows_of

    if given is not None:
        found = read_embeddings(given)
        rows = rows_of(found, space.ids, what="classes")
        groups = class_vectors(found.vectors[rows]).shared
        facts = {
            "label_space": space.name,
            "classes": len(space),
            "class_list_sha256": class_list_hash(space),
            "vectors": dict(found.facts),
            "shared_texts": len(groups),
            "classes_with_shared_texts": sum(map(len, groups)),
        }
        return ClassSide(space, found.vectors[rows], facts)
    if encoder is None:
        raise UserError("which encoder for classes", fix="name it with --encoder")
    prompts = class_prompts(space, names=class_names, templates=templates)
    if prompts.shared:
        examples = "; ".join(shared_lines(prompts.shared, space, most=3))
        note(
            f"{len(prompts.shared):,} texts are shared by "
            f"{sum(map(len, prompts.shared)):,} classes, which are always tied ({examples})"
        )
    with image_progress("class texts", what="texts") as progress:
        found = class_embeddings(
            encoder, prompts, workspace=workspace, workers=workers, progress=progress
        )
    return ClassSide(space, found.vectors, {k: v for k, v in found.facts.items() if k != "rows"})


def _vectors(
    workspace: Workspace,
    candidates: PoolImages,
    encoder: Encoder | None,
    side: ClassSide,
    images_at: str | None,
    keep: str,
    workers: int | None,
    shard: object,
) -> Embeddings:
    from heldout.core.errors import UserError
    from heldout.core.progress import image_progress
    from heldout.models.embeddings import embed

    if candidates.embeddings is not None:
        return candidates.embeddings
    if encoder is None or candidates.pool is None:
        raise UserError("which encoder for images", fix="name it with --encoder")
    with image_progress("embed") as progress:
        found = embed(
            candidates.pool,
            encoder,
            workspace=workspace,
            images=images_at or candidates.source,
            dtype=keep,
            workers=workers,
            shard=shard,  # type: ignore[arg-type]
            progress=progress,
        )
    failures = found.facts.get("failures", {})
    for image, reason in list(failures.items())[:5]:
        note(f"{image}: {reason}")
    if len(failures) > 5:
        note(f"and {len(failures) - 5:,} more images without a vector")
    return found
