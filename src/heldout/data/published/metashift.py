"""MetaShift's candidate subsets: ``subject(context)`` → image ids, flat or by category.

Flat:        ``{"cat(black)": {ids}}``
Structured:  ``{"color": {"cat": {"black": {ids}}}}``, or ``{"color": {"cat": {"cat(black)": {ids}}}}``

Pickles go through the restricted reader: only containers are rebuilt, and one that names anything
else is refused before it runs. The same layouts in JSON (lists of ids) are read too.

Columns: ``object``, the subjects; contexts that are attributes as ``attribute``; contexts that are
objects as ``subset``, and then as ``object`` too, since such an image shows both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile
from heldout.core.unpickle import read_pickle
from heldout.data.published.documents import Progress, documents
from heldout.data.published.gathering import Gathering, id_text
from heldout.data.published.json_stream import open_json
from heldout.data.published.names import Names
from heldout.data.published.options import ReaderOptions
from heldout.data.published.subset_names import joined, parted

_Subset = tuple[str, str, str, Any]  # category ("" in the flat layout), subject, context, ids


def read_metashift(
    paths: Sequence[Path], gathering: Gathering, options: ReaderOptions, progress: Progress
) -> dict[str, Any]:
    """Gather subsets; returns the categories of attributes where the files state them."""
    subsets = [subset for path in paths for subset in _subsets(path, gathering)]
    column = options.contexts
    if column == "auto":
        subjects = {subject for _, subject, _, _ in subsets}
        contexts = {context for _, _, context, _ in subsets}
        column = "object" if len(contexts & subjects) * 2 > len(contexts) else "attribute"
    categories: dict[str, set[str]] = {}
    for category, subject, context, ids in subsets:
        if options.ontology is not None and context not in options.ontology:
            gathering.problems.add(
                "subset whose attribute the ontology does not list, left out",
                joined(subject, context),
            )
            continue
        if category:
            categories.setdefault(context, set()).add(category)
        _gather(gathering, subject, context, ids, column)
    found: dict[str, Any] = {"contexts": column}
    if categories:
        found["attribute_categories"] = {key: sorted(categories[key]) for key in sorted(categories)}
    return found


def _gather(gathering: Gathering, subject: str, context: str, ids: Any, column: str) -> None:
    name = joined(subject, context)
    places = [gathering.image(image_id, name) for image_id in ids]
    numbers = np.array([place for place in places if place >= 0], dtype=np.int64)
    zeros = np.zeros(len(numbers), dtype=np.int64)
    gathering.add_codes("object", numbers, zeros, [subject])
    if column == "attribute":
        gathering.add_codes("attribute", numbers, zeros, [name])
    else:
        gathering.add_codes("object", numbers, zeros, [context])
        gathering.add_codes("subset", numbers, zeros, [name])


def _subsets(path: Path, gathering: Gathering) -> Iterator[_Subset]:
    value = _read(path)
    if not isinstance(value, Mapping) or not value:
        raise _no_layout(path, "is no table of subsets")
    nested = [isinstance(entry, Mapping) for entry in value.values()]
    if any(nested) and not all(nested):
        raise _no_layout(path, "mixes subsets and categories")
    rows = _structured(path, value) if all(nested) else _flat(path, value)
    names = Names()
    for category, subject, context, ids in rows:
        where = joined(str(subject)[:60], str(context)[:60])
        subject, context = names.clean(subject), names.clean(context)
        if not subject or not context:
            gathering.problems.add("subset whose name cannot be read, left out", where)
        elif not isinstance(ids, set | frozenset | list | tuple):
            gathering.problems.add("subset without a set of images, left out", where)
        elif not ids:
            gathering.problems.add("subset without any image, left out", where)
        else:
            usable = [text for text in map(id_text, ids) if text]
            if len(usable) < len(ids):
                gathering.problems.add(
                    "image without a usable id, left out", where, times=len(ids) - len(usable)
                )
            # Sets have no order of their own: sorted, so that every run numbers images alike.
            yield names.clean(category), subject, context, sorted(usable)


def _flat(path: Path, value: Mapping[Any, Any]) -> Iterator[_Subset]:
    for name, ids in value.items():
        subject, context = parted(name) if isinstance(name, str) else ("", "")
        if not subject:
            raise _no_layout(path, f"has {name!r:.60}, which is no subject(context)")
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
                if key in merged:
                    raise BadFile(document.name, f"has {key!r:.60} twice", fix="keep one")
                merged[key] = stream.value()
            stream.finish()
    return merged


def _no_layout(path: Path, what: str) -> BadFile:
    return BadFile(
        path,
        what,
        fix="give {subject(context): ids} or {category: {subject: {attribute: ids}}}",
    )
