"""The recipe protocol: ``(sources, parameters, seed) -> test set + card``.

A recipe says which rows, truths and columns a test set has. Everything that must be the same for
all recipes (card, hashes, licences, parents, canonical row order, files) is done by
:func:`heldout.curate.build.run_recipe`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from heldout.core.engine import Executor, Job, JobResults, Progress, Unit, no_progress, run
from heldout.core.engine.results import UnitFailure
from heldout.core.errors import NotApplicable, UserError
from heldout.core.files import canonical_json
from heldout.core.request import make
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.testset import TestSet

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class Source(Protocol):
    """Something a recipe reads: a pool, or a :class:`RecipeInput`.

    ``name`` is what the card calls it, ``len()`` the number of its images or other rows;
    ``content_hash`` depends on the content, not on the order of rows, and is the parent's hash.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def content_hash(self) -> str: ...  # noqa: D102

    def __len__(self) -> int: ...


@dataclass(frozen=True, eq=False)
class RecipeInput:
    """Any value as a source: its name, the hash of its content, and how many rows it has."""

    name: str
    content_hash: str
    value: Any
    rows: int = 0

    def __len__(self) -> int:
        return self.rows


Sources = Mapping[str, Source]
"""What a recipe reads, by role: ``pool``, ``backgrounds``, ``predictions``, …"""


@dataclass(frozen=True, kw_only=True)
class Guarantees:
    """What a recipe promises beyond what all must; the conformance suite holds it to them.

    ``nested``   numeric parameters of which a smaller value gives a subset of the images, with
                 equal rows
    ``selects``  images are only chosen: ids are those of the role ``pool``, and counts only fall
                 from stage to stage
    ``seeded``   the seed matters; where it does not, every seed must give the same set
    """

    nested: tuple[str, ...] = ()
    selects: bool = False
    seeded: bool = True


@dataclass(frozen=True, kw_only=True)
class TruthTable:
    """A truth that a recipe gives: its table, and where it comes from for the card."""

    table: pa.Table
    provenance: Mapping[str, Any] = field(default_factory=lambda: {"kind": "single"})


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Images that a recipe has written below its folder of work, laid out as the set has them.

    ``folder``  its content is moved into the set, not copied: a large set is written once
    ``root``    where in the set: ``images``, or ``.`` for the set's own folder
    ``work``    the folder of work, of no use without the images, that goes when they are moved

    The recipe's images table gives ``path``, ``sha256``, ``width`` and ``height`` of each.
    """

    folder: Path
    root: str = "images"
    work: Path | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class RecipeResult:
    """What a recipe made; rows in any order.

    ``images``       image_id, and whatever else the recipe knows; ``source``, ``licence`` and
                     ``attribution`` that are missing or null are filled in from the origins
    ``truths``       the first is the default
    ``counts``       how many images were left after each stage, in order; what came in and what
                     came out are added
    ``origins``      image_id -> the (role, image_id) it was made from. Without it an image's
                     origin is the image of the same id in the role ``pool``
    ``files``        image_id -> the file to become its image, for images that were rendered.
                     ``path`` in the set is ``images/<image_id><ending>``
    ``rendered``     instead of ``files``: a folder of images that is moved into the set
    ``documents``    further files of the set by path, such as a published layout's CSV files
    ``factors``      what was varied, ``clusters`` and ``units``: as the card has them
    ``report``       what the recipe tells its caller beyond the set
    """

    images: pa.Table
    label_space: LabelSpace
    truths: Mapping[str, TruthTable] = field(default_factory=dict)
    memberships: pa.Table | None = None
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, tuple[tuple[str, str], ...]] | None = None
    files: Mapping[str, Path] | None = None
    rendered: Rendered | None = None
    documents: Mapping[str, bytes] = field(default_factory=dict)
    factors: tuple[str, ...] = ()
    clusters: str | None = None
    units: tuple[str, ...] = ()
    citation: str = ""
    notes: tuple[str, ...] = ()
    report: Any = None


@dataclass(frozen=True, eq=False)
class BuildContext:
    """Where a recipe does its heavy work: content-addressed, so that a killed build resumes.

    ``runs``   the folder of resumable work. A recipe writes nowhere else.
    ``stack``  what a recipe enters here is left when its set is written
    """

    runs: Path
    executor: Executor | None = None
    progress: Progress = no_progress
    stack: ExitStack = field(default_factory=ExitStack)

    def complete(self, job: Job, units: Iterable[Unit]) -> JobResults:
        """The results of all units; a unit that fails ends the build, and the rest is kept."""
        listed = list(units)
        summary = run(job, listed, runs=self.runs, executor=self.executor, progress=self.progress)
        if summary.failed:
            failures = [o for o in summary.results.in_order(listed) if isinstance(o, UnitFailure)]
            raise UserError(
                f"job {job.name}: {len(failures)} of {len(listed)} units failed, the first with "
                f"{failures[0].reason}",
                fix="fix the cause and run again: what is done is kept",
            )
        return summary.results


class Recipe:
    """Turns sources into a test set; a recipe of one's own is a subclass.

    ``name``        a slug, unique among recipes
    ``version``     changes whenever the same request would give other content
    ``parameters``  a :class:`~heldout.core.request.Request` with a default for every field
    ``roles``       the sources it reads; ``optional`` those among them that may be left out
    ``guarantees``  what it promises beyond the protocol
    """

    name: str
    version: str
    parameters: type[Any]
    roles: tuple[str, ...] = ("pool",)
    optional: tuple[str, ...] = ()
    guarantees: Guarantees = Guarantees()

    def read(self, values: Mapping[str, Any]) -> Any:
        """The parameters that these values ask for."""
        return make(self.parameters, values)

    def recorded(self, parameters: Any) -> dict[str, Any]:
        """The parameters as the card has them, in JSON values.

        Where they are the request of a verb, its further fields (a folder, a name) are left out.
        """
        plain = msgspec.json.decode(msgspec.json.encode(parameters, enc_hook=os.fspath))
        names = getattr(self.parameters, "__struct_fields__", plain)
        return {name: plain[name] for name in names}

    def build(
        self, sources: Sources, parameters: Any, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """Make the rows of the test set.

        The result must depend on nothing but the arguments: no clock, no global random state, no
        order of rows or of files. Chance comes from ``seed``, best through
        :func:`heldout.data.testset.hashing.row_hash`.
        """
        raise NotImplementedError

    def plan(
        self,
        sources: Sources,
        parameters: Any,
        *,
        seed: int = 0,
        progress: Progress = no_progress,
    ) -> Any:
        """What :meth:`build` would choose, without making it; each recipe has its own kind."""
        raise NotApplicable(f"recipe {self.name} has no plan", fix="build it")


def pool_in(sources: Sources, role: str = "pool") -> TestSet:
    """The pool in a role; another kind of source is refused."""
    pool = sources[role]
    if not isinstance(pool, TestSet):
        raise UserError(f"{pool.name} is not a pool", fix="give a pool or a test set")
    return pool


def document(**parts: Any) -> bytes:
    """A JSON document of a set: equal parts, equal bytes."""
    return (canonical_json({"schema_version": 1, **parts}) + "\n").encode()
