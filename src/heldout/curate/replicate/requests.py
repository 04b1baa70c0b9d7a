"""What ``build replicate`` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from heldout.core.request import (
    Name,
    Out,
    Plan,
    Replace,
    RequestError,
    Seed,
    argument,
    option,
    unused,
)
from heldout.curate.crowd.stopping import BINS, OTHERS, USUAL_VOTES, StoppingRequest

Frequency = Annotated[
    float,
    option("threshold: least frequency of a candidate.", flag="min-frequency", ge=0, le=1),
]


class ReplicateParameters(StoppingRequest, frozen=True, kw_only=True):
    """How images are drawn by class, and what excludes a candidate."""

    sampler: Annotated[
        Literal["threshold", "matched", "top", "random", "annotated"],
        option(
            "threshold: frequency at least --min-frequency; matched: frequencies as in the original set; "
            "top: the highest; random: whatever the votes; annotated: any with enough votes."
        ),
    ] = "threshold"
    per_class: Annotated[int, option("Images of a class.", ge=1)] = 10
    votes: (
        Annotated[
            int,
            option(
                "Votes that are enough for an image; 10 by default, or all people if fewer.", ge=1
            ),
        ]
        | None
    ) = None
    threshold: Frequency = 0.7
    thresholds: Annotated[
        Mapping[str, float],
        option(
            "CLASS=FREQUENCY: least frequency in one class; repeatable.", flag="min-frequency-of"
        ),
    ] = {}
    upward: Annotated[
        bool, option("matched: fill a bin that lacks candidates from the next higher one.")
    ] = False
    photo: (
        Annotated[str, option("Column: images of one photo are duplicates.", rare=True)] | None
    ) = None
    legacy: Annotated[
        bool, option("Draw in the published order and from the published generator.", rare=True)
    ] = False

    def check(self) -> None:
        """Thresholds are a sampler's."""
        mode = f"{{sampler}} {self.sampler}"
        if self.sampler != "threshold":
            unused(self, mode, "threshold", "thresholds")
        if self.sampler != "matched":
            unused(self, mode, "upward")
        if self.sampler == "random":
            unused(self, mode, "votes", "stop")
        for label, least in self.thresholds.items():
            if not 0 <= least <= 1:
                raise RequestError(
                    f"{{thresholds}} gives {label} {least:g}", fix="give a frequency, 0 to 1"
                )
        rules = self.stopping(self.votes or USUAL_VOTES)
        for label in (OTHERS, *self.thresholds, *(rules.by_class if rules else ())):
            decided = rules.of(label).cuts if rules else ()
            if decided and (self.sampler == "top" or not self._cuts(label) <= {*decided}):
                listed = ", ".join(map(str, decided))
                raise RequestError(
                    f"{{stop}} decides about frequencies of {listed}, and {mode} asks for others",
                    fix="give the rule that fits the sampler, or width=0.4",
                )

    def _cuts(self, label: str) -> set[float]:
        """The frequencies that matter for whether an image of a class is drawn."""
        if self.sampler == "matched":
            return {*BINS}
        own = self.thresholds.get(label, self.threshold)
        return {own} if self.sampler == "threshold" else set()


class ReplicateRequest(ReplicateParameters, frozen=True, kw_only=True):
    """Draw a test set by how often people chose its images.

    ImageNetV2's samplers. Votes, blacklist and verdicts on near duplicates are judgements, and
    searches for near duplicates those of heldout dedupe. A class of a candidate is the pool's truth.
    The set has the columns frequency and votes, its revision in the published form, and a reason for
    every candidate that may not be drawn.
    """

    pool: Annotated[str, argument("Pool of candidates, or a test set.")]
    like: (
        Annotated[
            str,
            option("Test set that is replicated: its classes; for matched also its frequencies."),
        ]
        | None
    ) = None
    previous: (
        Annotated[
            str,
            option("Revision before this one, a test set or JSON: what is still eligible stays."),
        ]
        | None
    ) = None
    seed: Seed = 0
    out: Out | None = None
    name: Name | None = None
    replace: Replace = False
    plan: Plan = False

    def check(self) -> None:
        """Frequencies are matched with those of a set."""
        super().check()
        if self.sampler == "matched" and self.like is None:
            raise RequestError("{like} is missing", fix="name the test set to match")
