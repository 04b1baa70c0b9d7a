"""What the verbs of the crowd are asked: composing grids, publishing them, answers, votes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from heldout.core.request import (
    Level,
    Out,
    Plan,
    Replace,
    Request,
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
                "Images that are known to show a class; the original test set, JSON of class -> "
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
                "otherwise those of the label space, WordNet, or features.",
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


Live = Annotated[
    str,
    option("The service that pays people; write LIVE for it, else it is its sandbox."),
]


class PublishRequest(Request, frozen=True, kw_only=True):
    """Publish grids to a crowd.

    A grid that was published before is left alone, so the same command again resumes. People see
    images as tokens that differ from grid to grid: the key is in the workspace (crowd/key), and is
    needed to read the answers.
    """

    tag: ClassVar[str] = "crowd"

    crowd: Annotated[str, argument("Who answers: local, mturk or simulated.")]
    grids: Annotated[Path, argument("File of grids, as crowd grids -o writes it.")]
    pool: Annotated[str, argument("Pool that the candidates are from.")]
    controls: (
        Annotated[
            str,
            option(
                "Images that are known to show a class; the test set that grids have them from."
            ),
        ]
        | None
    ) = None
    assignments: Annotated[int, option("People who answer each grid.", ge=1)] = 10
    plan: Plan = False


class LocalPublishRequest(PublishRequest, frozen=True, kw_only=True):
    """Publish grids to people of your own, who answer them on a page of the workspace."""


class SimulatedPublishRequest(PublishRequest, frozen=True, kw_only=True):
    """Publish grids to simulated people, to try a design before anybody is paid."""

    crowd_size: Annotated[int, option("How many simulated people there are.", ge=1)] = 30
    skill: Annotated[
        Mapping[Literal["hits", "false-alarms"], Annotated[float, Meta(ge=0, le=1)]],
        option(
            "NAME=SHARE: images of the class (hits, 0.95) and others (false-alarms, 0.02) that a "
            "person selects on average; repeatable."
        ),
    ] = {}
    frequencies: (
        Annotated[
            Path,
            option(
                "Table of image_id, class_id, frequency: how often people of perfect skill select an "
                "image; drawn where it has none."
            ),
        ]
        | None
    ) = None
    seed: Seed = 0


class MTurkPublishRequest(PublishRequest, frozen=True, kw_only=True):
    """Publish grids on Amazon Mechanical Turk, in its sandbox unless --live LIVE is given.

    Images are put under their tokens at --images-to and must be public at --images-at. The cost with
    MTurk's fees is said before anything is created; --plan says it and stops, and with -o also
    writes the page of the first grid.
    """

    images_at: (
        Annotated[str, option("Public address below which the images are served.")] | None
    ) = None
    images_to: (
        Annotated[
            str,
            option(
                "Where the images are put: a folder, s3://bucket/prefix, gs:// or az://; a folder of "
                "the workspace by default."
            ),
        ]
        | None
    ) = None
    offer: Annotated[
        Mapping[Literal["reward", "fee", "minutes", "days", "approval-days"], float],
        option(
            "NAME=NUMBER: reward in dollars (0.10) and MTurk's fee as a share of it, minutes for a grid "
            "(10), days for which it is offered (7) and after which an answer is approved (3); "
            "repeatable."
        ),
    ] = {}
    qualifications: Annotated[
        Mapping[Literal["approved", "hits", "country"], str],
        option(
            "NAME=VALUE: approved=95 (percent), hits=1000, country=US,GB; repeatable.",
            flag="qualification",
        ),
    ] = {}
    live: Live | None = None
    out: Out | None = None

    def check(self) -> None:
        """Going live is said in full; people must be able to see the images."""
        check_live(self.live)
        if self.images_at is None and not self.plan:
            raise RequestError(
                "{images_at} is missing",
                fix="name the public address below which the images of {images_to} are served",
            )
        if self.out is not None and not self.plan:
            raise RequestError("{out} has no use without {plan}", fix="add {plan}")
        for name, number in self.offer.items():
            if number < (0 if name == "fee" else 0.01 if name == "reward" else 1):
                raise RequestError(f"{{offer}} {name} is {number:g}", fix="give more")
        for kind, value in self.qualifications.items():
            if kind != "country" and not value.isdecimal():
                raise RequestError(
                    f"{{qualifications}} {kind} is {value!r}", fix="give a whole number"
                )


def check_live(live: str | None) -> None:
    """Refuse a word other than LIVE."""
    if live not in (None, "LIVE"):
        raise RequestError(f"{{live}} is {live!r}", fix="write LIVE, or leave it out")


PublishRequest.kinds = {
    "local": LocalPublishRequest,
    "mturk": MTurkPublishRequest,
    "simulated": SimulatedPublishRequest,
}


class AnswersRequest(Request, frozen=True, kw_only=True):
    """Fetch the answers of a crowd, and keep them as votes.

    Answers are kept in the workspace (crowd/CROWD/answers) as they were given, under keyed hashes of
    people. The same answers again add nothing. Votes of a rejected or ignored assignment stop counting.
    --plan only says how far the crowd is.
    """

    tag: ClassVar[str] = "crowd"

    crowd: Annotated[str, argument("Whose answers: local, mturk or simulated.")]
    approve: Annotated[bool, option("Approve all answers to the grids that can be read.")] = False
    reject: Annotated[
        Mapping[str, str],
        option("ASSIGNMENT=REASON: reject an answer, which is then not paid for; repeatable."),
    ] = {}
    ignore: Annotated[
        Mapping[str, str],
        option(
            "NAME=REASON: votes of this grid, assignment or person no longer count, whether paid for "
            "or not; repeatable."
        ),
    ] = {}
    stored: Annotated[
        bool, option("Ask nobody: add the answers that are kept, such as those of a backup.")
    ] = False
    plan: Plan = False

    def check(self) -> None:
        """What is only looked at changes nothing."""
        for mode in ("plan", "stored"):
            if getattr(self, mode):
                unused(self, f"{{{mode}}}", "approve", "reject")
        if self.plan:
            unused(self, "{plan}", "ignore", "stored")
        if both := sorted(
            name for name, text in (*self.reject.items(), *self.ignore.items()) if not text
        ):
            raise RequestError(f"no reason is given for {both[0]!r}", fix="write NAME=REASON")


class LocalAnswersRequest(AnswersRequest, frozen=True, kw_only=True):
    """Add the answers of your own people to the judgements."""


class SimulatedAnswersRequest(AnswersRequest, frozen=True, kw_only=True):
    """Let simulated people answer, and add their votes to the judgements."""


class MTurkAnswersRequest(AnswersRequest, frozen=True, kw_only=True):
    """Fetch answers from Amazon Mechanical Turk, and add their votes to the judgements."""

    live: Live | None = None

    def check(self) -> None:
        """As for all crowds, and LIVE is written so."""
        super().check()
        check_live(self.live)


AnswersRequest.kinds = {
    "local": LocalAnswersRequest,
    "mturk": MTurkAnswersRequest,
    "simulated": SimulatedAnswersRequest,
}


class VotesRequest(Request, frozen=True, kw_only=True):
    """Say what people selected, and how far they agree.

    Votes are those of the workspace's judgements about the images of the sets: name the pool, and
    the set that controls are from. People are judged by the controls that they got right. --json
    also has every image, every image in each grid, and what each person selected; -o writes the
    first set with its frequencies as columns to a folder.
    """

    sets: Annotated[
        tuple[str, ...], argument("The pool, and the test set of its controls.", min_length=1)
    ]
    min_accuracy: (
        Annotated[
            float,
            option(
                "Leave out people who are right about fewer of their controls than this share.",
                ge=0,
                le=1,
            ),
        ]
        | None
    ) = None
    level: Level = 0.95
    out: Out | None = None
    replace: Replace = False

    def check(self) -> None:
        """Only a folder can be replaced."""
        if self.out is None:
            unused(self, "a table", "replace")
