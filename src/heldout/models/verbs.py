"""The verbs about what a workspace stores: ls, prune, import predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from heldout.core.context import Context, Result
from heldout.core.records import Count, Table
from heldout.data.testset import find_testset, list_pools, list_testsets
from heldout.models.predictions import PredictionStore
from heldout.models.predictions.import_predictions import import_files
from heldout.models.predictions.prune import find_waste, remove
from heldout.models.requests import ImportPredictionsRequest, ListRequest, PruneRequest

_FEW = 4


@dataclass(frozen=True, kw_only=True)
class StoredTestset:
    """A test set of a workspace, and the models that have predictions on it."""

    record: ClassVar[str] = "testset"
    table: ClassVar[Table] = Table(
        "",
        (
            "test set=testset",
            "alias=aliases",
            "images:,",
            "models=shown_models",
            "truths",
            "hash=short",
        ),
    )
    testset: str
    aliases: tuple[str, ...]
    images: int
    truths: tuple[str, ...]
    columns: dict[str, str]
    models: tuple[str, ...]
    content_hash: str

    @property
    def shown_models(self) -> str:
        """The names of a few models, of many how many there are."""
        return ", ".join(self.models) if len(self.models) <= _FEW else f"{len(self.models):,}"

    @property
    def short(self) -> str:
        """The beginning of the hash."""
        return self.content_hash[:12]


@dataclass(frozen=True, kw_only=True)
class StoredPool:
    """A pool of a workspace."""

    record: ClassVar[str] = "pool"
    table: ClassVar[Table] = Table("", ("pool", "source", "images:,", "truths", "hash=short"))
    pool: str
    images: int
    truths: tuple[str, ...]
    columns: dict[str, str]
    source: str | None
    content_hash: str
    short = StoredTestset.short


def list_stored(request: ListRequest, context: Context) -> Result:
    """The test sets and pools of the workspace."""
    place = context.workspace
    store = PredictionStore(place.predictions)
    testsets = [
        StoredTestset(
            testset=entry.card.name,
            aliases=tuple(entry.card.aliases),
            images=entry.card.counts.get("images", 0),
            truths=tuple(entry.card.truths),
            columns={name: kind.kind for name, kind in entry.card.columns.items()},
            models=tuple(run.model for run in store.runs(entry.card.images_hash)),
            content_hash=entry.card.content_hash,
        )
        for entry in list_testsets(place)
    ]
    pools = [
        StoredPool(
            pool=entry.card.name,
            images=entry.card.counts["images"],
            truths=tuple(entry.card.truths),
            columns={name: kind.kind for name, kind in entry.card.columns.items()},
            source=entry.card.facts.get("source"),
            content_hash=entry.card.content_hash,
        )
        for entry in list_pools(place)
    ]
    lines = []
    if not testsets and not pools:
        lines = [f"no test sets in {place.testsets}; heldout import testset brings one in"]
    if request.columns:
        named = [(each.testset, each.columns) for each in testsets]
        for name, columns in [*named, *((each.pool, each.columns) for each in pools)]:
            listed = ", ".join(f"{column} ({kind})" for column, kind in columns.items())
            lines.append(f"{name}: {listed or 'no columns'}")
    return Result(records=[*testsets, *pools], lines=lines)


def prune(request: PruneRequest, context: Context) -> Result:
    """What may go, and with ``delete`` goes."""
    name = None if request.testset is None else context.find(request.testset, find_testset).name
    waste = find_waste(context.workspace, models=request.models, testset=name)
    if request.delete:
        remove(waste)
    total = sum(item.bytes for item in waste) / 1e6
    end = "freed" if request.delete else "could be freed with --delete"
    return Result(records=waste, lines=[f"{total:,.1f} MB {end}"])


def import_predictions(request: ImportPredictionsRequest, context: Context) -> Result:
    """Read files of outputs, and store them."""
    found = import_files(
        request.paths,
        workspace=context.workspace,
        testset=request.testset,
        model=request.name,
        order=request.order,
        classes=request.classes,
        array=request.array,
        replace=request.replace,
        find=context.find,
    )
    for text in found.notes:
        context.note(text)
    made = found.predictions
    return Result(
        records=[Count(name="models", value=n, testset=name) for name, n in found.counts.items()],
        value=made[0] if len(made) == 1 else made,
    )
