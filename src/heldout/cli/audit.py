"""``heldout audit``: blacklisted, duplicate and foreign images, short classes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heldout.cli.console import emit_json, out, print_table
from heldout.cli.options import JsonOption, TruthOption, WorkspaceOption


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
