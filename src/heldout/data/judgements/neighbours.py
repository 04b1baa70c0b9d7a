"""Saved searches: the nearest images of a test set's images in a reference, by one measure.

``duplicates/<test set>/<measure>@<12 hex of what made the vectors>/<reference>/`` of a workspace::

    search.json          what was compared, by what, down to which distance a pair counts as found
    candidates.parquet   image_id, identity: the images that were compared, sorted by id
    references.parquet   the same of the reference; its rows are what ``rows.npy`` points to
    rows.npy             int64 (candidates, keep); -1 where there are fewer
    distances.npy        float64 (candidates, keep), ascending; equal ones by id

``identity`` is the hash of the image's file, null where it is not known. A test set is its own
reference for what is found within it; an image is never its own neighbour there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from heldout.core.arrays import load_array
from heldout.core.errors import BadFile
from heldout.core.files import (
    atomic_folder,
    checksum,
    damaged,
    is_temporary,
    mapped,
    remove_folder,
    sealed,
    write_json,
)
from heldout.core.schema import read_facts
from heldout.core.tables import read_parquet
from heldout.core.workspace import Workspace, slug

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
_HEAD, _ROWS, _DISTANCES = "search.json", "rows.npy", "distances.npy"
_IMAGES = ("candidates.parquet", "references.parquet")
_AGAIN = "run heldout dedupe again: it compares anew"
USUAL = "lite0"
"""The model whose features are compared where no other one is named."""


class Search(TypedDict):
    """``search.json``: what was compared.

    ``testset``, ``reference``   names and hashes of their images
    ``encoder``                  what made the vectors, as beside them
    ``keep``                     neighbours of each image; ``farthest``: none beyond this distance
    ``near_classes``             an image was compared with images of so many classes nearest its own
    ``threshold``                a pair at most this far apart counts as found; null: pairs are ranked only
    ``threshold_from``           where that is from, in words
    ``failures``                 images that could not be compared, with the reason
    ``outdated``                 the reference has changed, and was compared again by another measure only
    """

    measure: str
    testset: dict[str, str]
    reference: dict[str, str]
    encoder: dict[str, Any]
    keep: int
    farthest: float | None
    near_classes: int | None
    threshold: float | None
    threshold_from: str
    failures: dict[str, str]
    reference_failures: dict[str, str]
    outdated: NotRequired[bool]
    files: NotRequired[dict[str, str]]


@dataclass(frozen=True, eq=False)
class ComparedImages:
    """Ids, sorted, and what tells whether an image is still the same; null: it cannot be told.

    ``table``  image_id, identity. A reference may have millions of rows: only those that are asked
               for become Python texts, unless ``ids`` or ``identities`` is read.
    """

    table: pa.Table

    @classmethod
    def of(cls, ids: Sequence[str], identities: Sequence[str | None]) -> ComparedImages:
        """From lists."""
        import pyarrow as pa

        columns = {
            "image_id": pa.array(ids, pa.string()),
            "identity": pa.array(identities, pa.string()),
        }
        return cls(pa.table(columns))

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def ids(self) -> list[str]:
        """All ids."""
        return self.table["image_id"].to_pylist()  # type: ignore[no-any-return]

    @cached_property
    def identities(self) -> list[str | None]:
        """All identities."""
        return self.table["identity"].to_pylist()  # type: ignore[no-any-return]

    @property
    def keys(self) -> Iterator[tuple[str, str | None]]:
        """Each id with its identity."""
        return zip(self.ids, self.identities, strict=True)

    def names(self, rows: np.ndarray) -> list[str]:
        """The ids in some rows."""
        return self.table["image_id"].take(rows).to_pylist()  # type: ignore[no-any-return]

    def rows(self, names: Collection[str]) -> dict[str, int]:
        """The rows of some ids; ids that are not there are left out."""
        import pyarrow as pa
        import pyarrow.compute as pc

        there = pc.is_in(self.table["image_id"], value_set=pa.array(list(names), pa.string()))
        rows = np.flatnonzero(there.to_numpy())
        return dict(zip(self.names(rows), rows.tolist(), strict=True))


class FoundPair(NamedTuple):
    """Two images, and how far apart they are by one measure."""

    image_id: str
    other_id: str
    distance: float


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest images in a reference of each image of a test set."""

    search: Search
    candidates: ComparedImages
    references: ComparedImages
    rows: np.ndarray
    distances: np.ndarray

    @property
    def within(self) -> bool:
        """Whether a test set was compared with itself."""
        return self.search["testset"] == self.search["reference"]

    @property
    def reference(self) -> str:
        """The name of the set that it was compared with; "" for itself."""
        return "" if self.within else self.search["reference"]["name"]

    @property
    def label(self) -> str:
        """The measure, with the model whose features it compares where that is not the usual one."""
        measure, name = self.search["measure"], str(self.search["encoder"].get("name", ""))
        model = name.removesuffix("-features")
        return measure if measure != "features" or model == USUAL else f"{measure} {model}"

    @property
    def threshold(self) -> float:
        """A pair at most this far apart counts as found; below any distance where pairs are ranked."""
        found = self.search["threshold"]
        return -math.inf if found is None else found

    def of(self, image_id: str) -> list[FoundPair]:
        """The neighbours of one image, nearest first; none of one that was not compared."""
        row = self.candidates.rows([image_id]).get(image_id)
        if row is None:
            return []
        kept = np.flatnonzero(self.rows[row] >= 0)
        return self._pairs(np.full(len(kept), row), kept)

    def nearest(self, row: int, n: int) -> list[tuple[str, float]]:
        """The first ``n`` neighbours of the image in a row, each with its distance."""
        kept = np.flatnonzero(self.rows[row] >= 0)[:n]
        names = self.references.names(self.rows[row, kept])
        return list(zip(names, self.distances[row, kept].tolist(), strict=True))

    def distances_of(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """How far apart pairs are; those of which neither image is kept among the other's are left out.

        Within a set the order of the two does not matter.
        """
        names = {name for pair in pairs for name in pair}
        ours, theirs = self.candidates.rows(names), self.references.rows(names)
        found: dict[tuple[str, str], float] = {}
        for pair in pairs:
            for one, two in (pair, pair[::-1])[: 1 + self.within]:
                row, other = ours.get(one), theirs.get(two)
                if row is None or other is None:
                    continue
                kept = np.flatnonzero(self.rows[row] == other)
                if len(kept):
                    found[pair] = float(self.distances[row, kept[0]])
                    break
        return found

    def found(self, *, at_most: float | None = None, first: int | None = None) -> list[FoundPair]:
        """Pairs at most ``at_most`` apart (the threshold), nearest first; each of two in a set once.

        ``first``  only among so many nearest of each image
        """
        limit = self.threshold if at_most is None else at_most
        near = self.distances[:, :first] <= limit
        row, place = np.nonzero(near & (self.rows[:, :first] >= 0))
        order = np.argsort(self.distances[row, place], kind="stable")
        pairs = self._pairs(row[order], place[order])
        if not self.within:
            return pairs
        seen: dict[tuple[str, str], FoundPair] = {}
        for pair in pairs:
            one, other = sorted(pair[:2])
            seen.setdefault((one, other), FoundPair(one, other, pair.distance))
        return list(seen.values())

    def _pairs(self, row: np.ndarray, place: np.ndarray) -> list[FoundPair]:
        return [
            FoundPair(*pair)
            for pair in zip(
                self.candidates.names(row),
                self.references.names(self.rows[row, place]),
                self.distances[row, place].tolist(),
                strict=True,
            )
        ]


def searches_folder(workspace: Workspace, testset: str) -> Path:
    """Where the searches of a test set are."""
    return workspace.root / "duplicates" / slug(testset)


def search_folder(workspace: Workspace, search: Search) -> Path:
    """Where one search is, or will be."""
    near = search["near_classes"]
    measure = f"{search['measure']}{'' if near is None else f'-near{near}'}"
    made = str(search["encoder"]["key"])[:12]
    place = searches_folder(workspace, search["testset"]["name"]) / f"{measure}@{made}"
    return place / slug(search["reference"]["name"])


def saved_searches(workspace: Workspace, testset: str) -> list[Neighbours]:
    """All that holds between a test set and any reference, read whole: nothing that is outdated."""
    found = [read_neighbours(folder) for folder in _folders(workspace, testset)]
    return [search for search in found if not search.search.get("outdated")]


def _folders(workspace: Workspace, testset: str) -> list[Path]:
    places = sorted(searches_folder(workspace, testset).glob(f"*/*/{_HEAD}"))
    return [path.parent for path in places if not is_temporary(path.parent)]


def outdate(workspace: Workspace, ran: Sequence[Neighbours]) -> None:
    """Mark what was found before in references that have changed, by measures that did not run again."""
    now = {search.search["reference"]["name"]: search.search["reference"] for search in ran}
    done = {search_folder(workspace, search.search) for search in ran}
    for name in {search.search["testset"]["name"] for search in ran}:
        for folder in set(_folders(workspace, name)) - done:
            try:
                head = _read_head(folder)
            except BadFile:  # heldout verify says so; whoever needs it compares anew
                continue
            known = now.get(head["reference"]["name"], head["reference"])
            if known != head["reference"] and not head.get("outdated"):
                write_json(folder / _HEAD, sealed({**head, "outdated": True}))


def forget(workspace: Workspace, testset: str, reference: str) -> int:
    """Remove what was found between a test set and a reference; how many searches that were."""
    places = list(searches_folder(workspace, testset).glob(f"*/{slug(reference)}"))
    for place in places:
        remove_folder(place)
    return len(places)


def write_neighbours(folder: Path, found: Neighbours) -> None:
    """Write a search to its folder, in one step."""
    import pyarrow.parquet as pq

    with atomic_folder(folder, replace=True) as temporary:
        for name, images in zip(_IMAGES, (found.candidates, found.references), strict=True):
            pq.write_table(images.table, temporary / name)
        np.save(temporary / _ROWS, found.rows)
        np.save(temporary / _DISTANCES, found.distances)
        files = {name: checksum(mapped(temporary / name)) for name in (*_IMAGES, _ROWS, _DISTANCES)}
        head: Mapping[str, Any] = {"schema_version": SCHEMA_VERSION, **found.search, "files": files}
        write_json(temporary / _HEAD, sealed(head))


def read_neighbours(folder: Path) -> Neighbours:
    """The search in a folder; one whose files are not as they were written is refused."""
    search = _read_head(folder)
    for name, known in search.get("files", {}).items():
        if not (folder / name).is_file() or checksum(mapped(folder / name)) != known:
            raise damaged(folder / name, _AGAIN)
    ours, theirs = (_read_images(folder / name) for name in _IMAGES)
    rows, distances = (load_array(folder / name, mapped=True) for name in (_ROWS, _DISTANCES))
    if rows.shape != distances.shape or len(rows) != len(ours):
        raise BadFile(folder / _ROWS, f"has the shape {rows.shape}", fix=_AGAIN)
    return Neighbours(search, ours, theirs, rows, distances)


def _read_head(folder: Path) -> Search:
    head: Search = read_facts(folder / _HEAD, Search, newest=SCHEMA_VERSION, fix=_AGAIN)
    return head


def _read_images(path: Path) -> ComparedImages:
    return ComparedImages(read_parquet(path, columns=["image_id", "identity"]))
