"""``heldout cutout``: objects freed from their photographs, ready for ``build compose``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit_json, note, out, say
from heldout.cli.options import JsonOption, ReplaceOption, WorkersOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.curate.cutouts.make import Manifest

_SHOWN = 10


def cutout(
    photos: Annotated[str, typer.Argument(help="Folder, .tar or .zip of photos.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the cut-outs.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="masks, coco, openimages, grabcut, onnx; by what else is given by default."
        ),
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option(help="Folder of mask files; without it, masks are the photos' own alpha."),
    ] = None,
    instances: Annotated[
        bool, typer.Option("--instances", help="Values of a mask number its objects.")
    ] = False,
    resize_masks: Annotated[
        bool, typer.Option("--resize-masks", help="Bring masks of another size to the photos'.")
    ] = False,
    annotations: Annotated[
        Path | None,
        typer.Option(
            help="COCO's JSON or OpenImages' CSV; grabcut and onnx look in the boxes of it."
        ),
    ] = None,
    class_names: Annotated[
        Path | None, typer.Option(help="OpenImages: CSV of machine id, name.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Annotations of this class only; repeatable.")
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Annotated photos may be missing.")
    ] = False,
    model: Annotated[
        Path | None, typer.Option(help="ONNX file of a U²-Net or ISNet; never downloaded.")
    ] = None,
    sidecar: Annotated[
        Path | None, typer.Option(help="JSON with the network's input; beside it by default.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="CSV of file, and any of class, licence, attribution.")
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option("--class", help="The class of all photos; their folder's name else."),
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of photos without one.")] = "",
    attribution: Annotated[str, typer.Option(help="Attribution of photos without one.")] = "",
    stray: Annotated[
        float | None, typer.Option(help="Remove parts below this share of the largest part.")
    ] = None,
    holes: Annotated[
        float | None, typer.Option(help="Fill holes below this share of the object.")
    ] = None,
    soft: Annotated[
        bool | None,
        typer.Option("--soft/--hard", help="Keep grey edges of masks, or make pixels in or out."),
    ] = None,
    feather: Annotated[int, typer.Option(help="Pixels over which edges fade, inwards.")] = 0,
    min_fraction: Annotated[
        float | None, typer.Option(help="Gate: least share of the photo.")
    ] = None,
    max_fraction: Annotated[
        float | None, typer.Option(help="Gate: largest share of the photo.")
    ] = None,
    max_parts: Annotated[int | None, typer.Option(help="Gate: most large parts.")] = None,
    max_border: Annotated[
        float | None, typer.Option(help="Gate: largest share of the border touched.")
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(help="Gate: least edge confidence.")
    ] = None,
    min_side: Annotated[
        int | None, typer.Option(help="Gate: least pixels of the shorter side.")
    ] = None,
    keep_flagged: Annotated[
        bool, typer.Option("--keep-flagged", help="Use cut-outs that the gate flags, too.")
    ] = False,
    review: Annotated[
        Path | None, typer.Option(help="CSV of file, verdict (keep, drop) that wins over the gate.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of GrabCut's random numbers.")] = 0,
    workers: WorkersOption = None,
    replace: ReplaceOption = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Cut objects out of photos: CLASS/NAME.png with alpha, a manifest, and sheets for review."""
    from dataclasses import replace as changed

    import msgspec

    from heldout.core.engine import make_executor
    from heldout.core.errors import EXIT_FAILED_IMAGES, UserError
    from heldout.core.progress import image_progress
    from heldout.core.workspace import Workspace
    from heldout.curate.cutouts.make import (
        METHODS,
        CutoutInputs,
        find_jobs,
        find_segmenter,
        likely_method,
        make_cutouts,
        read_review,
    )
    from heldout.curate.cutouts.photos import Photographs, read_photo_table
    from heldout.data.images import open_source

    inputs = CutoutInputs(
        masks=masks,
        instances=instances,
        resize=resize_masks,
        annotations=annotations,
        class_names=class_names,
        only=tuple(only or ()),
        allow_missing=allow_missing,
        model=model,
        sidecar=sidecar,
    )
    chosen = method or likely_method(inputs)
    edges: dict[str, Any] = {
        "stray": stray,
        "holes": holes,
        "soft": soft,
        "feather": feather,
    }
    gate: dict[str, Any] = {
        "min_fraction": min_fraction,
        "max_fraction": max_fraction,
        "max_parts": max_parts,
        "max_border": max_border,
        "min_confidence": min_confidence,
        "min_side": min_side,
    }
    usual = METHODS.get(chosen) or METHODS["grabcut"]  # an unknown one is refused below
    cleaning = changed(usual.cleaning, **{k: v for k, v in edges.items() if v is not None})
    limits = changed(usual.limits, **{k: v for k, v in gate.items() if v is not None})
    source = open_source(photos)
    ids = source.ids()
    if not ids:
        raise UserError(f"{photos} holds no photos", fix="give a folder of images")
    photographs = Photographs(
        ids,
        facts={} if table is None else read_photo_table(table, ids),
        class_name=class_name or "",
        licence=licence,
        attribution=attribution,
    )
    jobs = find_jobs(chosen, photographs, inputs)
    segmenter = find_segmenter(chosen, inputs, seed=seed)
    if method is None:
        note(f"cut out by {chosen}")
    with image_progress("cut-outs") as progress:
        manifest = make_cutouts(
            source,
            jobs,
            output,
            runs=Workspace.find(workspace).runs,
            method=chosen,
            cleaning=cleaning,
            limits=limits,
            segmenter=segmenter,
            review=None if review is None else read_review(review),
            keep_flagged=keep_flagged,
            executor=make_executor("threads", workers=workers),
            progress=progress,
            replace=replace,
        )
    if as_json:
        emit_json(msgspec.to_builtins(manifest.cutouts))
    _tell(manifest, output, quiet=as_json)
    if manifest.failures:
        raise typer.Exit(EXIT_FAILED_IMAGES)


def _tell(manifest: Manifest, output: Path, *, quiet: bool) -> None:
    """What came out, on standard output; what did not, on standard error."""
    from heldout.data.testset.exporters.licences import licence_rule

    if not quiet:
        classes = len({cutout.class_name for cutout in manifest.used})
        out(f"{output}: {len(manifest.used):,} cut-outs of {classes:,} classes")
    unchangeable = sum("no changed copies" in licence_rule(c.licence).note for c in manifest.used)
    if unchangeable:
        note(
            f"{unchangeable:,} photos are under a licence that allows no changed copies to be shared"
        )
    if manifest.flagged:
        for cutout in manifest.flagged[:_SHOWN]:
            why = "; ".join(cutout.reasons) or "dropped in review"
            say(f"set aside: {cutout.file}: {why}")
        say(f"{len(manifest.flagged):,} set aside: look at {output / 'sheet-001.html'}")
    if manifest.skipped:
        first = manifest.skipped[0]
        say(
            f"{len(manifest.skipped):,} skipped, such as {first.photo} {first.object}: {first.reason}"
        )
    for problem in manifest.failures[:_SHOWN]:
        say(f"failed: {' '.join(filter(None, (problem.photo, problem.object)))}: {problem.reason}")
    if manifest.failures:
        say(f"{len(manifest.failures):,} failed: all of them in {output / 'manifest.json'}")
