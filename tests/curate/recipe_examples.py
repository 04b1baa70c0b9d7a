"""Small sources, and recipes that each break one promise; importable from other processes."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from heldout.core.engine import Job, Unit, unit_key
from heldout.core.request import Request
from heldout.curate.recipe import (
    BuildContext,
    Guarantees,
    Recipe,
    RecipeInput,
    RecipeResult,
    Sources,
    TruthTable,
)
from heldout.data.labels import LabelSpace
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, membership_table, truth_table
from heldout.data.testset.testset import TestSet, make_pool
from heldout.testing.sample_recipe import SampleParameters, SampleRecipe

SPACE = LabelSpace.from_ids("letters", ["a", "b", "c"])
LICENCES = ("CC0-1.0", "CC-BY-4.0", None)


def make_sources(n: int = 36) -> dict[str, TestSet]:
    ids = [f"image{i:03d}" for i in range(n)]
    return {
        "pool": make_pool(
            "letters-pool",
            images=image_table(
                {
                    "image_id": ids,
                    "source": ["somewhere"] * n,
                    "licence": [LICENCES[i % 3] for i in range(n)],
                    "attribution": [f"person {i % 5}" for i in range(n)],
                    "light": [i / 2 for i in range(n)],
                    "place": [("indoor", "outdoor")[i % 2] for i in range(n)],
                }
            ),
            truths={"original": truth_table(ids, [SPACE.ids[i % 3] for i in range(n)])},
            memberships=membership_table(
                [(image, "context", f"context {(i * i) % 4}") for i, image in enumerate(ids)]
            ),
            columns={"light": ColumnType(kind="ordered", unit="lux")},
            label_space=SPACE,
            citation="Somebody: Letters",
        )
    }


def two_sources() -> dict[str, Any]:
    pool = make_sources(12)["pool"]
    other = make_sources(6)["pool"]
    other = replace(other, card=other.card.updated(name="backgrounds-pool"))
    return {"pool": pool, "backgrounds": other}


def unordered_sources() -> dict[str, Any]:
    return {"pool": RecipeInput("numbers", "ab" * 32, [1, 2, 3], rows=3)}


class Chooser(Recipe):
    """A correct recipe that only selects; the broken ones below change one thing each."""

    name = "chooser"
    version = "1"
    parameters = SampleParameters
    guarantees = Guarantees(nested=("per_class",), selects=True)

    def build(
        self, sources: Sources, parameters: Any, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        return SampleRecipe().build(sources, parameters, seed=seed, context=context)


class Changed(Chooser):
    def build(
        self, sources: Sources, parameters: Any, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        built = super().build(sources, parameters, seed=seed, context=context)
        return self.change(built, parameters, context)

    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        raise NotImplementedError


def with_column(built: RecipeResult, name: str, values: list[Any]) -> RecipeResult:
    import pyarrow as pa

    images = built.images
    if name in images.column_names:
        images = images.drop_columns([name])
    return replace(built, images=images.append_column(name, pa.array(values)))


class FirstRows(Chooser):
    guarantees = Guarantees(selects=True)

    def build(
        self, sources: Sources, parameters: Any, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        pool: Any = sources["pool"]
        wanted = pool.images.slice(0, 5)
        ids = wanted["image_id"].to_pylist()
        truth = pool.truth().filter([i in ids for i in pool.truth()["image_id"].to_pylist()])
        return RecipeResult(
            images=wanted, truths={"original": TruthTable(table=truth)}, label_space=pool.space
        )


class Clock(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return with_column(built, "made", [time.time_ns()] * len(built.images))


class GlobalRandom(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return with_column(built, "noise", [random.random() for _ in range(len(built.images))])


class HashSeed(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        ids = built.images["image_id"].to_pylist()
        return with_column(built, "bucket", [hash(i) % 1000 for i in ids])


class Remembers(Changed):
    calls = 0

    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        Remembers.calls += 1
        return with_column(built, "call", [Remembers.calls] * len(built.images))


class NotNested(Chooser):
    def build(
        self, sources: Sources, parameters: Any, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        return super().build(sources, parameters, seed=seed + parameters.per_class, context=context)


class RowsChange(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return with_column(built, "asked", [parameters.per_class] * len(built.images))


class OneLicence(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return with_column(built, "licence", ["CC0-1.0"] * len(built.images))


class HidesUnknown(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        known = [text or "CC0-1.0" for text in built.images["licence"].to_pylist()]
        return with_column(built, "licence", known)


class LosesAuthors(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return with_column(built, "attribution", ["the team"] * len(built.images))


class Renames(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        ids = [f"new-{i}" for i in built.images["image_id"].to_pylist()]
        made = truth_table(ids, ["a"] * len(ids))
        renamed = with_column(built, "image_id", ids)
        return replace(renamed, truths={"original": TruthTable(table=made)}, memberships=None)


class TrustsLeftovers(Changed):
    """Keeps a list of what it drew, line by line, and believes it on the next run."""

    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        import pyarrow.compute as pc

        context.runs.mkdir(parents=True, exist_ok=True)
        state = context.runs / "drawn.txt"
        if not state.exists():
            for image in sorted(built.images["image_id"].to_pylist()):
                with state.open("a") as handle:
                    handle.write(image + "\n")
        kept = state.read_text().split()
        keep = [i in kept for i in built.images["image_id"].to_pylist()]
        images = built.images.filter(keep)
        ids = images["image_id"].combine_chunks()
        truth = built.truths["original"].table
        truth = truth.filter(pc.is_in(truth["image_id"], value_set=ids))
        return replace(
            built, images=images, truths={"original": TruthTable(table=truth)}, memberships=None
        )


class WritesElsewhere(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        Path("log.txt").write_text("built")
        return built


_done: list[str] = []


def note_place(unit: Unit) -> Any:
    """The place of a unit among those done so far: what a unit must never depend on."""
    _done.append(unit.payload)
    return len(_done)


class OrderOfWork(Changed):
    """Takes outcomes in the order in which workers finish."""

    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        _done.clear()
        ids = sorted(built.images["image_id"].to_pylist())
        units = [Unit(unit_key("order-1", image=image), image) for image in ids]
        run = context.executor.run if context.executor else map
        return with_column(built, "queue", list(run(note_place, units)))  # type: ignore[operator]


class FailingWork(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        units = [Unit(unit_key("fail-1", n=n), n) for n in range(3)]
        context.complete(Job(name="fail", work=fail_on_one), units)
        return built


def fail_on_one(payload: int) -> bytes:
    if payload == 1:
        raise ValueError("one is bad")
    return b"ok"


class RisingCounts(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return replace(built, counts={"drawn": 3, "and more": 5})


class TakenCount(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return replace(built, counts={"images": 3})


class PartialTruth(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        table = built.truths["original"].table.slice(1)
        return replace(built, truths={"original": TruthTable(table=table)})


class NoTruth(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        return replace(built, truths={})


class NoKind(Changed):
    def change(self, built: RecipeResult, parameters: Any, context: BuildContext) -> RecipeResult:
        table = built.truths["original"].table
        return replace(built, truths={"original": TruthTable(table=table, provenance={})})


class SecretlySeeded(Chooser):
    guarantees = Guarantees(seeded=False)


class Loose(Request, frozen=True, kw_only=True):
    per_class: int
    names: tuple[str, ...] = ()


class BadParameters(Chooser):
    parameters = Loose


class BadPromises(Chooser):
    name = "not a slug"
    version = ""
    roles = ("testset",)
    guarantees = Guarantees(nested=("truth", "absent"), selects=True)


class Mixes(Chooser):
    """Two sources: every chosen image on every background."""

    name = "mixes"
    guarantees = Guarantees()
    roles = ("pool", "backgrounds")

    def build(
        self, sources: Sources, parameters: Any, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        drawn = SampleRecipe().build(
            {"pool": sources["pool"]}, parameters, seed=seed, context=context
        )
        grounds: Any = sources["backgrounds"]
        classes = {
            row["image_id"]: row["class_id"] for row in drawn.truths["original"].table.to_pylist()
        }
        pairs = {
            f"{front}+{back}": (front, back)
            for front in drawn.images["image_id"].to_pylist()
            for back in grounds.images["image_id"].to_pylist()[:6]
        }
        ids = list(pairs)
        return RecipeResult(
            images=image_table({"image_id": ids}),
            truths={
                "original": TruthTable(
                    table=truth_table(ids, [classes[front] for front, _ in pairs.values()])
                )
            },
            label_space=SPACE,
            counts={"pairs": len(ids)},
            origins={
                made: (("pool", front), ("backgrounds", back))
                for made, (front, back) in pairs.items()
            },
        )


class WrongOrigin(Mixes):
    def build(
        self, sources: Sources, parameters: Any, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        built = super().build(sources, parameters, seed=seed, context=context)
        return replace(built, origins=dict.fromkeys(built.origins or {}, (("pool", "who"),)))


class NotARecipe:
    name = "nothing"


chooser = Chooser()
first_rows = FirstRows()
clock = Clock()
global_random = GlobalRandom()
hash_seed = HashSeed()
remembers = Remembers()
not_nested = NotNested()
rows_change = RowsChange()
one_licence = OneLicence()
hides_unknown = HidesUnknown()
loses_authors = LosesAuthors()
renames = Renames()
trusts_leftovers = TrustsLeftovers()
writes_elsewhere = WritesElsewhere()
order_of_work = OrderOfWork()
failing_work = FailingWork()
rising_counts = RisingCounts()
taken_count = TakenCount()
partial_truth = PartialTruth()
no_truth = NoTruth()
no_kind = NoKind()
secretly_seeded = SecretlySeeded()
bad_parameters = BadParameters()
bad_promises = BadPromises()
mixes = Mixes()
wrong_origin = WrongOrigin()
not_a_recipe = NotARecipe()
