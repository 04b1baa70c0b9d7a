"""``verify``: test sets, pools, and what else numbers come from: runs, vectors, searches, judgements."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, EXIT_FAULT, BadFile, UserError
from heldout.core.files import is_temporary, read_json, read_versioned_json, remove_folder, unsealed
from heldout.core.workspace import Workspace
from heldout.data.judgements.neighbours import read_neighbours
from heldout.data.judgements.store import JudgementStore
from heldout.data.requests import VerifyRequest
from heldout.data.testset import Card
from heldout.data.testset.verify import Problem, Verification
from heldout.data.verbs import audit_set, verify_sets
from heldout.models.embeddings import SCHEMA_VERSION, read_embeddings
from heldout.models.predictions.store import PredictionStore, StoredRun, write_record

Look = Callable[[Path], tuple[int, int]]
"""Looks at one file or folder: how many things it holds, and how many of them have no checksum."""


def verify(request: VerifyRequest, context: Context) -> Result:
    """Compare what is stored with its checksums and hashes; with ``repair`` do what can be done."""
    place, repair = context.workspace, request.repair
    saved = [Path(name) for name in request.testsets if Path(name).is_file()]
    names = tuple(name for name in request.testsets if not Path(name).is_file())
    found: list[Verification] = []
    if names or not saved:
        asked = msgspec.structs.replace(request, testsets=names)
        sets = verify_sets(asked, context)
        found = [item for _, item in sets]
        for folder, item in sets:
            if repair and item.ok and item.unchecked:
                Card.of(folder).write(folder)
        cards = [Card.of(folder) for folder, item in sets if item.name]
        hashes = [card.images_hash[:12] for card in cards if card.images_hash]
        found += _stores(place, hashes if names else ["*"], every=not names, repair=repair)
    found += [_verified("records", path.parent, [path], _look_at_records) for path in saved]
    unchecked = sum(item.unchecked for item in found)
    if unchecked and not repair:
        context.note(
            f"{unchecked:,} things were written before there were checksums: damage in them may go "
            "unseen; heldout verify --repair adds what it can"
        )
    lines = [
        f"  {problem.severity}: {problem.file}: {problem.message}: {problem.fix}"
        for item in found
        for problem in item.findings
    ]
    audits = [audit_set(request, name, context) for name in names if request.audits]
    return Result(
        records=[*found, *audits],
        lines=[*lines, *(line for item in audits for line in item.lines)],
        code=EXIT_DONE if all(item.ok for item in found) else EXIT_FAULT,
    )


def _stores(
    place: Workspace, hashes: Iterable[str], *, every: bool, repair: bool
) -> Iterator[Verification]:
    """The runs on these images; with ``every`` also what belongs to no test set."""
    store = PredictionStore(place.predictions)

    def look_at_run(folder: Path) -> tuple[int, int]:
        run = StoredRun.open(folder)
        if replace(store.read(run), stored_hash="").hash != run.run["predictions_hash"]:
            raise BadFile(folder, "its outputs are not those of its hash")
        if run.files or not repair:
            return 1, int(not run.files)
        write_record(folder, run.run)
        return 1, 0

    def look_at_vectors(folder: Path) -> tuple[int, int]:
        read_embeddings(folder)
        head = read_versioned_json(folder / "embedding.json", version=SCHEMA_VERSION)
        return 1, int("files" not in head)

    def look_at_search(folder: Path) -> tuple[int, int]:
        read_neighbours(folder)
        return 1, 0

    def look_at_judgements(path: Path) -> tuple[int, int]:
        with JudgementStore(path) as judgements:
            return sum(1 for _ in judgements.stream()), 0

    def folders(root: Path, patterns: Iterable[str]) -> list[Path]:
        found = (path for pattern in patterns for path in root.glob(pattern))
        return sorted({p for p in found if p.is_dir() and not is_temporary(p)})

    runs = folders(place.predictions, [f"{name}/*@*" for name in hashes])
    vectors = folders(place.root / "embeddings", ["*/*"]) if every else []
    searches = folders(place.root / "duplicates", ["*/*/*"]) if every else []
    file = Path(str(place.judgements).removeprefix("sqlite:///"))
    table = [file] if every and file.is_file() else []
    again = "heldout eval makes it again; outputs from outside, heldout import predictions"
    for kind, paths, look, fix in (
        ("predictions", runs, look_at_run, again),
        ("embeddings", vectors, look_at_vectors, "the same command embeds again"),
        ("duplicates", searches, look_at_search, "heldout dedupe compares again"),
        ("judgements", table, look_at_judgements, ""),
    ):
        if paths:
            yield _verified(kind, place.root, paths, look, again=fix, repair=repair)


def _look_at_records(path: Path) -> tuple[int, int]:
    value = read_json(path)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadFile(path, "is not an array of records", fix="write it with --save")
    for item in value:
        unsealed(item, path, fix="write it again with --save")
    return len(value), sum("check" not in item for item in value)


def _verified(
    kind: str,
    root: Path,
    paths: Iterable[Path],
    look: Look,
    *,
    again: str = "",
    repair: bool = False,
) -> Verification:
    """Look at paths of one kind. With ``repair`` what is damaged and can be made ``again`` goes."""
    count = unchecked = 0
    found: list[Problem] = []
    for path in paths:
        file = Path(os.path.relpath(path, root)).as_posix()
        try:
            number, without = look(path)
        except UserError as error:
            fix = error.fix
            if again:
                fix = f"{'removed' if repair else 'verify --repair removes it'}: {again}"
                if repair:
                    remove_folder(path)
            message = error.message.replace(f"{path}: ", "").replace(f"{path}/", "")
            found.append(Problem(check=kind, severity="error", file=file, message=message, fix=fix))
        else:
            count, unchecked = count + number, unchecked + without
    return Verification(
        folder=kind, name="", tables=count, images=0, findings=tuple(found), unchecked=unchecked
    )
