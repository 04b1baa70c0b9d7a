"""The verb ``collect``: files of metadata, or a search."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import msgspec

from heldout.core import schema
from heldout.core.context import Context, Result
from heldout.core.engine import Job, JobResults, Serial, run
from heldout.core.engine.results import remove_job, working
from heldout.core.errors import UserError
from heldout.core.records import Table, counts
from heldout.core.request import given
from heldout.core.workspace import check_slug, slug
from heldout.curate.collect.join import join_pools
from heldout.curate.collect.queries import Query, queries
from heldout.data import import_verbs
from heldout.data.judgements.consensus import current_answers
from heldout.data.judgements.for_testset import table_exists
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.imagenetv2 import read_classes
from heldout.data.published.imagenetv2_search import (
    SearchRecord,
    candidate_stream,
    first_of_each,
    write_search,
)
from heldout.data.published.pool_builder import PoolBuilder, Problems, Report, gather_rows
from heldout.data.published.requests import (
    CollectFiles,
    CollectRequest,
    FlickrRequest,
    PoolsRequest,
)
from heldout.data.testset.catalogue import find_pool
from heldout.data.testset.testset import TestSet, make_pool, save

if TYPE_CHECKING:
    from heldout.core.web import Patience
    from heldout.curate.collect.flickr import Found


@dataclass(frozen=True, kw_only=True)
class SearchedTerm:
    """What one query found.

    ``total``     photos that the service says it has
    ``examined``  photos that were looked at, in its order, until enough were kept
    ``kept``      photos that fit; some may be another query's too
    ``rejected``  reason -> photos that were looked at and not kept
    """

    record: ClassVar[str] = "searched"
    table: ClassVar[Table] = Table(
        "",
        ("class=class_id", "term", "total:,", "examined:,", "kept:,", "rejected=reasons"),
        rows=40,
    )
    class_id: str
    term: str
    total: int
    examined: int
    kept: int
    rejected: dict[str, int]

    @property
    def reasons(self) -> str:
        """The reasons on one line."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.rejected.items())


def collect(request: CollectRequest, context: Context) -> Result:
    """Read files of metadata, or search, and save what was found as a pool."""
    if isinstance(request, FlickrRequest):
        return collect_flickr(request, context)
    if isinstance(request, PoolsRequest):
        return _join(request, context)
    return import_verbs.collect(cast("CollectFiles", request), context)


def _join(request: PoolsRequest, context: Context) -> Result:
    found = [context.find(str(path), find_pool) for path in request.paths]
    name = request.name or slug("-".join(pool.name for pool in found))
    pool = join_pools(found, check_slug(name, "a pool"))
    folder = request.out or context.workspace.pools / name
    pool = save(pool, folder, replace=request.replace)
    return Result(
        records=counts(pool.card.facts["counts"]), lines=[_saved(pool, folder)], value=pool
    )


def _saved(pool: TestSet, folder: Path) -> str:
    return f"{pool.name}: {len(pool):,} images, {folder}, {pool.content_hash[:12]}"


def collect_flickr(
    request: FlickrRequest, context: Context, patience: Patience | None = None
) -> Result:
    """Search Flickr for the classes of a request; ``patience`` says how often and how long to ask.

    The same request again resumes: what a query found is kept until the pool is saved. After that
    Flickr is asked anew.
    """
    space = context.find(request.classes, lambda _, name: read_classes(name))
    asked = _queries(request, space)
    if request.plan:
        tally = {"classes": len({query.class_id for query in asked}), "queries": len(asked)}
        return Result(records=[*asked, *counts(tally)])
    from heldout.core.web import Patience, WebClient
    from heldout.curate.collect.flickr import (
        LARGEST_ANSWER,
        FlickrRefuses,
        FlickrSearch,
        Found,
        units,
    )

    key = os.environ.get("FLICKR_API_KEY", "").strip()
    if not key:
        raise UserError(
            "FLICKR_API_KEY is not set",
            fix="set it to your key of https://www.flickr.com/services/api",
        )
    name = check_slug(request.name or slug(f"flickr-{space.name}"), "a pool")
    todo = units(request, asked)
    job = JobResults(context.workspace.runs / f"collect-{name}")
    with (
        WebClient(request.endpoint, most=LARGEST_ANSWER, patience=patience or Patience()) as client,
        working(job),
        context.progress("queries", what="queries") as progress,
    ):
        search = FlickrSearch(request, client, key)
        summary = run(
            Job(name=job.folder.name, work=search, fatal=(FlickrRefuses,)),
            todo,
            runs=context.workspace.runs,
            executor=Serial(),
            progress=progress,
        )
        if summary.failed:
            failed = [each.reason.partition(": ")[2] for each in job.failures()]
            raise UserError(
                f"{summary.failed:,} of {len(todo):,} queries failed; the first: {failed[0]}"
            )
        found = [msgspec.json.decode(job.read(unit.key), type=Found) for unit in todo]
        pool, kept = _pool(name, request, space, list(zip(asked, found, strict=True)), context)
        folder = request.out or context.workspace.pools / name
        pool = save(pool, folder, replace=request.replace)
        if request.write_search is not None:
            write_search(request.write_search, kept)
    remove_job(job.folder)
    listed = [
        SearchedTerm(
            class_id=query.class_id,
            term=query.term,
            total=each.total,
            examined=each.examined,
            kept=len(each.records),
            rejected=each.rejected,
        )
        for query, each in zip(asked, found, strict=True)
    ]
    tally = pool.card.facts["counts"]
    return Result(
        records=[*listed, *counts(tally)],
        brief=counts(tally),
        lines=[_saved(pool, folder)],
        value=pool,
    )


def _queries(request: FlickrRequest, space: LabelSpace) -> list[Query]:
    chosen = None
    if request.terms is not None:
        fix = "give a JSON object of class -> its search terms"
        chosen = schema.read(request.terms, dict[str, list[str]], fix=fix)
    return queries(
        space,
        only=request.only_classes,
        chosen=chosen,
        parent_terms=request.parent_terms,
        join_compounds=request.join_compounds,
        per_class=request.per_class,
    )


def _pool(
    name: str,
    request: FlickrRequest,
    space: LabelSpace,
    found: Sequence[tuple[Query, Found]],
    context: Context,
) -> tuple[TestSet, list[SearchRecord]]:
    """The pool of what was found, and its records; every photo that is left out is counted."""
    tally: Counter[str] = Counter(
        queries=len(found), examined=sum(each.examined for _, each in found)
    )
    rejected: Counter[str] = Counter()
    for _, each in found:
        rejected.update(each.rejected)
    blacklist = blacklisted(context.workspace.judgements)
    records = []
    for record in first_of_each((r for _, each in found for r in each.records), tally):
        if record.id_ours in blacklist:
            rejected["blacklisted"] += 1
        else:
            records.append(record)
    if not records:
        raise UserError(
            f"no photo was kept of {tally['examined']:,} that were looked at",
            fix="widen the windows or licences, or change the search terms; --plan lists them",
        )
    tally |= {f"rejected_{reason}": n for reason, n in sorted(rejected.items())}
    builder = PoolBuilder(Problems())
    images, truths = gather_rows(candidate_stream(records, space, {}), builder)
    classes = {record.wnid for record in records}
    tally |= {"images": len(records), "classes": len(classes)}
    without = sorted({query.class_id for query, _ in found} - classes)
    if without:
        context.note(f"{len(without):,} classes have no image: {', '.join(without[:6])}")
    skipped = ("source", "name", "out", "replace", "write_search", "endpoint")
    options = {k: v for k, v in given(request).items() if k not in skipped}
    for path in ("terms", "classes"):
        if path in options:
            options[path] = Path(options[path]).name
    pool = make_pool(
        name,
        images=images,
        truths=truths,
        label_space=space,
        facts={
            "source": request.source,
            "options": msgspec.to_builtins(options),
            **msgspec.to_builtins(Report(dict(tally))),
        },
    )
    return pool, records


def blacklisted(judgements: str | Path) -> set[str]:
    """Images that somebody blacklisted, for whatever set: a candidate's id means one photo."""
    if not table_exists(judgements):
        return set()
    with JudgementStore(judgements) as store:
        given = current_answers(store.stream(question="review"))
    return {
        one.subject["image_id"]
        for one in given
        if one.answer == "blacklisted" and "image_id" in one.subject
    }
