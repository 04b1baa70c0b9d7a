"""One model under two file names: found across sets, joined, and reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SUFFIXES = ("_model", "_checkpoint", "_weights", "_predictions", "_preds", "_topk")


def find_aliases(models_by_set: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """For each set, file names that are another set's model with a suffix: {set: {name: model}}.

    A name is an alias only if the plain name is missing in its own set and present in another:
    two files of one set are two models, whatever they are called.

    >>> find_aliases({"a": ["fv_64k_model", "vgg"], "b": ["fv_64k", "vgg"]})
    {'a': {'fv_64k_model': 'fv_64k'}}
    """
    everywhere = {name for names in models_by_set.values() for name in names}
    found: dict[str, dict[str, str]] = {}
    for where, names in models_by_set.items():
        for name in names:
            for suffix in SUFFIXES:
                plain = name.removesuffix(suffix)
                if plain != name and plain and plain not in names and plain in everywhere:
                    found.setdefault(where, {})[name] = plain
    return found
