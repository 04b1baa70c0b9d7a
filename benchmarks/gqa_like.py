"""A file of the shape and size of GQA's scene graphs, drawn by chance: no image, no annotation.

As published: 113,018 images, 1,702 object names, about 16 objects an image, counts of names that
fall as Zipf's law says, attributes, boxes, relations in lists, location and weather often missing.
Images belong to scenes with names of their own, so that names come together as they do in life.
The same arguments give the same bytes.

    python benchmarks/gqa_like.py OUT.json [--images N] [--seed S]

OUT may end in .json, .json.gz or .zip. At full size it is about 460 MB, written in half a minute.
"""

from __future__ import annotations

import argparse
import gzip
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

IMAGES = 113_018
NAMES = 1_702
ATTRIBUTES = 617
_BLOCK = 2_000
_LOCATIONS = ("indoors", "outdoors", "street", "beach", "kitchen", "bathroom", "field")
_WEATHER = ("clear", "sunny", "cloudy", "overcast", "rainy", "foggy")
_SYLLABLES = tuple(a + b for a in "bdfgklmnprstv" for b in ("a", "e", "i", "o", "u", "ai", "or"))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How large the file is, and how its counts fall.

    ``objects``    mean objects an image; ``attributed`` mean attributes an object
    ``relations``  mean relations an object
    ``scenes``     kinds of scenes; ``apart`` the share of objects drawn from the scene's own names
    ``exponent``   of Zipf's law
    """

    images: int = IMAGES
    names: int = NAMES
    attributes: int = ATTRIBUTES
    objects: float = 16.4
    attributed: float = 0.5
    relations: float = 3.0
    scenes: int = 48
    apart: float = 0.6
    exponent: float = 1.0


def words(count: int, *, seed: int) -> list[str]:
    """Made-up words, all different; some of two words, as "fire hydrant" is."""
    random = np.random.default_rng([seed, count])
    found: dict[str, None] = {}
    while len(found) < count:
        made = "".join(random.choice(_SYLLABLES, size=random.integers(2, 4)))
        if random.random() < 0.2:
            made += " " + "".join(random.choice(_SYLLABLES, size=2))
        found[made] = None
    return list(found)


def scene_graphs(shape: Shape, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """(image id, JSON of its scene graph), one image after the other."""
    random = np.random.default_rng(seed)
    names, attributes = words(shape.names, seed=seed), words(shape.attributes, seed=seed + 1)
    general = _zipf(shape.names, shape.exponent)
    # Each scene puts another order on the names: what is common in one is rare in the next.
    orders = np.stack([random.permutation(shape.names) for _ in range(shape.scenes)])
    ids = 2_300_000 + np.cumsum(random.integers(1, 3, size=shape.images))
    for start in range(0, shape.images, _BLOCK):
        block = ids[start : start + _BLOCK]
        counts = 1 + random.poisson(shape.objects - 1, size=len(block))
        total = int(counts.sum())
        scenes = np.repeat(random.integers(shape.scenes, size=len(block)), counts)
        ranks = _draw(random, general, total)
        own = random.random(total) < shape.apart
        drawn = np.where(own, orders[scenes, ranks], ranks)
        parts = _objects(random, shape, names, attributes, drawn, counts)
        ends = np.cumsum(counts)
        sizes = random.integers(300, 1025, size=(len(block), 2))
        chance = random.random((len(block), 2))
        picks = random.integers(0, 1 << 16, size=(len(block), 2))
        for place, image in enumerate(block.tolist()):
            end = int(ends[place])
            objects = ", ".join(parts[end - int(counts[place]) : end])
            extra = ""
            if chance[place, 0] < 0.3:
                extra += f', "location": "{_LOCATIONS[picks[place, 0] % len(_LOCATIONS)]}"'
            if chance[place, 1] < 0.15:
                extra += f', "weather": "{_WEATHER[picks[place, 1] % len(_WEATHER)]}"'
            yield (
                str(image),
                f'{{"width": {sizes[place, 0]}, "height": {sizes[place, 1]}{extra}, '
                f'"objects": {{{objects}}}}}',
            )


def _objects(
    random: np.random.Generator,
    shape: Shape,
    names: list[str],
    attributes: list[str],
    drawn: np.ndarray,
    counts: np.ndarray,
) -> list[str]:
    """The JSON of every object of a block, with its key."""
    total = len(drawn)
    boxes = random.integers(0, 300, size=(total, 4)).tolist()
    many = random.poisson(shape.attributed, size=total)
    law = _zipf(shape.attributes, shape.exponent)
    said = iter(_draw(random, law, int(many.sum())).tolist())
    linked = random.poisson(shape.relations, size=total)
    others = iter(random.random(int(linked.sum())).tolist())
    predicates = iter(random.integers(0, 10, size=int(linked.sum())).tolist())
    made: list[str] = []
    first = 0
    for count in counts.tolist():
        for key in range(first, first + count):
            x, y, w, h = boxes[key]
            told = ", ".join(f'"{attributes[next(said)]}"' for _ in range(many[key]))
            relations = ", ".join(
                f'{{"object": "{1_000_000 + first + int(next(others) * count)}", '
                f'"name": "{_PREDICATES[next(predicates)]}"}}'
                for _ in range(linked[key])
            )
            made.append(
                f'"{1_000_000 + key}": {{"name": "{names[drawn[key]]}", "x": {x}, "y": {y}, '
                f'"w": {w + 1}, "h": {h + 1}, "attributes": [{told}], "relations": [{relations}]}}'
            )
        first += count
    return made


_PREDICATES = ("to the left of", "to the right of") * 4 + ("on", "near")


def _zipf(n: int, exponent: float) -> np.ndarray:
    """Cumulated shares of n ranks."""
    shares = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return np.cumsum(shares / shares.sum())


def _draw(random: np.random.Generator, law: np.ndarray, size: int) -> np.ndarray:
    return np.minimum(np.searchsorted(law, random.random(size)), len(law) - 1)


@contextmanager
def _writing(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".zip":
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
            archive.open("train_sceneGraphs.json", "w", force_zip64=True) as member,
        ):
            text = io.TextIOWrapper(member, encoding="utf-8")
            yield text
            text.flush()
            text.detach()
    elif path.suffix == ".gz":
        with (
            path.open("wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1, mtime=0) as packed,
            io.TextIOWrapper(packed, encoding="utf-8") as text,
        ):
            yield text
    else:
        with path.open("w", encoding="utf-8") as text:
            yield text


def write_gqa_like(path: Path, shape: Shape | None = None, *, seed: int = 0) -> None:
    """Write a file of scene graphs: one JSON object, keyed by image id."""
    with _writing(path) as handle:
        between = "{"
        for image, graph in scene_graphs(shape or Shape(), seed=seed):
            handle.write(f'{between}"{image}": {graph}')
            between = ", "
        handle.write("{}" if between == "{" else "}")


def main() -> None:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_gqa_like(arguments.path, Shape(images=arguments.images), seed=arguments.seed)


if __name__ == "__main__":
    main()
