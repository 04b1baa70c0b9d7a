"""Names of classes for formats that know a class by its name alone: each name once."""

from __future__ import annotations

from heldout.data.labels.label_space import Class, LabelSpace


def unique_names(space: LabelSpace) -> tuple[str, ...]:
    """One name for each class in order, no two alike; ImageNet-1k has two ``crane``.

    The usual name, if no other class has it; else with a synonym, a parent or the id in brackets,
    whichever first makes it unique: ``crane (wading bird)``.
    """
    usual = [_one_line(item.name) for item in space]
    counts: dict[str, int] = {}
    for name in usual:
        counts[name] = counts.get(name, 0) + 1
    taken = {name for name in usual if counts[name] == 1}
    names = []
    for item, name in zip(space, usual, strict=True):
        if counts[name] > 1:
            name = next(n for n in _candidates(item, name) if n not in taken)
            taken.add(name)
        names.append(name)
    return tuple(names)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _candidates(item: Class, name: str) -> list[str]:
    other = [_one_line(synonym) for synonym in item.names[1:]]
    if not other and item.parents:
        nodes = LabelSpace.load("wordnet-nodes")
        other = [nodes.get(parent).name for parent in item.parents if parent in nodes]
    return [f"{name} ({extra})" for extra in [*other, item.id]] + [
        f"{name} ({item.id}, {n})" for n in range(2, 1000)
    ]
