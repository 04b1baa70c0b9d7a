"""What is to be annotated: a pool, a test set, a folder of images, or vectors made elsewhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import NotFound
from heldout.core.workspace import Workspace, slug
from heldout.data.images import FolderSource, ImageInfo, ImageSource, examine
from heldout.data.testset import TestSet, find_testset, list_testsets
from heldout.data.testset.pool import Pool, make_pool, pool_of
from heldout.data.testset.pool_files import find_pool, list_pools
from heldout.data.testset.tables import image_table
from heldout.models.embeddings.store import Embeddings, is_embeddings, read_embeddings

_PREFIX = "embeddings:"


@dataclass(frozen=True, eq=False)
class Candidates:
    """Images to annotate. One of ``pool`` and ``embeddings`` is there, or both.

    ``source``  where the images of a set that lies in no folder come from
    """

    name: str
    pool: Pool | None = None
    embeddings: Embeddings | None = None
    source: ImageSource | None = None

    def __len__(self) -> int:
        if self.pool is not None:
            return len(self.pool)
        return 0 if self.embeddings is None else len(self.embeddings)


def find_candidates(workspace: Workspace, text: str) -> Candidates:
    """The images that an argument means.

    ``embeddings:PATH``, or a path to vectors; the name or the folder of a pool; a test set; a
    folder of images. A test set's name comes before a folder of that name, from which it may have
    been imported; ``NAME/`` is the folder.
    """
    path = Path(text.removeprefix(_PREFIX))
    if text.startswith(_PREFIX) or is_embeddings(path):
        return Candidates(slug(path.stem), embeddings=read_embeddings(path))
    known = {head.name for head in list_pools(workspace)}
    if text in known or (path / "pool.json").is_file():
        pool = find_pool(workspace, text)
        return Candidates(pool.name, pool=pool)
    named = {
        name
        for entry in list_testsets(workspace)
        for name in (entry.card.name, *entry.card.aliases)
    }
    if text not in named and path.is_dir() and not (path / "card.json").is_file():
        pool = folder_pool(path)
        return Candidates(pool.name, pool=pool)
    try:
        testset = find_testset(workspace, text)
    except NotFound as error:
        pools = ", ".join(sorted(known)[:6])
        raise NotFound(
            f"no pool, test set, folder or vectors {text!r}",
            fix=f"there are the pools {pools}" if pools else error.fix,
        ) from None
    return Candidates(testset.name, pool=pool_of(testset), source=_source(testset))


def _source(testset: TestSet) -> ImageSource | None:
    return testset.source


def folder_pool(path: Path, *, name: str | None = None) -> Pool:
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
