"""Checks that build again: other order, other world, other workers, other seed, after a kill."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from heldout.core.engine import Threads
from heldout.data.testset.testset import TestSet
from heldout.data.testset.verify import verify
from heldout.testing.executor import FakeExecutor
from heldout.testing.recipe_conformance.subject import Subject, World, first_difference
from heldout.testing.recipe_conformance.violation import Violation

MOMENTS = 5
_ELSEWHERE = World(hash_seed=4242, global_seed=99, clock_shift=400.4 * 86400, timezone="Asia/Tokyo")


def check_order(subject: Subject) -> Iterator[Violation]:
    """The order of rows in the sources must not matter."""
    shuffles = 0
    for seed in (1, 2):
        sources = dict(subject.sources())
        for role, source in sources.items():
            reordered = getattr(source, "reordered", None)
            if reordered is not None:
                sources[role] = reordered(seed)
                shuffles += 1
        place = subject.build(f"order-{seed}", sources=sources)
        difference = first_difference(subject.baseline.files(), place.files())
        if difference:
            yield Violation("order", f"with the rows of its sources shuffled, {difference}")
            return
    if not shuffles:
        yield Violation("order", "could not be checked: no source has a method reordered(seed)")


def check_same_seed(subject: Subject) -> Iterator[Violation]:
    """The same request must give the same bytes, again, elsewhere and later."""
    again = first_difference(subject.baseline.files(), subject.build("again").files())
    if again:
        yield Violation("same-seed", f"built twice in one process, {again}")
    subject.child("world-plain")
    plain = subject.place("world-plain").files()
    if first := first_difference(subject.baseline.files(), plain):
        yield Violation("same-seed", f"built in a fresh process, {first}")
    subject.child("world-other", world=_ELSEWHERE)
    if not first_difference(plain, subject.place("world-other").files()):
        return
    for field in dataclasses.fields(World):
        label = f"world-{field.name}"
        changed = dataclasses.replace(World(), **{field.name: getattr(_ELSEWHERE, field.name)})
        subject.child(label, world=changed)
        if alone := first_difference(plain, subject.place(label).files()):
            what = field.name.replace("_", " ")
            yield Violation("same-seed", f"with nothing changed but the {what}, {alone}")


def check_workers(subject: Subject) -> Iterator[Violation]:
    """Where and in which order units are done must not matter."""
    for label, executor in (("shuffled", FakeExecutor(seed=3)), ("threads", Threads(2))):
        place = subject.build(f"workers-{label}", executor=executor)
        if difference := first_difference(subject.baseline.files(), place.files()):
            yield Violation("workers", f"with {label} workers, {difference}")


def check_resume(subject: Subject) -> Iterator[Violation]:
    """Killed at any moment and started again, a build must give the same bytes."""
    expected = subject.baseline.files()
    moments = subject.child("resume-count")
    here = subject.place("resume-count").here
    if strays := sorted(path.name for path in here.iterdir()):
        yield Violation("resume", f"writes outside its folders: {strays[0]} in the current folder")
    chosen = sorted({1 + round(i * (moments - 1) / (MOMENTS - 1)) for i in range(MOMENTS)})
    for moment in chosen:
        label = f"resume-{moment}"
        place = subject.place(label)
        subject.child(label, kill=moment)
        when = f"killed at write {moment} of {moments}"
        if place.folder.exists() and (half := first_difference(expected, place.files())):
            yield Violation("resume", f"{when}, it left a folder in which {half}")
        subject.build(label)
        if difference := first_difference(expected, place.files()):
            yield Violation("resume", f"{when} and resumed, {difference}")


def check_seeds(subject: Subject) -> Iterator[Violation]:
    """Another seed may draw other images, and must still give a valid set that says its seed."""
    for seed in (subject.seed + 1, 2**63 + 5):
        place = subject.build(f"seed-{seed}", seed=seed)
        for finding in verify(place.folder).findings:
            yield Violation("seeds", f"seed {seed}: {finding.file}: {finding.message}")
        testset = place.testset()
        if testset.card.recipe.get("seed") != seed:
            yield Violation("seeds", f"seed {seed} is not in the card")
        same = testset.card.content_hash == subject.baseline.testset().card.content_hash
        if not same and not subject.recipe.guarantees.seeded:
            yield Violation(
                "seeds", f"seed {seed} gives another set, though seeds are not to matter"
            )


def check_nested(subject: Subject) -> Iterator[Violation]:
    """Where a recipe promises it, a smaller request must give a subset with equal rows."""
    for name in subject.recipe.guarantees.nested:
        value = getattr(subject.parameters, name)
        half = value / 2 if isinstance(value, float) else value // 2
        low, high = (half, value) if half >= 1 or isinstance(value, float) else (value, 2 * value)
        sets = {}
        for bound in (low, high):
            asked = dataclasses.replace(subject.parameters, **{name: bound})
            sets[bound] = subject.build(f"nested-{name}-{bound}", parameters=asked).testset()
        yield from _subset(sets[low], sets[high], f"{name} = {low} against {high}")


def _subset(small: TestSet, large: TestSet, what: str) -> Iterator[Violation]:
    for table, rows in _tables(small).items():
        others = _tables(large).get(table, {})
        for key, row in rows.items():
            if key not in others:
                yield Violation("nested", f"{what}: {table} row {key} is not in the larger set")
                break
            if row != others[key]:
                yield Violation("nested", f"{what}: {table} row {key} differs in the larger set")
                break


def _tables(testset: TestSet) -> dict[str, dict[Any, Any]]:
    found: dict[str, dict[Any, Any]] = {
        "images": {row["image_id"]: row for row in testset.images.to_pylist()},
        "memberships": {tuple(row.values()): row for row in testset.memberships.to_pylist()},
    }
    for name, table in testset.truths.items():
        found[f"truth {name}"] = {
            (row["image_id"], row["class_id"]): row for row in table.to_pylist()
        }
    return found
