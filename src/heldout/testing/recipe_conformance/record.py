"""Checks that read what was built: declaration, card, licences, and the way out and back in."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from heldout.core.errors import UserError
from heldout.core.workspace import check_slug
from heldout.curate import parameters as parameter_values
from heldout.curate.build import ORIGIN
from heldout.data.importing.tabular import read_table
from heldout.data.testset.exporters import export_tabular
from heldout.data.testset.hashing import hash_table
from heldout.data.testset.testset import TestSet, load, save
from heldout.data.testset.verify import verify
from heldout.testing.recipe_conformance.subject import Subject
from heldout.testing.recipe_conformance.violation import Violation


def check_declaration(subject: Subject) -> Iterator[Violation]:
    """Name, version, parameters, roles and guarantees must be there and fit together."""
    recipe = subject.recipe

    def wrong(message: str) -> Violation:
        return Violation("declaration", message)

    try:
        check_slug(recipe.name, "a recipe")
    except UserError as error:
        yield wrong(error.line)
    if not isinstance(recipe.version, str) or not recipe.version:
        yield wrong("the recipe has no version")
    problems = check_kind(recipe.parameters)
    for problem in problems:
        yield wrong(f"the class of its parameters {problem}")
    if problems:
        return
    again = parameter_values.from_dict(
        recipe.parameters, parameter_values.to_dict(subject.parameters)
    )
    if again != subject.parameters:
        yield wrong("its parameters do not survive being written and read")
    if not recipe.roles or len(set(recipe.roles)) != len(recipe.roles):
        yield wrong(f"its roles are {recipe.roles!r}")
    fields = {field.name for field in dataclasses.fields(recipe.parameters)}
    for name in recipe.guarantees.nested:
        value = getattr(subject.parameters, name, None)
        if name not in fields or isinstance(value, bool) or not isinstance(value, int | float):
            yield wrong(f"it promises nested sets for {name!r}, which is no numeric parameter")
    if recipe.guarantees.selects and "pool" not in recipe.roles:
        yield wrong("it promises to select, and reads no pool")


def check_licences(subject: Subject) -> Iterator[Violation]:
    """Every image must carry the source, licence and attribution of all it was made from."""
    testset = subject.baseline.testset()
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for role, source in subject.sources().items():
        table = getattr(source, "images", None)
        if table is not None:
            rows |= {(role, row["image_id"]): row for row in table.to_pylist()}
    origins: dict[str, list[tuple[str, str]]] = {}
    for row in testset.memberships.to_pylist():
        if row["column"] == ORIGIN:
            role, _, origin = row["value"].partition(":")
            origins.setdefault(row["image_id"], []).append((role, origin))
    found: dict[str, str] = {}  # the first image of each kind of loss is evidence enough
    for row in testset.images.to_pylist():
        image = row["image_id"]
        places = origins.get(image, [("pool", image)])
        if subject.recipe.guarantees.selects and places != [("pool", image)]:
            found.setdefault("made", f"image {image!r} was made, though it promises to select")
        nowhere = [place for place in places if place not in rows]
        if nowhere:
            found.setdefault("nowhere", f"image {image!r} comes from nowhere: {nowhere[0]!r}")
            continue
        for place in places:
            for name in ("source", "licence", "attribution"):
                theirs, ours = rows[place][name], row[name]
                if theirs is not None and theirs not in (ours or ""):
                    text = f"image {image!r} has the {name} {ours!r}, its origin has {theirs!r}"
                    found.setdefault(name, text)
        lacking = any(rows[place]["licence"] is None for place in places)
        if lacking and "unknown" not in (row["licence"] or "unknown"):
            text = f"image {image!r} has the licence {row['licence']!r}, an origin has none"
            found.setdefault("unknown", text)
    for message in found.values():
        yield Violation("licences", message)


def check_card(subject: Subject) -> Iterator[Violation]:
    """The card must say all that is needed to understand the set and to build it again."""
    testset, recipe = subject.baseline.testset(), subject.recipe
    card = testset.card

    def wrong(message: str) -> Violation:
        return Violation("card", message)

    wanted = {
        "name": recipe.name,
        "version": recipe.version,
        "parameters": parameter_values.to_dict(subject.parameters),
        "seed": subject.seed,
    }
    if card.recipe != wanted:
        yield wrong(f"its recipe is {card.recipe}, and {wanted} was asked for")
    else:
        values = card.recipe["parameters"]
        if parameter_values.from_dict(recipe.parameters, values) != subject.parameters:
            yield wrong("the set cannot be built again from its parameters")
    sources = subject.sources()
    parents = {parent.get("relation"): parent for parent in card.parents}
    for role, source in sources.items():
        if parents.get(role, {}).get("content_hash") != source.content_hash:
            yield wrong(f"it does not name the {role} it was made from by its hash")
        if card.counts.get(role) != len(source):
            yield wrong(f"it counts {card.counts.get(role)} in {role}, which has {len(source)}")
    if card.counts.get("images") != len(testset):
        yield wrong(f"it counts {card.counts.get('images')} images of {len(testset)}")
    if not len(testset):
        yield wrong("the set has no images: examine the recipe on sources from which it makes some")
    if recipe.guarantees.selects:
        others = {"classes", *recipe.roles} - {"pool"}  # what else it reads are not images
        stages = [n for stage, n in card.counts.items() if stage not in others]
        if any(after > before for before, after in pairwise(stages)):
            yield wrong(f"its counts rise from stage to stage: {card.counts}")
    if any(n < 0 for n in card.counts.values()):
        yield wrong(f"it has a negative count: {card.counts}")
    if not testset.truths:
        yield wrong("the set has no truth")
    for name, where in card.truths.items():
        if not where.get("kind") or not where.get("source"):
            yield wrong(f"truth {name} does not say its kind and source")
        judged = set(testset.truths[name]["image_id"].to_pylist())
        if name == card.default_truth and len(judged) < len(testset):
            yield wrong(f"truth {name} leaves out {len(testset) - len(judged)} images")
    classes = set()
    if testset.truths:
        classes = set(testset.truth()["class_id"].drop_null().to_pylist())
    if card.counts.get("classes") != len(classes):
        yield wrong(f"it counts {card.counts.get('classes')} classes of {len(classes)}")
    if sum(card.licences.values()) != len(testset):
        yield wrong("its licences do not count every image")


def check_round_trip(subject: Subject) -> Iterator[Violation]:
    """What is written must verify, load, save elsewhere, and come back from an export."""
    place = subject.baseline
    for finding in verify(place.folder).findings:
        yield Violation("round-trip", f"{finding.file}: {finding.message}")
    testset = place.testset()
    moved = save(load(place.folder), subject.scratch / "moved" / testset.name)
    yield from _unequal(testset, moved, "saved elsewhere and loaded")
    if any(row["correct"] != [row["class_id"]] for row in testset.truth().to_pylist()):
        return  # a table of one class an image cannot hold this truth
    file = subject.scratch / "exported.parquet"
    export_tabular(testset, file, replace=True)
    back = read_table(
        file,
        name=testset.name,
        label_space=testset.label_space,
        types={c: k for c, k in testset.card.columns.items() if not k.multi},
        several=len(testset.truth()) > len(testset),  # an image of two classes has two rows
    )
    yield from _unequal(testset, back, "exported and imported", truths=1)


def _unequal(
    ours: TestSet, theirs: TestSet, what: str, *, truths: int | None = None
) -> Iterator[Violation]:
    pairs = {
        "images": (ours.images, theirs.images),
        "memberships": (ours.memberships, theirs.memberships),
    }
    for mine, other in list(zip(ours.truths, theirs.truths, strict=False))[:truths]:
        pairs[f"truth {mine}"] = (ours.truths[mine], theirs.truths[other])
    for table, (mine_table, other_table) in pairs.items():
        if hash_table(mine_table) != hash_table(other_table):
            yield Violation("round-trip", f"{what}, its {table} have other rows")
    if ours.label_space.fingerprint != theirs.label_space.fingerprint:
        yield Violation("round-trip", f"{what}, it has another label space")


def check_kind(kind: type[Any]) -> list[str]:
    """What keeps a class from being a recipe's parameters; empty when all is well."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return ["is no dataclass"]
    problems = []
    if not getattr(kind, "__dataclass_params__").frozen:  # noqa: B009 - mypy does not know it
        problems.append("is not frozen")
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(f"field {field.name} has no default")
        if not known_type(hints[field.name]):
            kind_name = getattr(hints[field.name], "__name__", hints[field.name])
            problems.append(f"field {field.name} has the type {kind_name}")
    return problems


def known_type(hint: Any) -> bool:
    """Whether parameters are read from values of this type."""

    def one(kind: Any) -> bool:
        if get_origin(kind) is tuple:
            inner = get_args(kind)
            return len(inner) == 2 and inner[1] is Ellipsis and known_type(inner[0])
        return kind in (bool, int, float, str, type(None)) or get_origin(kind) is Literal

    union = get_origin(hint) in (Union, types.UnionType)
    return all(one(kind) for kind in (get_args(hint) if union else (hint,)))
