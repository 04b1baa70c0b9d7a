"""What ``collect`` is asked: a request for each kind of metadata, with the options that it has."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from heldout.core.request import (
    Classes,
    IdColumn,
    Images,
    Name,
    OnlyClasses,
    Out,
    Plan,
    Replace,
    Request,
    RequestError,
    Separators,
    argument,
    option,
    unused,
)

MinBoxArea = Annotated[
    float,
    option("Least share of the image that an object's box covers, 0 to 1.", ge=0, le=1),
]
MinScore = Annotated[
    float, option("Least score of detections or autotags that counts, 0 to 1.", ge=0, le=1)
]
Ontology = Annotated[Path, option("Attributes to keep, by category: JSON {category: [attribute]}.")]
Countries = Annotated[Path, option("CSV country,continent put over the built-in table.")]


class CollectRequest(Request, frozen=True, kw_only=True):
    """Read metadata of images into a pool, or search for images."""

    tag: ClassVar[str] = "source"

    source: Annotated[str, argument("The kind of metadata.")]
    name: Name | None = None
    out: Out | None = None
    replace: Replace = False


class CollectFiles(CollectRequest, frozen=True, kw_only=True):
    """Metadata in files."""

    rows: ClassVar[bool] = False
    """Whether its reader gives rows, which may be written to a Parquet file."""

    paths: Annotated[
        tuple[Path, ...],
        argument("Its files; .zip and .gz are read too, for yfcc .bz2.", min_length=1),
    ]

    def check(self) -> None:
        """Only rows go into a Parquet file, which has no name of a pool."""
        if self.to_table:
            unused(self, "a Parquet file", "name")
        if self.to_table and not self.rows:
            raise RequestError(
                f"{self.source} is read into a pool, not into a Parquet file",
                fix=f"name a folder; Parquet files are for {', '.join(_WITH_ROWS)}",
            )

    @property
    def to_table(self) -> bool:
        """Whether a Parquet file of rows is asked for instead of a pool."""
        return self.out is not None and self.out.suffix == ".parquet"


class CollectSubsets(CollectFiles, frozen=True, kw_only=True):
    """Metadata that states subsets, subject(context), of its own."""

    write_subsets: (
        Annotated[
            Path,
            option(
                "Also write {subject(context): ids} to this JSON file; nested by category where "
                "attributes have categories."
            ),
        ]
        | None
    ) = None


class SceneGraphsRequest(CollectSubsets, frozen=True, kw_only=True):
    """Read scene graphs of GQA or Visual Genome."""

    min_box_area: MinBoxArea = 0.0
    ontology: Ontology | None = None


class MetaShiftSubsetsRequest(CollectSubsets, frozen=True, kw_only=True):
    """Read MetaShift's candidate subsets, flat or structured."""

    ontology: Ontology | None = None


class TagTableRequest(CollectSubsets, frozen=True, kw_only=True):
    """Read CSV, TSV, JSON lines or Parquet with an id column and tags."""

    id_column: IdColumn = "image_id"
    tags: Annotated[
        tuple[str, ...],
        option(
            "Column of tags, or of true and false: COLUMN or COLUMN=MEMBERSHIP; repeatable.",
            flag="tag",
        ),
    ] = ()
    separators: Separators | None = None

    def check(self) -> None:
        """Cells hold several tags."""
        super().check()
        columns = {text.partition("=")[0] for text in self.tags}
        other = sorted(set(self.separators or {}) - columns)
        if other:
            raise RequestError(
                f"{{separators}} names {other[0]!r}, which is not a column of tags",
                fix="name it with {tags} too",
            )


class CocoObjectsRequest(CollectFiles, frozen=True, kw_only=True):
    """Read COCO instances, or detections with a file of their images."""

    min_box_area: MinBoxArea = 0.0
    min_score: MinScore = 0.0


class CocoCaptionsRequest(CollectFiles, frozen=True, kw_only=True):
    """Read the words of COCO captions."""

    vocabulary: (
        Annotated[
            Path,
            option("Only these words and phrases, one per line; plurals count as singulars."),
        ]
        | None
    ) = None


class CollectRows(CollectFiles, frozen=True, kw_only=True):
    """Metadata in rows: -o FILE.parquet writes these instead of a pool."""

    rows: ClassVar[bool] = True
    images: Images | None = None


class DomainListsRequest(CollectRows, frozen=True, kw_only=True):
    """Read lists of paths and class numbers, such as DomainNet's.

    One file per domain and split. With -o FILE.parquet, rows instead of a pool.
    """


class GeoYfccRequest(CollectRows, frozen=True, kw_only=True):
    """Read the data frame of GeoYFCC or CLIP-GeoYFCC, Parquet or pickle.

    Nothing in a pickle is run. With -o FILE.parquet, rows instead of a pool.
    """

    countries: Countries | None = None


class YfccRequest(CollectRows, frozen=True, kw_only=True):
    """Read YFCC100M metadata, with places and autotags beside it.

    Lines have 23 or 25 columns. With -o FILE.parquet, rows instead of a pool.
    """

    keywords: (
        Annotated[
            str,
            option(
                "Only photos with a tag that names a class: a label space, in5k_map.json or "
                "{class: [words]}."
            ),
        ]
        | None
    ) = None
    countries: Countries | None = None
    coordinates: Annotated[
        Literal["fallback", "check", "off"],
        option(
            "Coordinates tell the country where places do not (fallback), are compared with places "
            "too (check), or are off."
        ),
    ] = "fallback"
    min_score: MinScore = 0.0
    quarantine: (
        Annotated[Path, option("Write malformed rows to this file of JSON lines.")] | None
    ) = None


class SearchResultsRequest(CollectFiles, frozen=True, kw_only=True):
    """Read candidates from search results of ImageNetV2's form.

    Files are read in the order of their names. Of a photo that comes again for its class the first
    record counts; for another class it is another candidate.
    """

    rows: ClassVar[bool] = True
    classes: Classes | None = None


class AddressesRequest(CollectFiles, frozen=True, kw_only=True):
    """Read candidates from tables of image addresses and classes.

    Columns: uri (or url) and class_id (or class); where there are any, image_id, licence, owner,
    width, height, date_taken, date_upload and search_key. Without --classes the label space is the
    classes that the tables name.
    """

    rows: ClassVar[bool] = True
    classes: Classes | None = None


class FoldersRequest(CollectFiles, frozen=True, kw_only=True):
    """Read candidates from a folder of class folders.

    Without --classes the label space is the names of the folders.
    """

    paths: Annotated[tuple[Path, ...], argument("The folder.", min_length=1)]
    classes: Classes | None = None

    def check(self) -> None:
        """One folder, whose paths are the ids."""
        super().check()
        if len(self.paths) > 1:
            raise RequestError("{paths} names several folders", fix="name the one above them")


class PoolsRequest(CollectFiles, frozen=True, kw_only=True):
    """Join pools of the same classes.

    An image that several pools have is taken from the first.
    """

    paths: Annotated[tuple[Path, ...], argument("Pools, by name or folder.", min_length=2)]


class FlickrRequest(CollectRequest, frozen=True, kw_only=True):
    """Search Flickr for candidates of classes (ImageNetV2).

    Each class is searched for by its search terms, else by its names. FLICKR_API_KEY holds the key of
    the API. The same command resumes a search that was stopped; --plan prints what would be asked.
    Photos outside the windows, without a licence that was named, and those that somebody
    blacklisted are left out and counted.
    """

    classes: Classes
    only_classes: OnlyClasses = ()
    per_class: Annotated[
        int, option("Images of a class; its search terms share them equally.", ge=1)
    ] = 200
    terms: Annotated[Path, option("JSON {class: [term]}: what is searched for instead.")] | None = (
        None
    )
    parent_terms: Annotated[
        bool,
        option(
            "Put a word behind each term that names a kind above the class in WordNet and is "
            "in its meaning: beaker jar."
        ),
    ] = False
    join_compounds: Annotated[
        bool, option("Search for compounds as one word: tigershark instead of tiger shark.")
    ] = False
    taken: Annotated[str, option("Days on which photos were taken: FIRST..LAST.")] | None = None
    uploaded: Annotated[str, option("Days on which they were uploaded: FIRST..LAST.")] | None = None
    licences: Annotated[
        tuple[str, ...],
        option(
            "Only photos under this licence, such as CC0-1.0 or 'CC-BY-*'; repeatable; any by default.",
            flag="licence",
        ),
    ] = ()
    sort: Annotated[
        Literal[
            "date-posted-asc",
            "date-posted-desc",
            "date-taken-asc",
            "date-taken-desc",
            "interestingness-desc",
            "interestingness-asc",
            "relevance",
        ],
        option("Order in which Flickr lists photos; the first are taken.", rare=True),
    ] = "date-posted-asc"
    write_search: (
        Annotated[Path, option("Also write the records to this JSON file in ImageNetV2's form.")]
        | None
    ) = None
    endpoint: Annotated[
        str, option("Address of the API, if it is not Flickr's own.", rare=True)
    ] = "https://api.flickr.com/services/rest/"
    plan: Plan = False

    def check(self) -> None:
        """Windows are two days in order; licences are some of Flickr's."""
        for name in ("taken", "uploaded"):
            self._days(name)
        for licence in self.licences:
            if not flickr_licences([licence]):
                raise RequestError(
                    f"{{licences}} {licence!r} is none of Flickr's",
                    fix=f"there is {', '.join(FLICKR_LICENCES.values())}",
                )
        if not self.endpoint.startswith(("https://", "http://")) or "?" in self.endpoint:
            raise RequestError(
                f"{{endpoint}} is {self.endpoint!r}", fix="write https://… without a query"
            )

    def window(self, name: Literal["taken", "uploaded"]) -> tuple[str, str]:
        """First and last day of a window; empty where there is none."""
        return self._days(name) or ("", "")

    def _days(self, name: str) -> tuple[str, str] | None:
        text = getattr(self, name)
        if text is None:
            return None
        first, _, last = text.partition("..")
        try:
            fine = date.fromisoformat(first) <= date.fromisoformat(last)
        except ValueError:
            fine = False
        if not fine or len(text) != len("2012-07-11..2013-07-11"):
            raise RequestError(
                f"{{{name}}} is {text!r}", fix="write FIRST..LAST: 2012-07-11..2013-07-11"
            )
        return first, last


FLICKR_LICENCES = {
    "0": "All Rights Reserved",
    "1": "CC-BY-NC-SA-2.0",
    "2": "CC-BY-NC-2.0",
    "3": "CC-BY-NC-ND-2.0",
    "4": "CC-BY-2.0",
    "5": "CC-BY-SA-2.0",
    "6": "CC-BY-ND-2.0",
    "7": "No known copyright restrictions",
    "8": "United States Government Work",
    "9": "CC0-1.0",
    "10": "Public Domain Mark 1.0",
}
"""Flickr's numbers of licences. It has further ones, of CC 4.0, whose numbers are kept as they are."""


def flickr_licences(wanted: Iterable[str]) -> list[str]:
    """Flickr's numbers of the licences that names or globs mean."""
    return [
        number
        for number, name in FLICKR_LICENCES.items()
        if any(fnmatchcase(name.casefold(), glob.casefold()) for glob in wanted)
    ]


CollectRequest.kinds = {
    "gqa": SceneGraphsRequest,
    "visual-genome": SceneGraphsRequest,
    "coco": CocoObjectsRequest,
    "coco-captions": CocoCaptionsRequest,
    "metashift": MetaShiftSubsetsRequest,
    "table": TagTableRequest,
    "yfcc": YfccRequest,
    "geoyfcc": GeoYfccRequest,
    "domainnet": DomainListsRequest,
    "flickr": FlickrRequest,
    "search-results": SearchResultsRequest,
    "addresses": AddressesRequest,
    "folders": FoldersRequest,
    "pools": PoolsRequest,
}
_WITH_ROWS = [name for name, kind in CollectRequest.kinds.items() if getattr(kind, "rows", False)]
