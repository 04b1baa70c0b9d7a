"""``build compose``: count and estimate what a request would give, or build it."""

from __future__ import annotations

from heldout.core.context import Context, Result
from heldout.core.progress import format_seconds
from heldout.core.records import Count, counts
from heldout.core.workspace import slug
from heldout.curate.build import build_result
from heldout.curate.compose.build import BuildEstimate, build_compose, estimate
from heldout.curate.compose.requests import ComposeRequest


def build(request: ComposeRequest, context: Context) -> Result:
    """Render the set that a request asks for; with ``plan`` only count it."""
    if request.plan:
        return _estimated(estimate(request), context)
    place = context.workspace
    folder = request.out or place.testsets / slug(request.title)
    with context.progress(folder.name) as progress:
        made = build_compose(
            request, folder, runs=place.runs, workers=request.workers, progress=progress
        )
    for text in made.notes:
        context.note(text)
    if made.unchanged:
        context.say(f"{folder}: unchanged")
    records = counts(made.testset.card.counts, testset=made.testset.name)
    return build_result(made.testset, folder, records, context, brief=())


def _estimated(found: BuildEstimate, context: Context) -> Result:
    for text in found.notes:
        context.note(text)
    by_value: list[Count] = []
    for key, images in (("class", found.classes), *found.values.items()):
        by_value += counts({f"images {key}={value}": n for value, n in images.items()})
    totals = counts(found.counts)
    cost = counts({"bytes": found.bytes, "seconds": round(found.seconds)})
    each = found.counts["images"] / max(found.seconds, 1e-9)
    line = (
        f"about {found.bytes / 1e6:,.1f} MB and {format_seconds(found.seconds)} of one processor "
        f"({each:,.0f} images per second)"
    )
    return Result(records=[*totals, *by_value, *cost], brief=[*totals, *by_value], lines=[line])
