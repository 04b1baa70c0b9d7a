"""The conformance suite: what every recipe must keep, checked on small sources.

::

    def make_sources():                     # in my_package/night.py, beside the recipe
        return {"pool": make_pool(...)}

    def test_recipe(tmp_path):
        check_recipe("my_package.night:recipe", "my_package.night:make_sources", scratch=tmp_path)

Recipe and sources are named by import path, because some builds run in other processes: under
another hash seed and time zone, or to be killed with SIGKILL at a chosen write.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from heldout.core.engine import Threads
from heldout.core.errors import HeldoutError, UserError
from heldout.core.files import read_json, sha256_file, write_json
from heldout.core.plugins import load_object
from heldout.core.request import Request, fields
from heldout.core.workspace import check_slug
from heldout.curate.build import ORIGIN, run_recipe
from heldout.curate.recipe import Recipe, Sources
from heldout.curate.registry import load_recipe
from heldout.data.testset.testset import TestSet, load
from heldout.data.testset.verify import verify
from heldout.testing.executor import FakeExecutor

_NAME = "set"
_TIMEOUT = 600
_MOMENTS = 5  # writes at which a build is killed, the first and the last among them


@dataclass(frozen=True)
class Violation:
    """One promise that a recipe broke: the check that found it, and the evidence."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


class NotConforming(HeldoutError):
    """A recipe that breaks the protocol; ``violations`` lists every way in which it does."""

    def __init__(self, recipe: str, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        lines = "".join(f"\n- {violation}" for violation in violations)
        super().__init__(f"recipe {recipe} breaks {len(violations)} promises:{lines}")


# ---- builds of one recipe ------------------------------------------------------------------------


class Place:
    """Where one build lies: ``testsets/set``, ``runs`` and an empty ``here`` below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "testsets" / _NAME
        self.runs = root / "runs"
        self.here = root / "here"

    def files(self) -> dict[str, str]:
        """Every file of the test set with its SHA-256."""
        return {
            path.relative_to(self.folder).as_posix(): sha256_file(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A recipe with what it is examined on.

    ``recipe_path``, ``sources_path``  ``package.module:object``; the latter is a function without
                                       arguments that gives the sources by role
    ``scratch``                        an empty folder
    """

    recipe_path: str
    sources_path: str
    scratch: Path
    seed: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe."""
        return load_recipe(self.recipe_path)

    @cached_property
    def parameters(self) -> Any:
        """The parameters it is examined with."""
        return self.recipe.read(self.values)

    def sources(self) -> Sources:
        """The sources, made anew."""
        made: Sources = load_object(self.sources_path)()
        return made

    @cached_property
    def baseline(self) -> Place:
        """The build that all others are compared with."""
        return self.build("baseline")

    @cached_property
    def testset(self) -> TestSet:
        """The test set of that build."""
        return load(self.baseline.folder)

    def difference(self, place: Place) -> str:
        """The first file in which a build differs from the baseline, in words; empty if none."""
        return first_difference(self.baseline.files(), place.files())

    def build(self, label: str, **changed: Any) -> Place:
        """Build in this process; a build of that label that was killed is resumed.

        ``changed`` are options of :func:`run_recipe`, and ``sources``.
        """
        place = Place(self.scratch / label)
        sources = changed.pop("sources", None) or self.sources()
        options = {"parameters": self.parameters, "seed": self.seed, **changed}
        run_recipe(
            self.recipe, sources, folder=place.folder, runs=place.runs, name=_NAME, **options
        )
        return place

    def child(self, label: str, *, kill: int | None = None, elsewhere: bool = False) -> int:
        """Build in another process; the number of moments, or 0 if it was killed as asked.

        ``elsewhere``  under another hash seed, state of random generators and time zone
        """
        place = Place(self.scratch.resolve() / label)
        place.here.mkdir(parents=True, exist_ok=True)
        request, report = place.root / "request.json", place.root / "report.json"
        subject = dataclasses.asdict(self) | {"scratch": str(self.scratch.resolve())}
        write_json(
            request,
            {
                "schema_version": 1,
                "subject": subject,
                "label": label,
                "report": str(report),
                "kill": kill,
                "global_seed": 99 if elsewhere else 0,
            },
        )
        done = subprocess.run(
            [sys.executable, "-m", "heldout.testing.recipe_child", str(request)],
            cwd=place.here,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path),
                "PYTHONHASHSEED": "4242" if elsewhere else "0",
                "PYTHONDONTWRITEBYTECODE": "1",
                "TZ": "Asia/Tokyo" if elsewhere else "UTC",
            },
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if kill is not None and done.returncode == -signal.SIGKILL:
            return 0
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
            raise HeldoutError(f"a build in another process failed: {lines[-1]}")
        return int(read_json(report)["moments"])


def first_difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """The first file in which two builds differ, in words; empty when they are equal."""
    for file in sorted(expected.keys() | found.keys()):
        if file not in found:
            return f"{file} is missing"
        if file not in expected:
            return f"{file} is new"
        if expected[file] != found[file]:
            return f"{file} has other bytes"
    return ""


# ---- checks that build again: other order, world, workers, seed, after a kill ---------------------


def check_order(subject: Subject) -> Iterator[str]:
    """The order of rows in the sources must not matter."""
    for seed in (1, 2):
        sources = dict(subject.sources())
        able = {role: one for role, one in sources.items() if hasattr(one, "reordered")}
        if not able:
            yield "could not be checked: no source has a method reordered(seed)"
            return
        sources |= {role: one.reordered(seed) for role, one in able.items()}
        if difference := subject.difference(subject.build(f"order-{seed}", sources=sources)):
            yield f"with the rows of its sources shuffled, {difference}"
            return


def check_same_seed(subject: Subject) -> Iterator[str]:
    """The same request must give the same bytes, again, elsewhere and later."""
    if again := subject.difference(subject.build("again")):
        yield f"built twice in one process, {again}"

    for label, words in (("fresh", "in a fresh process"), ("elsewhere", "in another environment")):
        subject.child(label, elsewhere=label == "elsewhere")
        if found := subject.difference(Place(subject.scratch / label)):
            yield f"built {words}, {found}"


def check_workers(subject: Subject) -> Iterator[str]:
    """Where and in which order units are done must not matter."""
    for label, executor in (("shuffled", FakeExecutor(seed=3)), ("threads", Threads(2))):
        place = subject.build(f"workers-{label}", executor=executor)
        if difference := subject.difference(place):
            yield f"with {label} workers, {difference}"


def check_seeds(subject: Subject) -> Iterator[str]:
    """Another seed may draw other images, and must still give a valid set that says its seed."""
    for seed in (subject.seed, subject.seed + 1, 2**63 + 5):
        folder = subject.build(f"seed-{seed}", seed=seed).folder
        for finding in verify(folder).findings:
            yield f"seed {seed}: {finding.file}: {finding.message}"
        card = load(folder).card
        if card.recipe.get("seed") != seed:
            yield f"seed {seed} is not in the card"
        same = card.content_hash == subject.testset.card.content_hash
        if not same and not subject.recipe.guarantees.seeded:
            yield f"seed {seed} gives another set, though seeds are not to matter"


def check_nested(subject: Subject) -> Iterator[str]:
    """Where a recipe promises it, a smaller request must give a subset with equal rows."""
    for name in subject.recipe.guarantees.nested:
        value = getattr(subject.parameters, name)
        half = value / 2 if isinstance(value, float) else value // 2
        bounds = (half, value) if half >= 1 or isinstance(value, float) else (value, 2 * value)
        small, large = (
            _rows(load(subject.build(f"nested-{name}-{bound}", parameters=asked).folder))
            for bound in bounds
            for asked in [msgspec.structs.replace(subject.parameters, **{name: bound})]
        )
        what = f"{name} = {bounds[0]} against {bounds[1]}"
        for table, rows in small.items():
            others = large.get(table, {})
            for key, row in rows.items():
                if row != others.get(key):
                    how = "differs" if key in others else "is not"
                    yield f"{what}: {table} row {key} {how} in the larger set"
                    break


def _rows(testset: TestSet) -> dict[str, dict[Any, Any]]:
    """By table of a test set and what names a row: the row."""
    found: dict[str, dict[Any, Any]] = {
        "images": {row["image_id"]: row for row in testset.images.to_pylist()},
        "memberships": {tuple(row.values()): row for row in testset.memberships.to_pylist()},
    }
    for name, table in testset.truths.items():
        rows = table.to_pylist()
        found[f"truth {name}"] = {(row["image_id"], row["class_id"]): row for row in rows}
    return found


def check_resume(subject: Subject) -> Iterator[str]:
    """Killed at any moment and started again, a build must give the same bytes."""
    moments = subject.child("resume-count")
    here = Place(subject.scratch / "resume-count").here
    if strays := sorted(path.name for path in here.iterdir()):
        yield f"writes outside its folders: {strays[0]} in the current folder"
    for moment in sorted({1 + round(i * (moments - 1) / (_MOMENTS - 1)) for i in range(_MOMENTS)}):
        label, when = f"resume-{moment}", f"killed at write {moment} of {moments}"
        subject.child(label, kill=moment)
        place = Place(subject.scratch / label)
        if place.folder.exists() and (half := subject.difference(place)):
            yield f"{when}, it left a folder in which {half}"
        if difference := subject.difference(subject.build(label)):
            yield f"{when} and resumed, {difference}"


# ---- checks that read what was built -------------------------------------------------------------


def check_declaration(subject: Subject) -> Iterator[str]:
    """Name, version, parameters, roles and guarantees must be there and fit together."""
    recipe = subject.recipe
    try:
        check_slug(recipe.name, "a recipe")
    except UserError as error:
        yield error.line
    if not isinstance(recipe.version, str) or not recipe.version:
        yield "the recipe has no version"
    problems = check_kind(recipe.parameters)
    yield from (f"the class of its parameters {problem}" for problem in problems)
    if problems:
        return
    given = subject.parameters
    if recipe.read(recipe.recorded(given)) != given:
        yield "its parameters do not survive being written and read"
    if not recipe.roles or len(set(recipe.roles)) != len(recipe.roles):
        yield f"its roles are {recipe.roles!r}"
    for name in recipe.guarantees.nested:
        value = getattr(given, name, None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield f"it promises nested sets for {name!r}, which is not a numeric parameter"
    if recipe.guarantees.selects and "pool" not in recipe.roles:
        yield "it promises to select, and reads no pool"


def check_kind(kind: type[Any]) -> list[str]:
    """What keeps a class from being a recipe's parameters; empty when all is well."""
    if dataclasses.is_dataclass(kind):
        return []
    if not (isinstance(kind, type) and issubclass(kind, Request)):
        return ["is not a Request"]
    return [f"field {field.name} has no default" for field in fields(kind) if field.required]


def check_licences(subject: Subject) -> Iterator[str]:
    """Every image must carry the source, licence and attribution of all it was made from."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for role, source in subject.sources().items():
        if hasattr(source, "images"):
            rows |= {(role, row["image_id"]): row for row in source.images.to_pylist()}
    origins: dict[str, list[tuple[str, str]]] = {}
    for row in subject.testset.memberships.to_pylist():
        if row["column"] == ORIGIN:
            role, _, origin = row["value"].partition(":")
            origins.setdefault(row["image_id"], []).append((role, origin))
    found: dict[str, str] = {}  # the first image of each kind of loss is evidence enough
    for row in subject.testset.images.to_pylist():
        image = row["image_id"]
        places = origins.get(image, [("pool", image)])
        if subject.recipe.guarantees.selects and places != [("pool", image)]:
            found.setdefault("made", f"image {image!r} was made, though it promises to select")
        nowhere = [place for place in places if place not in rows]
        if nowhere:
            found.setdefault("nowhere", f"image {image!r} comes from nowhere: {nowhere[0]!r}")
            continue
        for theirs in map(rows.__getitem__, places):
            for name in ("source", "licence", "attribution"):
                if theirs[name] is not None and theirs[name] not in (row[name] or ""):
                    lost = f"has the {name} {row[name]!r}, its origin has {theirs[name]!r}"
                    found.setdefault(name, f"image {image!r} {lost}")
            if theirs["licence"] is None and "unknown" not in (row["licence"] or "unknown"):
                lost = f"has the licence {row['licence']!r}, an origin has none"
                found.setdefault("unknown", f"image {image!r} {lost}")
    yield from found.values()


def check_card(subject: Subject) -> Iterator[str]:
    """What the recipe adds to the card must fit the tables; the rest is written for it."""
    testset, card = subject.testset, subject.testset.card
    if not len(testset):
        yield "the set has no images: examine the recipe on sources from which it makes some"
    if subject.recipe.guarantees.selects:
        others = {"classes", *subject.recipe.roles} - {"pool"}  # what else it reads are not images
        stages = [n for stage, n in card.counts.items() if stage not in others]
        if any(after > before for before, after in pairwise(stages)):
            yield f"its counts rise from stage to stage: {card.counts}"
    if any(n < 0 for n in card.counts.values()):
        yield f"it has a negative count: {card.counts}"
    if not testset.truths:
        yield "the set has no truth"
    for name, where in card.truths.items():
        if not where.get("kind") or not where.get("source"):
            yield f"truth {name} does not say its kind and source"
        judged = set(testset.truths[name]["image_id"].to_pylist())
        if name == card.default_truth and len(judged) < len(testset):
            yield f"truth {name} leaves out {len(testset) - len(judged)} images"


# ---- the suite -----------------------------------------------------------------------------------

CHECKS: dict[str, Callable[[Subject], Iterator[str]]] = {
    "declaration": check_declaration,
    "order": check_order,
    "same-seed": check_same_seed,
    "workers": check_workers,
    "seeds": check_seeds,
    "nested": check_nested,
    "licences": check_licences,
    "card": check_card,
    "resume": check_resume,
}
"""Every check by name, in the order in which they are made; each yields what is wrong."""


def examine_recipe(
    recipe: str,
    sources: str,
    *,
    scratch: Path,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    checks: Sequence[str] | None = None,
) -> tuple[Violation, ...]:
    """Everything that a recipe breaks; empty when it conforms.

    ``recipe``      ``package.module:object``
    ``sources``     ``package.module:function``; the function gives the sources by role
    ``scratch``     an empty folder for the builds
    ``parameters``  what to examine it with; choose some that make all of it work
    ``checks``      names from :data:`CHECKS`; all by default
    """
    unknown = [name for name in checks or () if name not in CHECKS]
    if unknown:
        raise UserError(f"no check {unknown[0]!r}", fix=f"there is {', '.join(CHECKS)}")
    if scratch.exists() and any(scratch.iterdir()):
        raise UserError(f"{scratch} is not empty", fix="give an empty folder")
    subject = Subject(
        recipe_path=recipe,
        sources_path=sources,
        scratch=scratch,
        seed=seed,
        values=dict(parameters or {}),
    )
    found: list[Violation] = []
    for name in checks or CHECKS:
        try:
            found.extend(Violation(name, message) for message in CHECKS[name](subject))
        except Exception as error:  # a recipe may fail in any way, and the other checks still count
            found.append(Violation(name, f"{type(error).__name__}: {error}"))
    return tuple(found)


def check_recipe(recipe: str, sources: str, **options: Any) -> None:
    """Raise :class:`NotConforming`, which lists every violation, unless the recipe conforms.

    ``options`` are those of :func:`examine_recipe`.
    """
    found = examine_recipe(recipe, sources, **options)
    if found:
        raise NotConforming(recipe, found)
