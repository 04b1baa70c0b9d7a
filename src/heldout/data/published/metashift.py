"""MetaShift's candidate subsets, subject(context) with its image ids, in and out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heldout.core.errors import BadFile, NotApplicable, UserError
from heldout.core.files import write_text
from heldout.core.unpickle import read_pickle
from heldout.data.published.annotations import clean_name, read_ontology
from heldout.data.published.json_stream import Progress, documents, open_json
from heldout.data.published.pool_builder import PoolBuilder, id_text
from heldout.data.published.requests import MetaShiftSubsetsRequest
from heldout.data.testset.testset import TestSet

_CODED = re.compile("%2[589]")
_MARKS = re.compile("[%()]")


class SubsetName(NamedTuple):
    """The two words of a subset: what is shown, and with or in what."""

    subject: str
    context: str


def join_subset_name(subject: str, context: str) -> str:
    """The name of a subset of two words, neither empty: ``subject(context)``.

    A context whose own parentheses do not balance is written with ``%28`` and ``%29`` for them, and
    then ``%25`` for a percent sign.

    >>> join_subset_name("cat", "shelf (wall)"), join_subset_name("cat", ":)")
    ('cat(shelf (wall))', 'cat(:%29)')
    """
    if _MARKS.search(context) and (_opening(f"({context})") != 0 or _CODED.search(context)):
        context = _MARKS.sub(lambda found: f"%{ord(found[0]):X}", context)
    return f"{subject}({context})"


def split_subset_name(name: str) -> SubsetName:
    """The words of a subset's name; any other text is a user's error.

    The context is the last balanced group of parentheses.

    >>> split_subset_name("bird (toy)(cage (red))"), split_subset_name("cat(:%29)").context
    (SubsetName(subject='bird (toy)', context='cage (red)'), ':)')
    """
    start = _opening(name)
    subject, context = name[: max(start, 0)], name[start + 1 : -1]
    if not subject or not context:
        raise UserError(
            f"{name!r} is not a subset", fix="write subject(context), such as cat(sofa)"
        )
    return SubsetName(subject, _CODED.sub(lambda found: chr(int(found[0][1:], 16)), context))


def _opening(text: str) -> int:
    """Where the group of parentheses that ends the text opens; -1 where none does."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] == ")") - (text[place] == "(")
        if depth <= 0:
            return place if depth == 0 and text[place] == "(" else -1
    return -1


_Subset = tuple[str, str, str, Any]  # category ("" in the flat layout), subject, context, ids


def read_metashift(
    paths: Sequence[Path],
    builder: PoolBuilder,
    options: MetaShiftSubsetsRequest,
    progress: Progress,
) -> dict[str, Any]:
    """Gather subsets; returns the categories of attributes where the files state them."""
    subsets = [subset for path in paths for subset in _subsets(path, builder)]
    ontology = read_ontology(options.ontology)
    subjects = {subject for _, subject, _, _ in subsets}
    contexts = {context for _, _, context, _ in subsets}
    of_objects = len(contexts & subjects) * 2 > len(contexts)
    categories: dict[str, set[str]] = {}
    for category, subject, context, ids in subsets:
        if ontology is not None and context not in ontology:
            builder.problems.add(
                "subset whose attribute the ontology does not list, left out",
                join_subset_name(subject, context),
            )
            continue
        if category:
            categories.setdefault(context, set()).add(category)
        name = join_subset_name(subject, context)
        for image_id in ids:
            place = builder.image(image_id, name)
            if place >= 0:
                builder.add("object", place, (subject, context) if of_objects else (subject,))
                builder.add("subset" if of_objects else "attribute", place, (name,))
    found: dict[str, Any] = {"contexts": "object" if of_objects else "attribute"}
    if categories:
        found["attribute_categories"] = {key: sorted(categories[key]) for key in sorted(categories)}
    return found


def _subsets(path: Path, builder: PoolBuilder) -> Iterator[_Subset]:
    value = _read(path)
    if not isinstance(value, Mapping) or not value:
        raise _no_layout(path, "is not a table of subsets")
    nested = [isinstance(entry, Mapping) for entry in value.values()]
    if any(nested) and not all(nested):
        raise _no_layout(path, "mixes subsets and categories")
    rows = _structured(path, value) if all(nested) else _flat(path, value)
    for category, subject, context, ids in rows:
        where = join_subset_name(str(subject)[:60], str(context)[:60])
        subject, context = clean_name(subject), clean_name(context)
        if not subject or not context:
            builder.problems.add("subset whose name cannot be read, left out", where)
        elif not isinstance(ids, set | frozenset | list | tuple):
            builder.problems.add("subset without a set of images, left out", where)
        elif not ids:
            builder.problems.add("subset without any image, left out", where)
        else:
            # Sets have no order of their own: sorted, so that every run numbers images alike.
            yield clean_name(category), subject, context, sorted(map(id_text, ids))


def _flat(path: Path, value: Mapping[Any, Any]) -> Iterator[_Subset]:
    for name, ids in value.items():
        try:
            subject, context = split_subset_name(name if isinstance(name, str) else "")
        except UserError:
            raise _no_layout(path, f"has {name!r:.60}, which is not subject(context)") from None
        yield "", subject, context, ids


def _structured(path: Path, value: Mapping[Any, Any]) -> Iterator[_Subset]:
    for category, subjects in value.items():
        for subject, contexts in subjects.items():
            if not isinstance(contexts, Mapping):
                raise _no_layout(path, f"has no attributes under {category!r:.40}, {subject!r:.40}")
            for context, ids in contexts.items():
                prefix = f"{subject}("
                if isinstance(context, str) and context.startswith(prefix) and context[-1] == ")":
                    context = context[len(prefix) : -1]
                yield str(category), subject, context, ids


def _read(path: Path) -> Any:
    if path.suffix.lower() not in (".json", ".gz", ".zip"):
        return read_pickle(path, allow=[("collections", "defaultdict")])
    merged: dict[str, Any] = {}
    for document in documents(path):
        with open_json(document) as stream:
            for key in stream.members():
                merged[key] = stream.value()
            stream.finish()
    return merged


def _no_layout(path: Path, what: str) -> BadFile:
    return BadFile(
        path,
        what,
        fix="give {subject(context): ids} or {category: {subject: {attribute: ids}}}",
    )


COLUMNS = ("attribute", "subset", "relation")
"""The membership columns whose values are ``subject(context)``."""


def subsets_of(pool: TestSet) -> dict[str, list[str]]:
    """Every ``subject(context)`` of a pool with its image ids; both sorted."""
    pairs = {
        (row["value"], row["image_id"])
        for row in pool.memberships.to_pylist()
        if row["column"] in COLUMNS
    }
    if not pairs:
        raise NotApplicable(
            f"pool {pool.name} has no subsets of its own",
            fix="heldout build contexts makes them from objects",
        )
    found: dict[str, list[str]] = {}
    for value, image_id in sorted(pairs):
        found.setdefault(value, []).append(image_id)
    return found


def write_subsets(pool: TestSet, path: Path) -> None:
    """Write a pool's subsets as JSON that the source ``metashift`` reads back.

    Where the pool knows the categories of attributes they are nested, category → subject →
    attribute → image ids: an attribute of several is under each, one of none under ``other``.
    """
    import json

    made: dict[str, Any] = dict(subsets_of(pool))
    categories = pool.card.facts.get("attribute_categories")
    if categories:
        nested: dict[str, dict[str, dict[str, list[str]]]] = {}
        for name, ids in made.items():
            subject, context = split_subset_name(name)
            for category in categories.get(context, ["other"]):
                nested.setdefault(category, {}).setdefault(subject, {})[context] = ids
        made = {category: nested[category] for category in sorted(nested)}
    write_text(path, json.dumps(made, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n")
