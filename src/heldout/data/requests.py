"""What the verbs about test sets, labels and judgements are asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from heldout.core.request import (
    ClassColumn,
    Classes,
    FrozenFeatures,
    IdColumn,
    Images,
    KeepColumns,
    Name,
    Out,
    Plan,
    Replace,
    Request,
    RequestError,
    Separators,
    Testset,
    Top,
    Truth,
    argument,
    excludes,
    needs,
    option,
    unused,
)

FORMAT = "Format of the files."
Reviews = Annotated[
    Path, option("ImageNetV2: folder of <name>_review.json files, or one file.", rare=True)
]


class VerifyRequest(Request, frozen=True, kw_only=True):
    """Check what is stored against its checksums.

    Test sets and pools with their predictions; without a name also vectors and judgements; files of
    saved records by path. Nothing is changed without --repair. With --audit, or anything to compare
    with, also look for images and classes that should not be as they are; --json lists every one.
    """

    testsets: Annotated[
        tuple[str, ...],
        argument("Test sets and pools: names or paths; saved records: paths; all by default."),
    ] = ()
    repair: Annotated[
        bool,
        option("Remove damaged predictions and vectors, to be made again; add missing checksums."),
    ] = False
    images: Annotated[
        bool, option("Also compare every image file with its hash, and decode it.", flag="files")
    ] = True
    audit: Annotated[bool, option("Also look at duplicates, class sizes and reviews.")] = False
    blacklist: Annotated[Path, option("JSON of image -> reason.")] | None = None
    near_duplicates: Annotated[Path, option("JSON of image -> images nearly the same.")] | None = (
        None
    )
    other: Annotated[
        tuple[str, ...],
        option("Another test set, or a list of image ids, that must not share images; repeatable."),
    ] = ()
    truth: Truth | None = None

    @property
    def audits(self) -> bool:
        """Whether content is looked at too."""
        asked = (self.blacklist, self.near_duplicates, self.truth)
        return self.audit or bool(self.other) or any(item is not None for item in asked)

    def check(self) -> None:
        """Content is looked at one named set at a time."""
        if self.audits and not self.testsets:
            raise RequestError("{testsets} is missing", fix="name the test sets to audit")


class DiffRequest(Request, frozen=True, kw_only=True):
    """Show what differs between two test sets or revisions.

    Where both say how their classes were reviewed, also which reviews hold in the later one: those of
    classes without a problem whose images are the same. One that was lost is an error. With --features
    also whether a classifier tells their images apart, and by which: -o writes a page (HTML) of them.
    """

    a: Annotated[str, argument("The earlier test set, or a published JSON file.")]
    b: Annotated[str, argument("The later test set, or a published JSON file.")]
    reviews: Annotated[
        tuple[Path, ...],
        option("ImageNetV2: folder of <name>_review.json files, or one file; one for each set."),
    ] = ()
    features: FrozenFeatures | None = None
    out: Out | None = None

    def check(self) -> None:
        """Reviews are in one folder, or one file for each; the page shows what features tell."""
        needs(self, "out", "features")
        if len(self.reviews) > 2:
            raise RequestError("{reviews} names more than two files", fix="give one for each")


class CiteRequest(Request, frozen=True, kw_only=True):
    """Print the citations of a test set and of its parents."""

    testset: Annotated[str, argument("The test set.")]
    bibtex: Annotated[bool, option("As BibTeX.")] = False


class FindLabelsRequest(Request, frozen=True, kw_only=True):
    """Search the classes of a label space."""

    text: Annotated[
        str, argument("Part of an id, a name or a meaning; with --similar, a class's id or name.")
    ]
    classes: Classes = "imagenet-1k"
    top: Top | None = None
    similar: (
        Annotated[int, option("Show this class and the N nearest to it in WordNet.", ge=1)] | None
    ) = None

    def check(self) -> None:
        """Both say how many."""
        excludes(self, "top", "similar")


TESTSET_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "imagenetv2": ("classes", "reviews"),
    "folders": ("classes", "label_kind", "folder_columns"),
    "cifar": ("classes",),
    "table": (
        *("classes", "label_kind", "id_column", "class_column"),
        *("several", "separators"),
    ),
    "imagenet-m": ("parent",),
    "siscore": ("classes", "metadata"),
    "clip-geoyfcc": ("cap", "frame", "id_column", "keep_columns"),
}
"""The formats of test sets, and the options that each of them has."""


class ImportTestsetRequest(Request, frozen=True, kw_only=True):
    """Import test sets; a published list is enough.

    The format is inferred from the shape of a file or folder; clip-geoyfcc has to be named and takes
    two files, the released positions (.npy) and classes (.csv). --classes folders and --classes table
    take the classes from the folders or the table itself.
    """

    paths: Annotated[
        tuple[Path, ...],
        argument("Dataset files or image folders, one test set each.", min_length=1),
    ]
    name: Name | None = None
    format: Annotated[
        Literal[
            "auto",
            "imagenetv2",
            "folders",
            "cifar",
            "table",
            "imagenet-m",
            "siscore",
            "clip-geoyfcc",
        ],
        option(FORMAT),
    ] = "auto"
    classes: Classes | None = None
    label_kind: (
        Annotated[
            Literal["id", "wnid", "index", "name"],
            option("Folders and tables: how they name classes; inferred by default."),
        ]
        | None
    ) = None
    folder_columns: Annotated[
        tuple[str, ...],
        option(
            "Folders: column inferred from the folders that name no class, outermost first, such as "
            "domain for sketch/dog/1.png; repeatable.",
            flag="folder-column",
        ),
    ] = ()
    id_column: IdColumn | None = None
    class_column: ClassColumn | None = None
    separators: Separators | None = None
    several: Annotated[
        bool, option("Tables: an image may have a row for each of its classes, or no class.")
    ] = False
    parent: (
        Annotated[str, option("ImageNet-M: the test set that the listed images are part of.")]
        | None
    ) = None
    metadata: (
        Annotated[
            str,
            option(
                "SI-SCORE: its metadata.csv if not in the folder; or size, rotation, location: the "
                "published set whose ids tell what was varied."
            ),
        ]
        | None
    ) = None
    reviews: Reviews | None = None
    cap: Annotated[int, option("CLIP-GeoYFCC: what classes were capped at.", ge=1, rare=True)] = (
        2000
    )
    frame: (
        Annotated[
            Path,
            option("CLIP-GeoYFCC: Parquet file of the data frame, for ids and columns.", rare=True),
        ]
        | None
    ) = None
    keep_columns: KeepColumns = ()
    replace: Replace = False
    plan: Plan = False

    def check(self) -> None:
        """One name is for one set, and every option is for some formats."""
        if self.format == "clip-geoyfcc" and len(self.paths) != 2:
            raise RequestError(
                "the released lists are two files", fix="give the positions and the classes"
            )
        if self.name and len(self.paths) > 1 and self.format != "clip-geoyfcc":
            raise RequestError(
                "{name} is for one test set, several files are given", fix="leave out {name}"
            )
        needs(self, "keep_columns", "frame")
        if self.format != "auto":
            self.check_format(self.format)

    def check_format(self, format: str) -> None:
        """Refuse options that the format does not have, and the lack of those it needs."""
        every = dict.fromkeys(name for names in TESTSET_OPTIONS.values() for name in names)
        used = TESTSET_OPTIONS[format]
        unused(self, f"{{format}} {format}", *(name for name in every if name not in used))
        if format == "imagenet-m" and self.parent is None:
            raise RequestError("{parent} is missing", fix="name the set that images are part of")
        if format == "clip-geoyfcc":
            needs(self, "id_column", "frame")


class ImportTruthRequest(Request, frozen=True, kw_only=True):
    """Add a truth to a test set; no model runs again."""

    path: Annotated[Path, argument("multilabel.csv, human_accuracy JSON, real.json or scores.npz.")]
    testset: Testset
    name: Name | None = None
    format: Annotated[Literal["auto", "multilabel", "real", "real-scores"], option(FORMAT)] = "auto"
    cut: (
        Annotated[float, option("ReaL scores: a label counts from here on; 0.8 as released.")]
        | None
    ) = None

    def check(self) -> None:
        """Only scores are cut."""
        if self.format not in ("auto", "real-scores"):
            unused(self, f"{{format}} {self.format}", "cut")


class ImportJudgementsRequest(Request, frozen=True, kw_only=True):
    """Add people's answers to the one table of judgements."""

    path: Annotated[
        Path,
        argument(
            "JSONL, CSV or Parquet of judgements, a queue that was filled in, or a published file."
        ),
    ]
    format: Annotated[
        Literal[
            "auto",
            "table",
            "queue",
            "class-reviews",
            "blacklist",
            "near-duplicates",
            "duplicate-reviews",
            "duplicate-overrides",
            "label-errors",
            "mistakes",
        ],
        option(FORMAT),
    ] = "auto"
    testset: Testset | None = None
    who: Annotated[str, option("The reviewer, where a queue names none.")] | None = None
    revise: Annotated[
        bool, option("Answers of a queue replace what the same reviewer said before.")
    ] = False

    def check(self) -> None:
        """Reviewers are a queue's."""
        if self.format not in ("auto", "queue"):
            unused(self, f"{{format}} {self.format}", "who", "revise")


class ExportTestsetRequest(Request, frozen=True, kw_only=True):
    """Export a test set in a form that other programs read.

    Labels are explicit, licences are kept, nothing is overwritten.
    """

    testset: Annotated[str, argument("The test set.")]
    out: Out
    format: Annotated[
        Literal[
            "folders",
            "index-folders",
            "huggingface",
            "webdataset",
            "croissant",
            "table",
        ],
        option(FORMAT),
    ] = "folders"
    truth: Truth | None = None
    images: Images | None = None
    copy_images: (
        Annotated[bool, option("Copy image files; folders and huggingface do by default.")] | None
    ) = None
    allow_licence: Annotated[
        bool, option("Copy images although their licence forbids it or is unknown.")
    ] = False
    replace: Replace = False

    def check(self) -> None:
        """Some formats have no images, or always have them."""
        if self.format in ("table", "croissant"):
            unused(self, f"{{format}} {self.format}", "images", "copy_images", "allow_licence")
        if self.format == "webdataset":
            unused(self, f"{{format}} {self.format}", "copy_images")


class ExportJudgementsRequest(Request, frozen=True, kw_only=True):
    """Write the table of judgements to a file.

    The other formats are those in which ImageNetV2 published what people said of duplicates.
    """

    out: Out
    format: Annotated[
        Literal["table", "near-duplicates", "duplicate-reviews", "duplicate-overrides"],
        option(FORMAT),
    ] = "table"


class FetchRequest(Request, frozen=True, kw_only=True):
    """Fetch a published test set or a pool's images; resumes.

    Images of a pool are downloaded from their addresses, or read from its folder, and stored upright
    as RGB in three sizes. What cannot be fetched is listed with its reason and left out; the same
    command asks for it again.
    """

    testset: (
        Annotated[
            str,
            argument(
                "A pool, or a published test set; without it, the list of the published ones."
            ),
        ]
        | None
    ) = None
    out: Out | None = None
    local: (
        Annotated[Path, option("A file or folder already on disk: checked and adopted.")] | None
    ) = None
    mirrors: Annotated[
        tuple[str, ...], option("Another address to try first; repeatable.", flag="mirror")
    ] = ()
    registry: Annotated[Path, option("Your own registry file (TOML).")] | None = None
    allow_hosts: Annotated[
        tuple[str, ...],
        option(
            "Pools: a host, or host:port, that may be on a private network; repeatable.",
            flag="allow-host",
        ),
    ] = ()

    def check(self) -> None:
        """A list of sets fetches nothing; what is for published sets is not for pools."""
        if self.testset is None:
            unused(self, "a list of test sets", "out", "local", "mirrors", "allow_hosts")
        excludes(self, "local", "mirrors")
        if self.allow_hosts:
            unused(self, "{allow_hosts}", "local", "mirrors", "registry")
