"""Verify a pool: does its folder still hold what ``pool.json`` says? Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from heldout.core.errors import BadFile, UserError
from heldout.core.files import existing_folder, is_temporary
from heldout.data.testset.pool import Pool
from heldout.data.testset.pool_files import verify_pool
from heldout.data.testset.verify import (
    Finding,
    Verification,
    check_images,
    error_at,
    find_leftovers,
    warning_at,
)

_HEAD = "pool.json"
_KNOWN = {_HEAD, "images.parquet", "memberships.parquet", "label_space.json", "truth"}


def verify_pool_folder(folder: Path, *, images: bool = True, decode: bool = True) -> Verification:
    """Compare a pool's folder with its ``pool.json``, as ``verify`` does a test set's with its card.

    Tables are read and hashed again; the first that is not what it was ends the look. Image files
    are looked at where the pool says where they are.
    """
    existing_folder(folder, "pool")
    leftovers = list(find_leftovers(folder))
    try:
        pool = verify_pool(folder)
    except UserError as error:
        path = error.path if isinstance(error, BadFile) else folder / _HEAD
        file = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        broken = error_at("pool", file, error.message.removeprefix(f"{path}: "), error.fix)
        return Verification(
            folder=folder.name, name="", tables=0, images=0, findings=(broken, *leftovers)
        )
    findings = list(_extra(folder, pool))
    if folder.resolve().name != pool.name:
        message = f"the folder is called {folder.resolve().name}, {_HEAD} says {pool.name}"
        findings.append(warning_at("pool", _HEAD, message, "rename the folder"))
    checked: list[list[Finding]] = []
    if images and pool.images_root is not None:
        shown = Path(os.path.relpath(pool.images_root.resolve(), folder.resolve())).as_posix()
        checked = check_images(pool.images, pool.images_root, shown, decode=decode)
        bad = {f"{shown}/{path}" for path in _unreadable(pool)}
        findings += [
            replace(finding, severity="warning", fix="nothing: the pool was made with it")
            if finding.file in bad
            and finding.message.startswith("is ")
            and finding.message != "is missing"
            else finding
            for found in checked
            for finding in found
        ]
    return Verification(
        folder=folder.name,
        name=pool.name,
        tables=2 + len(pool.truths),
        images=len(checked),
        findings=(*findings, *leftovers),
    )


def _unreadable(pool: Pool) -> set[str]:
    """Files whose bytes are known and that had no size: no images when the pool was made."""
    columns = [pool.images[name].to_pylist() for name in ("path", "sha256", "width")]
    return {
        path
        for path, digest, width in zip(*columns, strict=True)
        if path is not None and digest is not None and width is None
    }


def _extra(folder: Path, pool: Pool) -> Iterator[Finding]:
    known = _KNOWN | {f"truth/{name}.parquet" for name in pool.truths}
    for path in sorted([*folder.iterdir(), *(folder / "truth").glob("*")]):
        relative = path.relative_to(folder).as_posix()
        if relative not in known and not is_temporary(path):
            yield warning_at("extra", relative, "no part of a pool", "remove it")
