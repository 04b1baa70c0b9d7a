"""What ``build domains`` is asked: which rows are kept, and the requests of the published sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from heldout.core.request import (
    ClassColumn,
    Domain,
    IdColumn,
    KeepColumns,
    Name,
    Out,
    Plan,
    Replace,
    Request,
    RequestError,
    Seed,
    Top,
    Workers,
    argument,
    needs,
    option,
    unused,
)
from heldout.curate.requests import Preset, preset_values
from heldout.data.published.clip_geoyfcc_exclusions import EXCLUDED_45

_GEOYFCC: dict[str, Any] = {
    "domain": "continent",
    "label_space": "imagenet-21k",
    "top": 1_000_000,
    "min_domain_share": 0.04,
    "min_class": 450,
    "cap": 2000,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "clip-geoyfcc-350": {**_GEOYFCC, "classes": 350},
    "clip-geoyfcc-45": {
        **_GEOYFCC,
        "classes": 45,
        "exclude": [f"{name}={reason}" for name, reason in EXCLUDED_45.items()],
    },
    "geoyfcc": {
        "domain": "country",
        "min_domain": 10_000,
        "domain_cap": 20_000,
        "min_class_domains": 5,
    },
}
"""Values of parameters by preset. Exclusions come before the choice of the largest: 45 classes
after eleven exclusions are the 56 largest without them."""


class DomainsParameters(Request, frozen=True, kw_only=True):
    """Which columns are read, which rows are kept, and how these are split.

    Rules apply in the order of the fields. What is left at its default changes nothing.
    """

    id: IdColumn | None = None
    class_column: ClassColumn = "class_id"
    domain: Domain = "domain"
    similarity: (
        Annotated[
            str, option("Column that rows are ranked by, greatest first.", flag="similarity-column")
        ]
        | None
    ) = None
    label_space: (
        Annotated[
            str,
            option(
                "Label space: a name, a file, or chosen (only classes that are kept); the pool's, "
                "imagenet-21k or one of its own by default.",
                rare=True,
            ),
        ]
        | None
    ) = None
    keep: KeepColumns = ()
    top: Top | None = None
    min_domain_share: Annotated[
        float, option("Least share of the rows a domain must have.", ge=0, le=1)
    ] = 0.0
    min_domain: Annotated[int, option("Rows that a domain must have.", ge=1, rare=True)] = 1
    domain_cap: (
        Annotated[int, option("Rows kept of a domain at most, drawn by the seed.", ge=1, rare=True)]
        | None
    ) = None
    exclude: Annotated[
        tuple[str, ...],
        option(
            "Class left out: CLASS=REASON; repeatable.",
            flag="exclude-class",
            rare=True,
        ),
    ] = ()
    min_class_domains: Annotated[
        int, option("Domains in which a class must have rows.", ge=1, rare=True)
    ] = 1
    min_class: Annotated[int, option("Rows that a class must have.", ge=1)] = 1
    classes: (
        Annotated[
            int,
            option("Keep this many classes, the largest; ties by id.", flag="max-classes", ge=1),
        ]
        | None
    ) = None
    cap: (
        Annotated[
            int,
            option("Rows kept of a class at most, drawn by the seed.", flag="class-cap", ge=1),
        ]
        | None
    ) = None
    clusters: (
        Annotated[
            str,
            option(
                "Column whose images belong together, such as uid: for intervals.",
                flag="cluster-column",
                rare=True,
            ),
        ]
        | None
    ) = None
    split: (
        Annotated[
            str,
            option(
                "Column split: flag:COLUMN, values:COLUMN=A,B (held out), rows, or group:COLUMN "
                "(such as uid: nobody in two parts).",
                flag="split-by",
                rare=True,
            ),
        ]
        | None
    ) = None
    parts: Annotated[
        tuple[str, ...],
        option("Part of rows and group splits, NAME=SHARE; repeatable.", flag="part", rare=True),
    ] = ("train=0.8", "test=0.2")

    def check(self) -> None:
        """Ranks need a similarity, parts a split, exclusions a reason."""
        needs(self, "top", "similarity")
        needs(self, "parts", "split")
        if self.split is not None and not self.split.startswith(("rows", "group:")):
            unused(self, f"{{split}} {self.split}", "parts")
        for name, reason in self.reasons.items():
            if not (name and reason):
                raise RequestError(f"exclusion {name!r} has no reason", fix="write CLASS=REASON")

    @property
    def split_columns(self) -> tuple[str, ...]:
        """Columns that the split and intervals need, which must be kept for them."""
        column = (self.split or "").partition(":")[2].partition("=")[0]
        return tuple(name for name in (column, self.clusters) if name)

    @property
    def reasons(self) -> Mapping[str, str]:
        """Excluded classes with the reason of each."""
        parts = (text.partition("=") for text in self.exclude)
        return {name.strip(): reason.strip() for name, _, reason in parts}


class DomainsRequest(DomainsParameters, frozen=True, kw_only=True):
    """Make a set of large, capped domains (CLIP-GeoYFCC).

    Any number of rows in bounded memory; the same rows whatever their order, files or threads.
    Presets: clip-geoyfcc-350, clip-geoyfcc-45, geoyfcc.
    """

    pool: Annotated[str, argument("Parquet file, folder of Parquet files, pool or test set.")]
    preset: Preset | None = None
    out: Out | None = None
    name: Name | None = None
    seed: Seed = 0
    workers: Workers | None = None
    replace: Replace = False
    plan: Plan = False

    @classmethod
    def filled(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Flags over the preset."""
        return {**preset_values(PRESETS, given), **given}
