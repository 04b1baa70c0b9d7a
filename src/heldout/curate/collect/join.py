"""Several pools as one: candidates of the same classes that were found in different places."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from heldout.core.errors import MismatchError, UserError
from heldout.data.published.imagenetv2_search import TRUTH
from heldout.data.testset.testset import TestSet, make_pool

if TYPE_CHECKING:
    import pyarrow as pa

_SAME = ("uri", "sha256")


def join_pools(pools: Sequence[TestSet], name: str) -> TestSet:
    """One pool of the images of all, in their order, with the classes of their default truths.

    Label spaces must have the same classes. An image that several pools have is taken from the first;
    two different images of one id are refused. Paths are below the nearest folder over all images.
    """
    import pyarrow as pa

    first = pools[0]
    for pool in pools:
        if pool.label_space.fingerprint != first.label_space.fingerprint:
            raise MismatchError(
                f"pools {first.name} and {pool.name} have different classes",
                fix="collect both with the same --classes",
            )
    roots = [pool.images_root for pool in pools]
    over = _nearest_over([root.resolve() for root in roots if root is not None])
    known: dict[str, tuple[Any, ...]] = {}
    tally: Counter[str] = Counter(pools=len(pools), duplicates=0)
    images, truths, memberships = [], [], []
    for pool in pools:
        fresh = pa.array(_fresh(pool, known, tally), pa.int64())
        images.append(_moved(pool.images.take(fresh), pool.images_root, over))
        ids = images[-1]["image_id"]
        truths.append(_of(pool.truth(), ids))
        memberships.append(_of(pool.memberships, ids))
    try:
        table = pa.concat_tables(images, promote_options="default")
    except pa.ArrowException as error:
        reason = (str(error).splitlines() or [""])[0]
        raise UserError(
            f"the pools have a column of two types ({reason})", fix="rename it in one of them"
        ) from None
    return make_pool(
        name,
        images=table.combine_chunks(),
        truths={TRUTH: pa.concat_tables(truths)},
        memberships=pa.concat_tables(memberships),
        label_space=first.label_space,
        images_root=over,
        facts={
            "source": "pools",
            "pools": [{"name": pool.name, "content_hash": pool.content_hash} for pool in pools],
            "counts": {**tally, "images": len(table)},
            "problems": [],
        },
    )


def _nearest_over(roots: Sequence[Path]) -> Path | None:
    return Path(os.path.commonpath(roots)) if roots else None


def _fresh(pool: TestSet, known: dict[str, tuple[Any, ...]], tally: Counter[str]) -> list[int]:
    """The rows of images that no pool before has; an id that means another image is refused."""
    classes = pool.class_of_images()
    columns = [pool.images[column].to_pylist() for column in ("image_id", *_SAME)]
    fresh = []
    for row, (image, *facts) in enumerate(zip(*columns, strict=True)):
        own = (classes.get(image), *facts)
        if image not in known:
            known[image] = own
            fresh.append(row)
        elif known[image] == own:
            tally["duplicates"] += 1
        else:
            raise MismatchError(
                f"pool {pool.name} and one before it call two different candidates {image!r}",
                fix="of two searches, read their records with heldout collect search-results; "
                "else rename the files or give them other ids",
            )
    return fresh


def _moved(images: pa.Table, root: Path | None, over: Path | None) -> pa.Table:
    """The images with their paths below another folder; none where theirs are not on disk."""
    import pyarrow as pa

    paths = images["path"].to_pylist()
    if root is None or over is None:
        moved = [None] * len(paths)
    else:
        below = PurePath(root.resolve().relative_to(over))
        moved = [None if path is None else (below / path).as_posix() for path in paths]
    place = images.column_names.index("path")
    return images.set_column(place, "path", pa.array(moved, pa.string()))


def _of(table: pa.Table, ids: Any) -> pa.Table:
    import pyarrow.compute as pc

    return table.filter(pc.is_in(table["image_id"], value_set=ids.combine_chunks()))
