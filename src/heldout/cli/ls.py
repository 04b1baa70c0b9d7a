"""``heldout ls``: what is in the workspace."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heldout.cli.console import emit_json, out, print_table
from heldout.cli.options import JsonOption, WorkspaceOption


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
            "pool": head.name,
            "images": head.rows["images"],
            "truths": [name.removeprefix("truth/") for name in head.rows if "/" in name],
            "columns": {name: kind.kind for name, kind in head.columns.items()},
            "source": head.facts.get("source"),
            "content_hash": head.content_hash,
        }
        for head in list_pools(place)
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
