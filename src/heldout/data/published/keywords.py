"""GeoYFCC's step from tags to classes: an image has the classes of which a tag is a keyword."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import read_json, sha256_file
from heldout.core.workspace import slug
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.wordnet import BUILT_IN


@dataclass(frozen=True, eq=False)
class Keywords:
    """Classes and the words by which a tag means them.

    ``words``  folded keyword → positions of its classes in ``space``; several for a homonym
    ``facts``  where they came from
    """

    space: LabelSpace
    words: Mapping[str, tuple[int, ...]]
    facts: Mapping[str, Any]

    @cached_property
    def _table(self) -> tuple[Any, NDArray[np.int64], NDArray[np.int64]]:
        """The keywords as an Arrow array; where each one's classes begin; the classes."""
        import pyarrow as pa

        counts = [len(classes) for classes in self.words.values()]
        starts = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        flat = [position for classes in self.words.values() for position in classes]
        return pa.array(list(self.words), pa.string()), starts, np.array(flat, dtype=np.int64)

    def classes_of(self, tags: Any) -> Any:
        """The class ids of lists of tags, as lists in the order of the label space, each once.

        ``tags`` is an Arrow list array of decoded texts without nulls. A tag counts where it *equals*
        a keyword; case, underscores and spaces around it do not matter.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        words, starts, classes = self._table
        place = pc.index_in(folded_tags(tags.flatten()), value_set=words).fill_null(-1)
        codes = place.to_numpy(zero_copy_only=False).astype(np.int64)
        hit = np.flatnonzero(codes >= 0)
        begin, end = starts[codes[hit]], starts[codes[hit] + 1]
        counts = end - begin
        rows = np.repeat(pc.list_parent_indices(tags).to_numpy()[hit], counts)
        first = np.repeat(begin - np.cumsum(counts) + counts, counts)
        pairs = np.unique(rows * len(self.space) + classes[first + np.arange(len(rows))])
        rows, found = np.divmod(pairs, len(self.space))
        offsets = np.zeros(len(tags) + 1, dtype=np.int32)
        np.cumsum(np.bincount(rows, minlength=len(tags)), out=offsets[1:])
        ids = pa.array(self.space.ids, pa.string()).take(pa.array(found, pa.int64()))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids)


def folded_tags(values: Any) -> Any:
    """Tags and keywords as they are compared: lower case, underscores as spaces, trimmed."""
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(pc.replace_substring(pc.utf8_lower(values), "_", " "))


def read_keywords(argument: str, *, without: str | None = None) -> Keywords:
    """Keywords from a label space (its names), or a file.

    ``argument``  a built-in label space; or a file: a label space; ``{class id: [keyword, …]}``;
                  GeoYFCC's ``in5k_map.json``, a list of ``{"label_id": …, "label_name": wnid}``, whose
                  keywords are WordNet's names; a CSV with ``class_id,keyword``
    ``without``   a label space whose classes do not count: GeoYFCC leaves out ``imagenet-1k``
    """
    path = Path(argument)
    facts: dict[str, Any] = {"from": path.name}
    if argument in BUILT_IN:
        named = [(item, item.names) for item in LabelSpace.load(argument)]
        name = argument
    else:
        named, name = _of_file(path)
        facts["sha256"] = sha256_file(path)
    if without is not None:
        left_out = set(LabelSpace.load(without).ids)
        named = [(item, words) for item, words in named if item.id not in left_out]
        facts["without"] = Path(without).name
        name = f"{name}-without-{slug(Path(without).stem)}".lower()
    if not named:
        raise LabelError(f"{argument} has no class with keywords", fix="name one class at least")
    return _keywords(named, name, facts)


def _keywords(
    named: list[tuple[Class, tuple[str, ...]]], name: str, facts: dict[str, Any]
) -> Keywords:
    import pyarrow as pa

    words: dict[str, list[int]] = {}
    for position, (_, listed) in enumerate(named):
        folded = folded_tags(pa.array(list(listed), pa.string())).to_pylist()
        for word in dict.fromkeys(folded):
            if word:
                words.setdefault(word, []).append(position)
    several = sum(len(positions) > 1 for positions in words.values())
    facts |= {"classes": len(named), "keywords": len(words), "of_several_classes": several}
    space = _space(name, tuple(item for item, _ in named))
    return Keywords(space, {word: tuple(words[word]) for word in words}, facts)


def _space(name: str, classes: tuple[Class, ...]) -> LabelSpace:
    """The label space of these classes; a file that is called as a built-in one is not that one."""
    if name in BUILT_IN:
        known = LabelSpace.load(name)
        if tuple(known.ids) == tuple(item.id for item in classes):
            return known
        name = f"{name}-keywords"
    return LabelSpace(name, classes)


def _of_file(path: Path) -> tuple[list[tuple[Class, tuple[str, ...]]], str]:
    name = slug(path.name.partition(".")[0]).lower()
    if path.suffix.lower() in (".csv", ".tsv"):
        from heldout.core.tables import read_table_file, require_column

        table = read_table_file(path)
        ids, words = (
            require_column(table, column, path, "it").to_pylist()
            for column in ("class_id", "keyword")
        )
        listed: dict[str, list[str]] = {}
        for class_id, word in zip(ids, words, strict=True):
            if class_id and word:
                listed.setdefault(class_id, []).append(word)
        return _plain(listed.items()), name
    value = read_json(path)
    if isinstance(value, dict) and "classes" in value and "schema_version" in value:
        space = LabelSpace.read(path)
        return [(item, item.names) for item in space], space.name
    if isinstance(value, dict) and all(_texts(words) for words in value.values()):
        return _plain(value.items()), name
    if isinstance(value, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("label_name"), str) for entry in value
    ):
        return _synsets([entry["label_name"] for entry in value], path), name
    raise BadFile(
        path,
        "holds no keywords",
        fix='write {"class id": ["keyword", …]} or a CSV with class_id,keyword',
    )


def _plain(items: Iterable[tuple[str, list[str]]]) -> list[tuple[Class, tuple[str, ...]]]:
    return [(Class(key, tuple(words)), tuple(words)) for key, words in items if words]


def _synsets(wnids: list[str], path: Path) -> list[tuple[Class, tuple[str, ...]]]:
    nodes = LabelSpace.load("wordnet-nodes")
    unknown = [wnid for wnid in wnids if wnid not in nodes]
    if unknown:
        raise BadFile(path, f"names {unknown[0]!r}, which is no known WordNet id", fix="remove it")
    return [(nodes.get(wnid), nodes.get(wnid).names) for wnid in dict.fromkeys(wnids)]


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
