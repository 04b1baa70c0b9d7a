"""COCO captions: the words that people used for an image.

Column: ``caption_word`` (see :mod:`heldout.data.published.words`). Without a vocabulary every word counts,
"the" and "behind" too: give one, or leave words out when subsets are built.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heldout.data.published.coco_files import CocoFile, place_images, read_coco_file
from heldout.data.published.documents import Progress, documents
from heldout.data.published.gathering import Gathering, id_text
from heldout.data.published.options import ReaderOptions
from heldout.data.published.words import Words, singular

COLUMN = "caption_word"


def read_captions(
    paths: Sequence[Path], gathering: Gathering, options: ReaderOptions, progress: Progress
) -> None:
    """Gather files of captions."""
    words = Words(options.vocabulary, fold_plurals=options.fold_plurals)
    for document in (document for path in paths for document in documents(path)):
        captions = _Captions(words)
        file = read_coco_file(document, gathering, captions.take, progress=progress)
        places = place_images(file, gathering)
        if not len(captions.images):
            continue
        at = places[np.frombuffer(captions.images, dtype=np.int64)]
        codes = np.frombuffer(captions.codes, dtype=np.int64)
        known = at >= 0
        if not known.all():
            lost = int((places < 0).sum())
            gathering.problems.add(
                "image with captions that the file does not list, left out",
                next(image for image, number in file.numbers.items() if places[number] < 0),
                times=lost,
                image_lost=True,
            )
        gathering.add_codes(COLUMN, at[known], codes[known], list(captions.vocabulary))
    fold_plurals(gathering, options)


class _Captions:
    """Captions as numbers: the image and the word."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.images = array("q")
        self.codes = array("q")
        self.vocabulary: dict[str, int] = {}

    def take(self, file: CocoFile, entry: dict[str, Any]) -> str:
        """Keep the words of one caption."""
        caption = entry.get("caption")
        if not isinstance(caption, str) or not id_text(entry.get("image_id")):
            return "annotation without an image or a caption, left out"
        number = file.number(entry["image_id"])
        vocabulary = self.vocabulary
        for word in sorted(self.words.of(caption)):
            self.images.append(number)
            self.codes.append(vocabulary.setdefault(word, len(vocabulary)))
        return ""


def fold_plurals(gathering: Gathering, options: ReaderOptions) -> None:
    """Without a vocabulary, plurals fold into singulars that were met; with one, they have."""
    if options.fold_plurals and options.vocabulary is None:
        known = frozenset(gathering.vocabulary(COLUMN))
        gathering.rename(COLUMN, lambda word: singular(word, known))
