"""The verbs that look after a workspace: ls, verify, audit, diff, cite, prune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit_json, note, out, print_table
from heldout.cli.options import JsonOption, TruthOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace


def ls(
    columns: Annotated[
        bool, typer.Option("--columns", help="Also list columns and truths.")
    ] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """List test sets and the models that have predictions on them, and pools."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset import list_pools, list_testsets
    from heldout.models.predictions import PredictionStore

    place = Workspace.find(workspace)
    store = PredictionStore(place.predictions)
    rows: list[dict[str, Any]] = [
        {
            "testset": entry.card.name,
            "aliases": list(entry.card.aliases),
            "images": entry.card.counts.get("images", 0),
            "truths": list(entry.card.truths),
            "columns": {name: kind.kind for name, kind in entry.card.columns.items()},
            "models": [run.model for run in store.runs(entry.card.images_hash)],
            "content_hash": entry.card.content_hash,
        }
        for entry in list_testsets(place)
    ]
    pools: list[dict[str, Any]] = [
        {
            "pool": entry.card.name,
            "images": entry.card.counts["images"],
            "truths": list(entry.card.truths),
            "columns": {name: kind.kind for name, kind in entry.card.columns.items()},
            "source": entry.card.facts.get("source"),
            "content_hash": entry.card.content_hash,
        }
        for entry in list_pools(place)
    ]
    if as_json:
        emit_json([*rows, *pools])
        return
    if not rows and not pools:
        out(f"no test sets in {place.testsets}; heldout import testset brings one in")
        return
    if rows:
        print_table(
            "",
            ["test set", "alias", "images", "models", "truths", "hash"],
            [
                [
                    str(row["testset"]),
                    ", ".join(row["aliases"]),
                    f"{row['images']:,}",
                    str(len(row["models"])),
                    ", ".join(row["truths"]),
                    str(row["content_hash"])[:12],
                ]
                for row in rows
            ],
            left=2,
        )
    if pools:
        print_table(
            "",
            ["pool", "source", "images", "truths", "hash"],
            [
                [
                    str(row["pool"]),
                    str(row["source"] or ""),
                    f"{row['images']:,}",
                    ", ".join(row["truths"]),
                    str(row["content_hash"])[:12],
                ]
                for row in pools
            ],
            left=2,
        )
    if columns:
        for row in [*rows, *pools]:
            listed = ", ".join(f"{name} ({kind})" for name, kind in row["columns"].items())
            out(f"{row.get('testset') or row.get('pool')}: {listed or 'no columns'}")


def verify(
    testsets: Annotated[
        list[str] | None,
        typer.Argument(help="Test sets and pools: names or paths; all by default."),
    ] = None,
    images: Annotated[
        bool, typer.Option(help="Also compare every image file with its hash.")
    ] = True,
    decode: Annotated[bool, typer.Option(help="Also decode every image file.")] = True,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Check tables, hashes and image files against the card or pool.json; nothing is changed."""
    from heldout.core.errors import EXIT_FAULT, NotFound
    from heldout.core.workspace import Workspace
    from heldout.data.testset import list_pools, list_testsets
    from heldout.data.testset.verify import verify as verify_folder

    place = Workspace.find(workspace)
    folders = [_folder(place, name) for name in testsets or []] or [
        entry.folder for entry in (*list_testsets(place), *list_pools(place))
    ]
    if not folders:
        raise NotFound(
            f"no test sets in {place.testsets} and no pools in {place.pools}",
            fix="import or collect one first",
        )
    found = [verify_folder(folder, images=images, decode=decode) for folder in folders]
    if as_json:
        emit_json([item.to_dict() for item in found])
    else:
        for folder, item in zip(folders, found, strict=True):
            says = "as its pool.json says" if _is_pool(place, folder) else "as its card says"
            state = says if item.ok else f"NOT {says}"
            out(f"{item.folder}: {state} ({item.tables} tables, {item.images} image files checked)")
            for finding in item.findings:
                out(f"  {finding.severity}: {finding.file}: {finding.message}: {finding.fix}")
    if not all(item.ok for item in found):
        raise typer.Exit(EXIT_FAULT)


def _folder(place: Workspace, name: str) -> Path:
    """The folder that an argument means: a test set's, or a pool's."""
    from heldout.core.errors import NotFound
    from heldout.data.testset.catalogue import find_folder

    try:
        return find_folder(place, name)
    except NotFound:
        for folder in (place.pools / name, Path(name)):
            if _is_pool(place, folder):
                return folder
        raise


def _is_pool(place: Workspace, folder: Path) -> bool:
    """Whether a folder is a pool's; one in the workspace is, even if its ``pool.json`` is gone."""
    return folder.is_dir() and (folder.parent == place.pools or (folder / "pool.json").is_file())


def cite(
    testset: Annotated[str, typer.Argument(help="The test set.")],
    bibtex: Annotated[bool, typer.Option("--bibtex", help="As BibTeX.")] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Print the citations of a test set and of its parents."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset.catalogue import cite as citations

    found = citations(Workspace.find(workspace), testset)
    if as_json:
        emit_json(found.to_dict())
        return
    out(found.bibtex if bibtex else found.text)
    for name in found.absent:
        note(f"{name} is a parent that is not in this workspace")


def diff(
    a: Annotated[str, typer.Argument(help="The earlier test set.")],
    b: Annotated[str, typer.Argument(help="The later test set.")],
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Show images, classes, truths and card entries that differ."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.data.testset.diff import diff as compare

    place = Workspace.find(workspace)
    found = compare(find_testset(place, a), find_testset(place, b))
    if as_json:
        emit_json(found.to_dict())
        return
    out(f"{found.a} ({found.images_a:,} images) -> {found.b} ({found.images_b:,} images)")
    if found.same_content:
        out("the content is the same")
    else:
        out(
            f"  {len(found.only_in_a):,} images only in {found.a}, {len(found.only_in_b):,} only in {found.b}"
        )
        out(f"  {found.in_both:,} images in both, {len(found.changed):,} of them changed")
        out(f"  {len(found.classes):,} classes have other images")
    for what, names in (("column", found.only_columns), ("truth", found.only_truths)):
        for name, side in names.items():
            out(f"  {what} {name} only in {found.a if side == 'a' else found.b}")
    if found.card:
        print_table(
            "card",
            ["field", "before", "after"],
            [
                [c.field, _short(c.before), _short(c.after)]
                for c in found.card
                if not c.field.startswith("tables")
            ],
            left=3,
        )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 48 else text[:47] + "…"


def prune(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="Also stored predictions of models that match; repeatable."
        ),
    ] = None,
    testset: Annotated[
        str | None,
        typer.Option("--testset", "-t", help="Only the models' predictions on this set."),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove; without it, only a list.")
    ] = False,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """List (and with --delete remove) leftovers, orphaned predictions, and models named by glob."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.models.predictions.prune import find_waste, remove

    place = Workspace.find(workspace)
    name = None if testset is None else find_testset(place, testset).name
    waste = find_waste(place, models=model or (), testset=name)
    if delete:
        remove(waste)
    if as_json:
        emit_json([{"folder": str(w.folder), "reason": w.reason, "bytes": w.bytes} for w in waste])
        return
    if waste:
        rows = [[str(w.folder), w.reason, f"{w.bytes / 1e6:,.1f} MB"] for w in waste]
        print_table("", ["folder", "why", "size"], rows, left=2)
    total = sum(w.bytes for w in waste) / 1e6
    verb = "freed" if delete else "could be freed with --delete"
    out(f"{total:,.1f} MB {verb}")


def audit(
    testset: Annotated[str, typer.Argument(help="The test set.")],
    blacklist: Annotated[Path | None, typer.Option(help="JSON of image -> reason.")] = None,
    near_duplicates: Annotated[
        Path | None, typer.Option(help="JSON of image -> images nearly the same.")
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(
            help="Another test set, or a list of image ids, that must not share images; repeatable."
        ),
    ] = None,
    per_class: Annotated[
        int | None, typer.Option(help="How many images a class should have.")
    ] = None,
    truth: TruthOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Look for images and classes that should not be as they are; lists go to --json."""
    from heldout.core.workspace import Workspace
    from heldout.data.importing.audit import audit as look
    from heldout.data.importing.audit import read_blacklist, read_image_ids, read_near_duplicates
    from heldout.data.testset import TestSet, find_testset

    place = Workspace.find(workspace)
    others: dict[str, TestSet | tuple[str, ...]] = {}
    for name in other or []:
        path = Path(name)
        if path.is_file():
            others[name if path.stem in others else path.stem] = read_image_ids(path)
        else:
            others[name] = find_testset(place, name)
    found = look(
        find_testset(place, testset),
        truth=truth,
        blacklist=None if blacklist is None else read_blacklist(blacklist),
        near_duplicates=None if near_duplicates is None else read_near_duplicates(near_duplicates),
        others=others or None,
        target_per_class=per_class,
    )
    if as_json:
        emit_json(found.to_dict())
        return
    out(f"{found.testset}: {found.images:,} images, {found.classes:,} classes, truth {found.truth}")
    out("sources: " + ", ".join(f"{name} {count:,}" for name, count in found.sources.items()))
    out(
        "images a class: "
        + ", ".join(f"{size} ({count:,} classes)" for size, count in found.sizes.items())
    )
    print_table(
        "",
        ["check", "found"],
        [[name.replace("_", " "), f"{count:,}"] for name, count in found.counts.items()],
    )
    out("clean" if found.clean else "not clean: --json lists every image and class")
