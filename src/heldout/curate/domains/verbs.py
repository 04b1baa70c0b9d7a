"""``build domains``: choose rows, write the set, and say what labels tell about domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heldout.core.context import Context, Result
from heldout.core.records import Count, counts
from heldout.curate.build import build_recipe, build_result
from heldout.curate.domains.label_leakage import Leakage
from heldout.curate.domains.recipe import find_candidates, recipe
from heldout.curate.domains.requests import DomainsRequest
from heldout.curate.domains.selection import Step
from heldout.measure.score.records import Summary


def build_domains(request: DomainsRequest, context: Context) -> Result:
    """Choose the rows that a request asks for, and write them as a test set."""
    place = context.workspace
    source = context.find(
        request.pool,
        lambda place, name: find_candidates(place, name, request, workers=request.workers),
    )
    if request.plan:
        with context.progress("domains", what="rows read") as progress:
            found = recipe.plan({"pool": source}, request, seed=request.seed, progress=progress)
        for text in found.notes:
            context.note(text)
        records = [*step_counts(found.steps, len(source)), *found.steps]
        return Result(records=records, brief=found.steps)
    folder = request.out or place.testsets / (request.name or f"{source.name}-domains")
    with context.progress("domains", what="rows read") as progress:
        testset, (steps, told) = build_recipe(
            recipe,
            source,
            folder=folder,
            runs=place.runs,
            parameters=request,
            seed=request.seed,
            name=request.name,
            progress=progress,
            replace=request.replace,
        )
    shown = [*steps, *told.classes]
    numbers = [
        *step_counts(steps, len(source), testset=testset.name),
        *leakage_records(told, testset.name, request.domain),
    ]
    return build_result(testset, folder, [*numbers, *shown], context, brief=shown)


def step_counts(steps: Sequence[Step], rows: int, *, testset: str | None = None) -> list[Count]:
    """Rows before any rule, what is left after all, and sizes of classes before their cap."""
    last = steps[-1]
    found: dict[str, Any] = {
        "rows": rows,
        "images": last.rows_out,
        "classes": last.classes_out,
        "domains": last.domains_out,
        "smallest_class": last.details["smallest"],
        "largest_class": last.details["largest"],
    }
    return counts(found, testset=testset)


def leakage_records(told: Leakage, testset: str, domain: str) -> list[Summary | Count]:
    """What labels tell about domains, as records."""
    summaries = [
        Summary(
            model=None,
            testset=testset,
            truth="original",
            metric="leakage",
            columns=domain,
            name=name,
            n=told.n,
            value=getattr(told, name),
        )
        for name in ("domain_entropy", "information", "explained")
    ]
    found = {f"classes_over_{s}_in_one_domain": n for s, n in told.concentrated.items()}
    found["demonyms"] = sum(leak.demonym for leak in told.classes)
    return [*summaries, *counts(found, testset=testset)]
