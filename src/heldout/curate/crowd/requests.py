"""What the verb that composes grids is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from heldout.core.request import (
    Out,
    RequestError,
    Seed,
    argument,
    option,
    unused,
)
from heldout.curate.crowd.stopping import StoppingRequest

Role = Literal["candidates", "positive", "negative"]


class GridsRequest(StoppingRequest, frozen=True, kw_only=True):
    """Compose grids of candidates for a crowd (ImageNetV2).

    Each candidate of a pool is asked about for its class, unless it has enough votes, is settled by
    --stop, is blacklisted, or is a near duplicate of an image of a reference. --json prints the grids
    in order with their slots; -o writes them as ImageNetV2 published its own. A list of candidate ids
    may stand for the pool. The same seed gives the same grids, in whatever order the candidates come.
    """

    pool: Annotated[
        str, argument("Pool whose images have classes, or a JSON list of candidate ids.")
    ]
    classes_of: (
        Annotated[Path, option("JSON of candidate -> class, for a list of candidates.")] | None
    ) = None
    controls: (
        Annotated[
            str,
            option(
                "Images that are known to show a class: the original test set, JSON of class -> "
                "its images in order, a table of image_id, class_id, control (positive or negative), "
                "or none."
            ),
        ]
        | None
    ) = None
    similar: (
        Annotated[
            Path,
            option(
                "JSON of class -> classes, the most similar first, for negative controls; "
                "by WordNet otherwise.",
                flag="similar-classes",
            ),
        ]
        | None
    ) = None
    grid: Annotated[
        Mapping[Role, int],
        option(
            "ROLE=N: images of a grid that are candidates (42), positive (3) or negative (3) "
            "controls; repeatable."
        ),
    ] = {}
    votes: Annotated[int, option("Votes that are enough for an image.", ge=1)] = 10
    exclude: Annotated[
        tuple[str, ...],
        option("Class left out: CLASS=REASON; repeatable.", flag="exclude-class", rare=True),
    ] = ()
    first_classes: (
        Annotated[int, option("Ask about this many classes only, the first by id.", ge=1)] | None
    ) = None
    special: (
        Annotated[
            int,
            option("Compose grids for classes with fewer annotated originals than this.", ge=1),
        ]
        | None
    ) = None
    seed: Seed = 0
    legacy: Annotated[
        bool, option("Draw in the published order and from the published generator.", rare=True)
    ] = False
    out: Out | None = None

    def check(self) -> None:
        """Lists need classes; special grids are for classes with known originals."""
        self.stopping(self.votes)
        if not self.is_list:
            unused(self, "a pool", "classes_of")
        elif self.classes_of is None:
            raise RequestError(
                "{classes_of} is missing", fix="give a JSON file of candidate -> class"
            )
        elif not self.special:
            unused(self, "a list of candidates", "votes", "stop")
        if self.controls is None and (self.special or not self.is_list):
            raise RequestError(
                "{controls} is missing",
                fix="name the original test set, a file, or (but for {special}) none",
            )
        if self.special:
            unused(self, "{special}", "first_classes", "stop")
        if self.controls == "none":
            unused(self, "{controls} none", "similar")
            if self.special:
                raise RequestError(
                    "{special} needs the original images", fix="name their test set as {controls}"
                )
        for role, count in self.grid.items():
            if count < (role == "candidates"):
                raise RequestError(f"{{grid}} of {role} is {count}", fix="give more")
            if self.controls == "none" and role != "candidates":
                raise RequestError(
                    f"{{grid}} of {role} has no use without controls", fix="leave it out"
                )
        for text in self.exclude:
            if not all(text.partition("=")):
                raise RequestError(f"{{exclude}} is {text!r}", fix="write CLASS=REASON")
        if self.legacy and self.seed >= 2**32:
            raise RequestError(f"{{seed}} is {self.seed}", fix="{legacy} takes seeds below 2**32")

    @property
    def is_list(self) -> bool:
        """Whether candidates come as a list, not as a pool."""
        return self.pool.endswith(".json")
