"""What ``collect`` is asked: a request for each kind of metadata, with the options that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from heldout.core.request import (
    IdColumn,
    Images,
    Name,
    Out,
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
    """Read images' metadata (objects, places, tags) into a pool."""

    tag: ClassVar[str] = "source"
    rows: ClassVar[bool] = False
    """Whether its reader gives rows, which may be written to a Parquet file."""

    source: Annotated[str, argument("The kind of metadata.")]
    paths: Annotated[
        tuple[Path, ...],
        argument("Its files; .zip and .gz are read too, for yfcc .bz2.", min_length=1),
    ]
    name: Name | None = None
    out: Out | None = None
    replace: Replace = False

    def check(self) -> None:
        """Only rows go into a Parquet file, which has no name of a pool."""
        if self.to_table:
            unused(self, "a Parquet file", "name")
        if self.to_table and not self.rows:
            raise RequestError(
                f"{self.source} is read into a pool, not into a Parquet file",
                fix="name a folder; Parquet files are for yfcc, geoyfcc and domainnet",
            )

    @property
    def to_table(self) -> bool:
        """Whether a Parquet file of rows is asked for instead of a pool."""
        return self.out is not None and self.out.suffix == ".parquet"


class CollectSubsets(CollectRequest, frozen=True, kw_only=True):
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


class CocoObjectsRequest(CollectRequest, frozen=True, kw_only=True):
    """Read COCO instances, or detections with a file of their images."""

    min_box_area: MinBoxArea = 0.0
    min_score: MinScore = 0.0


class CocoCaptionsRequest(CollectRequest, frozen=True, kw_only=True):
    """Read the words of COCO captions."""

    vocabulary: (
        Annotated[
            Path,
            option("Only these words and phrases, one per line; plurals count as singulars."),
        ]
        | None
    ) = None


class CollectRows(CollectRequest, frozen=True, kw_only=True):
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
}
