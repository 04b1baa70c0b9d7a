"""``heldout build``: make a test set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit_json, note, out, print_table, say
from heldout.cli.options import (
    JsonOption,
    ReplaceOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.curate.compose.build import BuildEstimate


app = typer.Typer(help="Make a test set.", no_args_is_help=True)


@app.callback()
def _build() -> None:
    pass


@app.command("compose")
def compose(
    config: Annotated[
        Path | None,
        typer.Argument(help="TOML file: keys equal flags, factors in [factors]; flags win."),
    ] = None,
    foregrounds: Annotated[
        Path | None, typer.Option(help="Folder of cut-outs with alpha: CLASS/FILE.")
    ] = None,
    backgrounds: Annotated[Path | None, typer.Option(help="Folder of backgrounds.")] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write; in the workspace by default."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="size, rotation, location, demo: SI-SCORE's grids; or custom."),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            "-f",
            help="KEY=VALUES, such as size=0.1,0.2, x=0:1:0.05 or blur=0,2; repeatable; x, y, "
            "size, rotation and every registered factor.",
        ),
    ] = None,
    backgrounds_per_object: Annotated[
        int | None, typer.Option(help="Backgrounds that each object is put on; 2 by default.")
    ] = None,
    min_inside: Annotated[
        float | None,
        typer.Option(
            help="Drop images with less of the object's box inside, 0 to 1; "
            "0.95 by default, 0 for location."
        ),
    ] = None,
    keep_empty: Annotated[
        bool | None, typer.Option("--keep-empty", help="Keep images without any of the object.")
    ] = None,
    resolution: Annotated[
        list[str] | None,
        typer.Option(help="Size of images, 512 or 640x480; repeatable; 512, 500 for location."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the pairs and of all chance; 0 by default.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="What folders stand for: siscore (its 112 names, then ids and names of --classes), "
            "folders (classes of their own), or a TOML, JSON or CSV file of name and class ids."
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Label space of the classes; imagenet-1k by default.")
    ] = None,
    renderer: Annotated[
        str | None, typer.Option(help="exact: the original's pixels; fast: close to them.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="plain, or siscore: the original's folders and CSV files.")
    ] = None,
    image_format: Annotated[
        str | None, typer.Option("--format", help="jpeg, png or webp; jpeg by default.")
    ] = None,
    quality: Annotated[
        int | None, typer.Option(help="Of JPEG and WebP, 1 to 100; 75 by default.")
    ] = None,
    exif: Annotated[
        bool | None, typer.Option("--exif/--no-exif", help="Turn inputs as their EXIF says.")
    ] = None,
    foregrounds_licence: Annotated[
        str | None, typer.Option(help="Licence of cut-outs without one in their attributions.")
    ] = None,
    backgrounds_licence: Annotated[
        str | None, typer.Option(help="Licence of backgrounds without one in their attributions.")
    ] = None,
    foregrounds_attributions: Annotated[
        Path | None,
        typer.Option(
            help="CSV, JSON or TOML: file, licence, attribution, source; "
            "attributions.* in the folder by default."
        ),
    ] = None,
    backgrounds_attributions: Annotated[
        Path | None, typer.Option(help="The same for backgrounds.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; all cores by default.")
    ] = None,
    replace: ReplaceOption = False,
    dry_run: Annotated[
        bool, typer.Option("--plan", help="Only count, and say how long and how large.")
    ] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Objects on backgrounds, every factor controlled (SI-SCORE and past it)."""
    from heldout.core.progress import image_progress
    from heldout.core.workspace import Workspace, slug
    from heldout.curate.compose.build import build_compose, estimate
    from heldout.curate.compose.request import make_request, read_config, with_factors

    flags: dict[str, Any] = {
        "foregrounds": foregrounds,
        "backgrounds": backgrounds,
        "preset": preset,
        "backgrounds_per_object": backgrounds_per_object,
        "min_inside": min_inside,
        "keep_empty": keep_empty,
        "resolution": resolution or None,
        "seed": seed,
        "labels": labels,
        "classes": classes,
        "renderer": renderer,
        "layout": layout,
        "format": image_format,
        "quality": quality,
        "exif": exif,
        "foregrounds_licence": foregrounds_licence,
        "backgrounds_licence": backgrounds_licence,
        "foregrounds_attributions": foregrounds_attributions,
        "backgrounds_attributions": backgrounds_attributions,
    }
    values = {} if config is None else read_config(config)
    values |= {key: value for key, value in flags.items() if value is not None}
    values = with_factors(values, _factors(factor or []))
    if config is not None:
        values.setdefault("name", config.stem)
    request = make_request(values, where="" if config is None else str(config))
    if dry_run:
        _show_estimate(estimate(request), as_json=as_json)
        return
    place = Workspace.find(workspace)
    folder = to or place.testsets / slug(request.title)
    with image_progress(folder.name) as progress:
        made = build_compose(
            request, folder, runs=place.runs, workers=workers, progress=progress, replace=replace
        )
    for text in made.notes:
        note(text)
    card = made.testset.card
    if as_json:
        emit_json([{"record": "count", "name": n, "value": v} for n, v in card.counts.items()])
    state = "unchanged" if made.unchanged else "written"
    say(
        f"{folder}: {len(made.testset):,} images of {card.counts['classes']} classes, "
        f"{card.counts['candidates']:,} candidates, {state}"
    )


def _factors(texts: list[str]) -> dict[str, Any]:
    from heldout.core.errors import UserError
    from heldout.curate.compose.request import read_values

    found: dict[str, Any] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UserError(f"{text!r} is no factor", fix="write KEY=VALUES, such as size=0.1,0.2")
        if key in found:
            raise UserError(f"factor {key} is given twice", fix="give it once")
        found[key] = read_values(rest, f"factor {key}")
    return found


def _show_estimate(found: BuildEstimate, *, as_json: bool) -> None:
    from heldout.core.progress import format_seconds

    for text in found.notes:
        note(text)
    if as_json:
        rows: dict[str, float] = dict(found.counts)
        for key, counts in (("class", found.classes), *found.values.items()):
            rows |= {f"images {key}={value}": n for value, n in counts.items()}
        rows |= {"bytes": found.bytes, "seconds": found.seconds}
        emit_json([{"record": "count", "name": n, "value": v} for n, v in rows.items()])
        return
    print_table("", ("count", "n"), [(name, f"{n:,}") for name, n in found.counts.items()])
    for key, counts in (("class", found.classes), *found.values.items()):
        _show_values(key, counts)
    out(
        f"about {found.bytes / 1e6:,.1f} MB and {format_seconds(found.seconds)} of one processor "
        f"({found.counts['images'] / max(found.seconds, 1e-9):,.0f} images a second)"
    )


def _show_values(key: str, counts: Mapping[str, int]) -> None:
    """Images by value; of many values, runs of equal counts together."""
    rows: list[tuple[str, str, int, int]] = []
    for value, n in counts.items():
        if rows and rows[-1][2] == n and len(counts) > 12:
            rows[-1] = (rows[-1][0], value, n, rows[-1][3] + 1)
        else:
            rows.append((value, value, n, 1))
    shown = [
        (f"{first} … {last} ({many} values)" if many > 1 else first, f"{n:,}")
        for first, last, n, many in rows
    ]
    print_table("", (key, "images"), shown)
