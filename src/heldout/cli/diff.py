"""``heldout diff``: what changed between two test sets or revisions."""

from __future__ import annotations

from typing import Annotated

import typer

from heldout.cli.console import emit_json, out, print_table
from heldout.cli.options import JsonOption, WorkspaceOption


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
