"""What the verbs about images in context are asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import field

from heldout.core.request import (
    Classes,
    Images,
    KeepColumns,
    LabelMapText,
    Level,
    Metrics,
    MinimumN,
    Name,
    Out,
    Plan,
    Replace,
    Replicates,
    Request,
    RequestError,
    Seed,
    StoredModels,
    Testset,
    Truth,
    argument,
    did_you_mean,
    needs,
    one_of,
    option,
    unused,
)
from heldout.core.workspace import check_slug

Kind = Literal["object", "stated", "general"]
Measure = Literal["overlap", "jaccard"]
Method = Literal["greedy", "louvain"]
Mode = Literal["default", "published"]
Placing = Literal["link", "hardlink", "copy"]

ContextsSet = Annotated[str, argument("Test set of build contexts: name or path.")]
Minimum = Annotated[
    int, option("Leave out subsets of fewer images; by default as the set was built.", ge=1)
]
Threshold = Annotated[
    float, option("Overlaps below it are not edges; by default as the set was built.", ge=0, le=1)
]
OverlapMeasure = Annotated[
    Measure, option("Images in both subsets over those in the smaller (overlap) or in either.")
]
CommunityMethod = Annotated[
    Method, option("How communities are found: greedy as published, or weighted.")
]
ClassNames = Annotated[
    tuple[str, ...], option("Class, such as cat; repeatable.", "-c", flag="class")
]
Train = Annotated[
    tuple[str, ...],
    option(
        "Subsets to train on, 'dog(shelf)+dog(desk)' or 'NAME=dog(shelf)+dog(desk)'; repeatable."
    ),
]
WantedDistance = Annotated[
    float, option("Wanted distance from train to test of each class, 0 to 1.", ge=0, le=1)
]
Sizes = Annotated[
    Mapping[str, int],
    option("Images of each class or group in a part: test=50; repeatable."),
]
GroupsTable = Annotated[
    Path, option("Table with the columns image and group; group is class(context).")
]


class ContextsParameters(Request, frozen=True, kw_only=True):
    """Which subsets are made, and which of them and of their images are kept.

    Lists of words take globs (``*``) and groups (``@clothing``: the words under ``clothing`` in
    the hierarchy, or the built-in ``@body part``). Patterns of subsets are written like subsets,
    ``*(@clothing)``; a bare word is a pattern of subjects.
    """

    context_kinds: Annotated[
        tuple[Kind, ...],
        option(
            "Contexts: object (two names in one image, both ways round), stated (attributes, "
            "published subsets), general (places, weather); repeatable; all by default, stated alone "
            "for metashift.",
            flag="kind",
        ),
    ] = ("object", "stated", "general")
    objects: Annotated[
        tuple[str, ...],
        option(
            "Membership of names that images show, such as object; repeatable.",
            flag="object",
            rare=True,
        ),
    ] = ("object", "caption_word", "tag")
    general: Annotated[
        tuple[str, ...],
        option(
            "Membership or column that says where or when an image was taken; repeatable; general "
            "by default.",
            rare=True,
        ),
    ] = ("general",)
    minimum: Minimum = 25
    more_than: Annotated[
        int, option("A class must have more than this many subsets of enough images.", ge=0)
    ] = 5
    subjects: Annotated[
        tuple[str, ...],
        option("Only this subject: a word, glob or @group; repeatable.", flag="subject"),
    ] = ()
    contexts: Annotated[
        tuple[str, ...],
        option("Only this context: a word, glob or @group; repeatable.", flag="context", rare=True),
    ] = ()
    exclude: Annotated[
        tuple[str, ...],
        option(
            "No subsets that match: 'cat(dog)', '*(@body part)'; repeatable.", flag="exclude-subset"
        ),
    ] = ()
    only: Annotated[
        tuple[str, ...],
        option(
            "These contexts with these subjects only: '@person(@clothing)'; repeatable.",
            flag="reserve",
            rare=True,
        ),
    ] = ()
    pairs: Annotated[
        tuple[str, ...],
        option(
            "Classes whose common images are left out of both: cat+dog; repeatable.",
            flag="pair",
            rare=True,
        ),
    ] = ()
    synonyms: Annotated[
        tuple[str, ...],
        option(
            "Word that counts as another, couch=sofa; or a JSON file of word -> its synonyms; "
            "repeatable.",
            flag="synonym",
            rare=True,
        ),
    ] = ()
    plurals: Annotated[
        bool, option("A plural counts as its singular where both are there.", rare=True)
    ] = False
    hierarchy: Annotated[
        tuple[str, ...],
        option(
            "What is a kind of what, cat<animal; or a JSON file of parent -> children; for @groups "
            "and --roll-up; repeatable.",
            rare=True,
        ),
    ] = ()
    roll_up: Annotated[bool, option("Words also count as what they are a kind of.", rare=True)] = (
        False
    )
    classes: Classes | None = None
    keep: KeepColumns = ("general",)
    threshold: Threshold = 0.2
    measure: OverlapMeasure = "overlap"
    communities: CommunityMethod = "greedy"

    def check(self) -> None:
        """Some rules need words that they are about."""
        if not self.context_kinds:
            raise RequestError("{context_kinds} is missing", fix="give object, stated or general")
        needs(self, "roll_up", "hierarchy")
        for name, kind in (("objects", "object"), ("general", "general")):
            if kind not in self.context_kinds:
                unused(self, f"{{context_kinds}} {', '.join(self.context_kinds)}", name)


class BuildContextsRequest(ContextsParameters, frozen=True, kw_only=True):
    """Make a set of subsets subject(context) (MetaShift).

    heldout collect reads more sources, with options, and writes a pool to build from.
    """

    paths: Annotated[
        tuple[str, ...], argument("Files of the source; without --source, one pool.", min_length=1)
    ]
    source: (
        Annotated[
            Literal["gqa", "visual-genome", "coco", "coco-captions", "metashift", "table"],
            option("What the files are; without it, a pool that heldout collect wrote."),
        ]
        | None
    ) = None
    out: Out | None = None
    name: Name | None = None
    seed: Seed = 0
    replace: Replace = False
    plan: Plan = False

    @classmethod
    def filled(cls, given: dict[str, Any]) -> dict[str, Any]:
        """MetaShift's files state their contexts."""
        kinds = {"context_kinds": ["stated"]} if given.get("source") == "metashift" else {}
        return {**kinds, **given}

    def check(self) -> None:
        """A pool is one folder."""
        super().check()
        if self.source is None and len(self.paths) > 1:
            raise RequestError("several {paths} without {source}", fix="name the {source}")
        if self.name is not None:
            check_slug(self.name, "a test set")


class GraphRequest(Request, frozen=True, kw_only=True):
    """Show the subsets of a class, or statistics of all.

    Of a class also how its subsets overlap, and their communities. Files that are named with -o are
    written by their ending: a page to look around in (.html), a picture (.svg, .png) or the graph
    itself (.json); statistics are a page.
    """

    testset: ContextsSet
    subject: (
        Annotated[str, argument("The class, such as cat; without it, statistics of all.")] | None
    ) = None
    threshold: Threshold | None = None
    measure: OverlapMeasure | None = None
    minimum: Minimum | None = None
    communities: CommunityMethod | None = None
    seed: Seed = 0
    outs: Annotated[tuple[Path, ...], option("Where to write.", "-o", flag="out")] = ()
    colour_by: Annotated[
        tuple[str, ...],
        option("Stored model whose accuracy the page shows; repeatable."),
    ] = ()
    label_map: LabelMapText | None = None

    def check(self) -> None:
        """Endings say what is written."""
        for path in self.outs:
            if path.suffix.lower() not in (".html", ".svg", ".png", ".json"):
                raise RequestError(
                    f"{{outs}} is {str(path)!r}", fix="end it with .html, .svg, .png or .json"
                )
            if self.subject is None and path.suffix.lower() != ".html":
                raise RequestError(
                    f"{{outs}} is {str(path)!r}",
                    fix="statistics of a set are a page: end it with .html",
                )
        needs(self, "colour_by", "outs")
        needs(self, "label_map", "colour_by")
        if self.subject is None:
            drawn = ("threshold", "measure", "minimum", "communities", "seed", "colour_by")
            unused(self, "statistics: no class is named", *drawn)


class DistanceBetweenRequest(Request, frozen=True, kw_only=True):
    """Measure how far two subsets or collections lie apart.

    By the contexts of their images; in the published mode, in a spectral layout of the graph.
    """

    testset: ContextsSet
    a: Annotated[str, argument("A subset, or several merged: 'cat(sofa)+cat(bed)'.")]
    b: Annotated[str, argument("The other side.")]
    mode: Annotated[Mode, option("Our own rule, or that of MetaShift's scripts.")] = "default"
    nodes: Annotated[
        Mapping[str, str],
        option(
            "Published: a node of the graph, 'beds=dog(bed)+dog(couch)'; repeatable; the subsets of "
            "the class by default.",
            flag="node",
        ),
    ] = {}
    threshold: Threshold | None = None
    measure: OverlapMeasure | None = None
    minimum: Minimum | None = None
    replicates: Replicates = 400
    level: Level = 0.95
    seed: Seed = 0

    def check(self) -> None:
        """Each distance has options of its own."""
        if self.mode == "published":
            unused(self, "{mode} published", "replicates", "level", "seed")
        else:
            unused(self, "{mode} default", "nodes")


class ScoreContextsRequest(Request, frozen=True, kw_only=True):
    """Score models per subset, community and class.

    With --train also accuracy against the distance from what the models trained on, over images that
    are not in it. -o writes a report (HTML).
    """

    testset: ContextsSet
    models: StoredModels = ()
    classes: ClassNames = ()
    train: Train = ()
    truth: Truth | None = None
    metrics: Metrics = ()
    label_map: LabelMapText | None = None
    minimum_n: MinimumN = 20
    level: Level = 0.95
    replicates: Replicates = 200
    seed: Seed = 0
    out: Out | None = None

    def check(self) -> None:
        """Only distances are resampled."""
        needs(self, "replicates", "train")


class SplitRequest(Request, frozen=True, kw_only=True):
    """Split images in context, with a chosen shift.

    Also what goes before, groups of subsets, and after, folders of images.
    """

    tag: ClassVar[str] = "kind"
    kind: Annotated[str, argument("Which split.")]

    def known(self, *parts: str) -> None:
        """Refuse the size of a part that this kind does not have, and one of nothing."""
        sizes: Mapping[str, int] = getattr(self, "sizes", {})
        for part, size in sizes.items():
            if part not in parts:
                raise RequestError(f"{{sizes}} of {part!r}", fix=did_you_mean(part, parts))
            if size < (part != "validation"):
                raise RequestError(f"{{sizes}} of {part} is {size}", fix="give more")


class DomainSplitRequest(SplitRequest, frozen=True, kw_only=True):
    """Train on some contexts, test on others at a known distance."""

    testset: ContextsSet
    out: Out
    test: Annotated[
        tuple[str, ...], option("Subsets to test on, written as those to train on; repeatable.")
    ]
    train: Train = ()
    distance: WantedDistance | None = None
    sizes: Sizes = field(default_factory=dict)
    minimum: Minimum | None = None
    seed: Seed = 0
    test_set: (
        Annotated[str, option("Also save the test part as a test set of this name.")] | None
    ) = None
    replace: Replace = False

    def check(self) -> None:
        """What trains is named, or found by its distance."""
        one_of(self, "train", "distance")
        self.known("train", "test")
        if self.test_set is not None:
            check_slug(self.test_set, "a test set")


class SubpopulationSplitRequest(SplitRequest, frozen=True, kw_only=True):
    """Rare contexts in training, all contexts alike in the test (MetaShift's script).

    The number of training images stays, whatever their mix is. A class has two groups. Sizes: test
    (required) and validation of each group, and how many images of each minority and majority group
    are used.
    """

    groups: GroupsTable
    out: Out
    minority: Annotated[
        tuple[str, ...],
        option("Rare group of a class, such as cat(outdoor); repeatable.", flag="minority-group"),
    ]
    minority_count: Annotated[
        int, option("Images of its minority group that a class trains on.", ge=0)
    ]
    sizes: Sizes
    seed: Seed = 42
    replace: Replace = False

    def check(self) -> None:
        """There is a test."""
        self.known("test", "validation", "minority", "majority")
        if "test" not in self.sizes:
            raise RequestError("{sizes} has no test", fix="give {sizes} test=N")


class SharesSplitRequest(SplitRequest, frozen=True, kw_only=True):
    """Draw a quarter to test and a tenth for validation, as SubpopBench."""

    groups: GroupsTable
    out: Out
    seed: Seed = 42
    replace: Replace = False


class GroupsSplitRequest(SplitRequest, frozen=True, kw_only=True):
    """Merge subsets into groups: groups.csv, an image in one only.

    Images of two classes are left out; others stay in the group that is named first.
    """

    testset: ContextsSet
    out: Out
    scheme: Annotated[
        Path, option('TOML file: "cat(outdoor)" = ["cat(car)", "cat(fence)"], and so on.')
    ]
    replace: Replace = False


class PlacesSplitRequest(SplitRequest, frozen=True, kw_only=True):
    """Group images indoors and outdoors by COCO objects: groups.csv."""

    pool: Annotated[str, argument("A pool with objects, as collect writes it: name or path.")]
    out: Out
    classes: ClassNames
    replace: Replace = False


class FoldersSplitRequest(SplitRequest, frozen=True, kw_only=True):
    """Lay images out as CLASS/SUBSET/FILE, or those of a split as PART/CLASS/FILE.

    Nothing that was not placed by the same command is ever deleted.
    """

    source: Annotated[str, argument("Test set of build contexts, or the folder of a split.")]
    out: Out
    folders: Annotated[
        Placing, option("Lay the image files out in folders, by links, hard links or copies.")
    ] = "link"
    images: Images | None = None
    allow_licence: Annotated[
        bool, option("Copy images although their licence forbids it or is unknown.")
    ] = False
    replace: Replace = False


SplitRequest.kinds = {
    "domain": DomainSplitRequest,
    "subpopulation": SubpopulationSplitRequest,
    "shares": SharesSplitRequest,
    "groups": GroupsSplitRequest,
    "places": PlacesSplitRequest,
    "folders": FoldersSplitRequest,
}


class MatchLabelsRequest(Request, frozen=True, kw_only=True):
    """Match words of subsets to classes through WordNet.

    -o writes the matches, the senses to look at and a label map; with -t the map is for the classes
    of that set.
    """

    tree: Annotated[Path, option("Tree of classes: JSON with id, name, index and children.")]
    subset_names: (
        Annotated[Path, option("Names of subsets, subject(context), one per line.")] | None
    ) = None
    testset: Testset | None = None
    parents: (
        Annotated[
            Path,
            option("Words to match: JSON of parent -> words; the names' own words by default."),
        ]
        | None
    ) = None
    overrides: (
        Annotated[Path, option("CSV of word and node; an empty node is no match.")] | None
    ) = None
    classes: Classes = "imagenet-1k"
    out: Out | None = None
    replace: Replace = False

    def check(self) -> None:
        """Names come from one place; the label space is for the label map."""
        one_of(self, "subset_names", "testset")
        needs(self, "classes", "out")
        needs(self, "replace", "out")
