"""What the verbs about test sets, labels and judgements are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from heldout.core.request import Request, RequestError, Truth, argument, option

Blacklist = Annotated[Path, option("JSON of image -> reason.")]


class Verify(Request, frozen=True, kw_only=True):
    """Check tables, hashes and image files against the card; nothing is changed.

    With --audit, or anything to compare with, also look for images and classes that should not be as
    they are; --json lists every one of them.
    """

    testsets: Annotated[
        tuple[str, ...], argument("Test sets and pools: names or paths; all by default.")
    ] = ()
    images: Annotated[
        bool, option("Also compare every image file with its hash.", flag="files")
    ] = True
    decode: Annotated[bool, option("Also decode every image file.")] = True
    audit: Annotated[bool, option("Also look at duplicates, class sizes and reviews.")] = False
    blacklist: Blacklist | None = None
    near_duplicates: Annotated[Path, option("JSON of image -> images nearly the same.")] | None = (
        None
    )
    other: Annotated[
        tuple[str, ...],
        option("Another test set, or a list of image ids, that must not share images; repeatable."),
    ] = ()
    per_class: Annotated[int, option("How many images a class should have.", ge=1)] | None = None
    truth: Truth | None = None

    @property
    def audits(self) -> bool:
        """Whether content is looked at too."""
        asked = (self.blacklist, self.near_duplicates, self.per_class, self.truth)
        return self.audit or bool(self.other) or any(item is not None for item in asked)

    def check(self) -> None:
        """Content is looked at one named set at a time."""
        if self.audits and not self.testsets:
            raise RequestError("{testsets} is missing", fix="name the test sets to audit")


class Diff(Request, frozen=True, kw_only=True):
    """Show images, classes, truths and card entries that differ."""

    a: Annotated[str, argument("The earlier test set.")]
    b: Annotated[str, argument("The later test set.")]


class Cite(Request, frozen=True, kw_only=True):
    """Print the citations of a test set and of its parents."""

    testset: Annotated[str, argument("The test set.")]
    bibtex: Annotated[bool, option("As BibTeX.")] = False
