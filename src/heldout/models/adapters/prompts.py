"""Prompts of zero-shot classifiers: what a class is called, and the sentences around its name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, LabelError
from heldout.core.extras import require
from heldout.core.files import existing_file
from heldout.data.labels.label_space import Class, LabelSpace, folded

NONE = ("{}",)
SINGLE = ("a photo of a {}.",)
_KINDS = (
    "photo",
    "close-up",
    "snapshot",
    "picture taken outdoors",
    "picture taken indoors",
    "drawing",
    "painting",
    "sketch",
    "sculpture",
    "render",
)
_LOOKS = (
    "a {kind} of a {{}}.",
    "a {kind} of the {{}}.",
    "a {kind} of one small {{}}.",
    "a {kind} of one large {{}}.",
    "a {kind} of several things, among them a {{}}.",
    "a dark {kind} of a {{}}.",
    "a blurred {kind} of a {{}}.",
    "a {kind} of a {{}}, partly hidden.",
)
ENSEMBLE = tuple(look.format(kind=kind) for kind in _KINDS for look in _LOOKS)
"""80 sentences: ten kinds of pictures, each looking eight ways."""


def class_texts(space: LabelSpace, source: str = "first") -> tuple[str, ...]:
    """What each class of a label space is called in its prompts.

    ``source`` is ``first`` (see :func:`distinct_names`), ``lemmas`` (all names of a class, joined by
    a comma and a space, as CLIP-GeoYFCC has them; classes may share such a text), ``openai``
    (the names that open_clip carries for ImageNet-1k), or a file with one name per line in the order
    of the classes.
    """
    if source == "first":
        return distinct_names(space)
    if source == "lemmas":
        return tuple(", ".join(item.names).replace("_", " ") or item.id for item in space)
    if source == "openai":
        if space.fingerprint != LabelSpace.load("imagenet-1k").fingerprint:
            raise LabelError(
                f"there are no published class names for {space.name}",
                fix="use class_names=first, or a file with one name per line",
            )
        return tuple(_open_clip("the class names openai").IMAGENET_CLASSNAMES)
    path = existing_file(Path(source), "file of class names")
    lines = _lines(path)
    if len(lines) != len(space):
        raise BadFile(
            path,
            f"has {len(lines)} names, {space.name} has {len(space)} classes",
            fix="write one name per line",
        )
    return lines


def prompt_templates(source: str = "single") -> tuple[str, ...]:
    """The sentences of the prompts, with ``{}`` where the name goes.

    ``source`` is ``none``, ``single``, ``ensemble`` (:data:`ENSEMBLE`), ``openai`` (the 80 with
    which CLIP was evaluated on ImageNet, as open_clip carries them), or a file with one per line.

    >>> prompt_templates("none"), prompt_templates("single")
    (('{}',), ('a photo of a {}.',))
    """
    known = {"none": NONE, "single": SINGLE, "ensemble": ENSEMBLE}
    if source in known:
        return known[source]
    if source == "openai":
        # open_clip keeps them as functions of a name.
        templates = _open_clip("the templates openai").OPENAI_IMAGENET_TEMPLATES
        return tuple(template("{}") for template in templates)
    path = existing_file(Path(source), "file of templates")
    lines = _lines(path)
    if not lines:
        raise BadFile(path, "has no templates", fix="write one per line, {} where the name goes")
    for number, line in enumerate(lines, start=1):
        if line.count("{}") != 1:
            raise BadFile(
                path, f"line {number} has no single {{}}", fix="put {} where the name goes"
            )
    return lines


def _open_clip(purpose: str) -> Any:
    return require("open_clip", extra="clip", purpose=purpose)


def distinct_names(space: LabelSpace) -> tuple[str, ...]:
    """The usual name of each class; classes that share one get more, so that no two are the same.

    A text encoder cannot tell two classes by one name: of ImageNet-1k's two cranes one would
    always lose. Those get all their names, and where these are shared too, the gloss.
    """

    def full(item: Class) -> str:
        return ", ".join(item.names) or item.id

    steps = (
        lambda item: item.name,
        full,
        lambda item: f"{full(item)}, {item.gloss}" if item.gloss else full(item),
        lambda item: f"{full(item)}, {item.gloss} ({item.id})",
    )
    texts = [""] * len(space)
    open_places = list(range(len(space)))
    for step in steps:
        for place in open_places:
            texts[place] = step(space.classes[place]).replace("_", " ")
        counts = Counter(map(folded, texts))
        open_places = [place for place in open_places if counts[folded(texts[place])] > 1]
    return tuple(texts)


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="save it as UTF-8") from None
    return tuple(line.strip() for line in text.splitlines() if line.strip())
