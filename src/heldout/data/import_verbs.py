"""The verbs that bring in metadata, test sets, truths and judgements."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

from heldout.core.context import Context, Result
from heldout.core.errors import EXIT_DONE, EXIT_FAILED_IMAGES
from heldout.core.records import Table, counts
from heldout.data.importing.detect import read_asked, read_truth
from heldout.data.importing.judgements import import_judgement_file
from heldout.data.importing.pools import collect as read_pool
from heldout.data.importing.pools import collect_rows, report_of
from heldout.data.published.metashift import write_subsets
from heldout.data.published.requests import CollectFiles, CollectSubsets
from heldout.data.requests import ImportJudgementsRequest, ImportTestsetRequest, ImportTruthRequest
from heldout.data.testset import TestSet, add_truth, find_testset, save


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A test set that was brought in, or that got a truth."""

    record: ClassVar[str] = "imported"
    table: ClassVar[Table] = Table(
        "", ("test set=testset", "truth", "images:,", "label space=label_space", "hash=short")
    )
    testset: str
    truth: str | None = None
    images: int
    label_space: str
    content_hash: str

    @property
    def short(self) -> str:
        """The beginning of the hash."""
        return self.content_hash[:12]


def _imported(testset: TestSet, images: int, truth: str | None = None) -> Imported:
    return Imported(
        testset=testset.name,
        truth=truth,
        images=images,
        label_space=testset.card.label_space,
        content_hash=testset.content_hash,
    )


def import_testset(request: ImportTestsetRequest, context: Context) -> Result:
    """Read test sets, and save them in the workspace; the lists of CLIP-GeoYFCC are counted too."""
    parent = None if request.parent is None else context.find(request.parent, find_testset)
    released = request.format == "clip-geoyfcc"
    paths = request.paths[:1] if released else request.paths
    made = [read_asked(request, path, parent) for path in paths]  # all, before any is saved
    for testset in made:
        for text in testset.card.notes:
            context.note(f"{testset.name}: {text}")
    if not request.plan:
        place = context.workspace.testsets
        made = [save(item, place / item.name, replace=request.replace) for item in made]
    numbers = counts(dict(made[0].card.counts), testset=made[0].name) if released else []
    return Result(
        records=[*(_imported(testset, len(testset)) for testset in made), *numbers],
        value=made[0] if len(made) == 1 else made,
    )


def import_truth(request: ImportTruthRequest, context: Context) -> Result:
    """Add a truth to a test set; truths are only ever added."""
    target = context.find(request.testset, find_testset)
    read = read_truth(request.path, target, form=request.format, cut=request.cut)
    name = request.name or read.name
    grown = add_truth(target, name, read.table, provenance=read.provenance)
    for text in read.notes:
        context.note(f"{request.path.name}: {text}")
    return Result(records=[_imported(grown, len(read.table), name)], value=grown)


def import_judgements(request: ImportJudgementsRequest, context: Context) -> Result:
    """Add the judgements of a file to the workspace's table."""
    testset = request.testset
    found = import_judgement_file(
        request.path,
        context.workspace,
        form=request.format,
        testset=None if testset is None else context.find(testset, find_testset),
        who=request.who,
        revise=request.revise,
    )
    told = f"{request.path.name}: {found.added:,} judgements added, {found.known:,} known already"
    if found.empty:
        told += f", {found.empty:,} rows without an answer skipped"
    if found.replaced:
        told += f", {found.replaced:,} earlier answers replaced"
    numbers = {f"n_{name}": number for name, number in asdict(found).items()}
    return Result(records=counts(numbers), brief=(), lines=[told])


def collect(request: CollectFiles, context: Context) -> Result:
    """Read metadata, and save it as a pool or as a Parquet file of rows."""
    with context.downloads() as progress:
        if request.out is not None and request.to_table:
            report, pool = collect_rows(request, request.out, progress), None
            told = f"{request.out}: {report.counts['images']:,} rows"
        else:
            read = read_pool(request, progress)
            report, folder = report_of(read), request.out or context.workspace.pools / read.name
            pool = save(read, folder, replace=request.replace)
            told = f"{pool.name}: {len(pool):,} images, {folder}, {pool.content_hash[:12]}"
            if isinstance(request, CollectSubsets) and request.write_subsets is not None:
                write_subsets(pool, request.write_subsets)
    for problem in report.problems:
        context.note(problem.line)
    return Result(
        records=counts(dict(report.counts)),
        lines=[told],
        value=pool,
        code=EXIT_FAILED_IMAGES if report.lost_images else EXIT_DONE,
    )
