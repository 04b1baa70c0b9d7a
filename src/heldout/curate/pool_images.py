"""The images that a verb is asked about: a pool, a test set, a folder, or vectors of images."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from heldout.core.context import Context
from heldout.core.errors import NotFound
from heldout.core.workspace import Workspace, slug
from heldout.data.images import FolderSource, ImageInfo, examine
from heldout.data.testset import find_testset
from heldout.data.testset.catalogue import find_pool, list_pools
from heldout.data.testset.tables import image_table
from heldout.data.testset.testset import TestSet, make_pool
from heldout.models.embeddings import Embeddings, is_embeddings, read_embeddings

_PREFIX = "embeddings:"


@dataclass(frozen=True, eq=False)
class PoolImages:
    """Images that were found. One of ``pool`` and ``embeddings`` is there."""

    name: str
    pool: TestSet | None = None
    embeddings: Embeddings | None = None


def find_candidates(workspace: Workspace, text: str) -> PoolImages:
    """The images that an argument means.

    ``embeddings:PATH``, or a path to vectors; the name or the folder of a pool; a test set; a
    folder of images. A test set's name comes before a folder of that name, from which it may have
    been imported; ``NAME/`` is the folder.
    """
    path = Path(text.removeprefix(_PREFIX))
    if text.startswith(_PREFIX) or is_embeddings(path):
        return PoolImages(slug(path.stem), embeddings=read_embeddings(path))
    is_set = any((path / head).is_file() for head in ("pool.json", "card.json"))
    fix = ""
    if is_set or not text.endswith("/"):
        for find in (find_pool, find_testset):
            try:
                found = find(workspace, text)
            except NotFound as error:
                fix = error.fix
            else:
                return PoolImages(found.name, pool=found)
    if path.is_dir():
        pool = folder_pool(path)
        return PoolImages(pool.name, pool=pool)
    pools = ", ".join(entry.card.name for entry in list_pools(workspace)[:6])
    raise NotFound(
        f"no pool, test set, folder or vectors {text!r}",
        fix=f"there are the pools {pools}" if pools else fix,
    )


def find_images(context: Context, name: str) -> PoolImages:
    """The images that a request names, a test set or pool in memory among them."""
    found = context.find(name, find_candidates)
    if isinstance(found, TestSet):
        return PoolImages(found.name, pool=found)
    return found


def note_failures(vectors: Embeddings, context: Context) -> None:
    """Say which images have no vector, and why."""
    failures = vectors.facts.get("failures", {})
    for image, reason in list(failures.items())[:5]:
        context.note(f"{image}: {reason}")
    if len(failures) > 5:
        context.note(f"and {len(failures) - 5:,} more images without a vector")


def folder_pool(path: Path, *, name: str | None = None) -> TestSet:
    """A folder of images as a pool: ids are paths below it, sorted; files hashed, sizes read."""
    source = FolderSource(path)
    ids = list(source.ids())
    if not ids:
        raise NotFound(f"no images in {path}", fix="give a folder of images, a pool or a test set")
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda image: examine(source, image, decode=False), ids))
    sizes = [each.result if isinstance(each.result, ImageInfo) else None for each in found]
    table = image_table(
        {
            "image_id": ids,
            "path": ids,
            "sha256": [each.sha256 or None for each in found],
            "width": [size and size.width for size in sizes],
            "height": [size and size.height for size in sizes],
        }
    )
    return make_pool(
        name or slug(path.resolve().name),
        images=table,
        images_root=path,
        facts={"source": "folder", "images": len(ids)},
    )
