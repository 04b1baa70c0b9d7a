"""Reading metadata by the name of its source: one call, one pool, one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from heldout.core.errors import BadFile, ExistsError, UserError
from heldout.core.files import sha256_file
from heldout.core.request import fields, given, make
from heldout.core.schema import convert
from heldout.core.workspace import slug
from heldout.data.importing.folders import label_space_of_folders, read_folders
from heldout.data.published.annotations import read_ontology
from heldout.data.published.imagenetv2 import CITATION, read_classes
from heldout.data.published.json_stream import Progress, no_progress
from heldout.data.published.pool_builder import (
    PoolBuilder,
    Problems,
    Report,
    RowStream,
    gather_rows,
    write_rows,
)
from heldout.data.published.requests import (
    CollectFiles,
    CollectRequest,
    CollectSubsets,
    FoldersRequest,
)
from heldout.data.testset.testset import TestSet, make_pool

SOURCES: Mapping[str, tuple[str, str]] = {
    "gqa": (
        "scene_graphs:read_gqa",
        "Drew A. Hudson, Christopher D. Manning: GQA: A New Dataset for Real-World Visual "
        "Reasoning and Compositional Question Answering. CVPR 2019.",
    ),
    "visual-genome": (
        "scene_graphs:read_visual_genome",
        "Ranjay Krishna et al.: Visual Genome: Connecting Language and Vision Using Crowdsourced "
        "Dense Image Annotations. International Journal of Computer Vision 123, 2017.",
    ),
    "coco": (
        "coco:read_coco",
        "Tsung-Yi Lin et al.: Microsoft COCO: Common Objects in Context. ECCV 2014.",
    ),
    "coco-captions": (
        "coco:read_captions",
        "Xinlei Chen et al.: Microsoft COCO Captions: Data Collection and Evaluation Server. 2015.",
    ),
    "metashift": (
        "metashift:read_metashift",
        "Weixin Liang, James Zou: MetaShift: A Dataset of Datasets for Evaluating Contextual "
        "Distribution Shifts and Training Conflicts. ICLR 2022.",
    ),
    "table": ("tag_tables:read_tags", ""),
    "yfcc": (
        "yfcc:read_yfcc",
        "Bart Thomee et al.: YFCC100M: The New Data in Multimedia Research. "
        "Communications of the ACM 59(2), 2016.",
    ),
    "geoyfcc": (
        "geoyfcc:read_geoyfcc",
        "Abhimanyu Dubey, Vignesh Ramanathan, Alex Pentland, Dhruv Mahajan: Adaptive Methods for "
        "Real-World Domain Generalization. CVPR 2021.",
    ),
    "domainnet": (
        "tag_tables:read_domainnet",
        "Xingchao Peng et al.: Moment Matching for Multi-Source Domain Adaptation. ICCV 2019.",
    ),
    "search-results": ("imagenetv2_search:read_search_results", CITATION),
    "addresses": ("imagenetv2_search:read_addresses", ""),
}
"""Reader (``module:function``) and citation of each source.

A reader gathers images and memberships; those of rows give tables instead.
"""


def collect(request: CollectFiles, progress: Progress = no_progress) -> TestSet:
    """Read files of one source into a pool.

    What the pool was read from (files by hash, options, counts, problems) is kept in its
    ``facts``. Files that cannot be read are errors; what is odd inside them is counted.
    """
    if isinstance(request, FoldersRequest):
        return _class_folders(request)
    source, files = request.source, request.paths
    problems = Problems()
    builder = PoolBuilder(problems)
    truths: dict[str, Any] = {}
    if request.rows:
        stated: RowStream = _reader(source)(files, problems, request, progress)
        images, truths = gather_rows(stated, builder)
    else:
        stated = RowStream(facts=_reader(source)(files, builder, request, progress) or {})
    if not len(builder):
        what = (type(request).__doc__ or "").partition("\n")[0]
        raise BadFile(
            files[0],
            "holds no images" + "".join(f"; {problem.line}" for problem in problems.found()),
            fix=f"collect {source} is for another file: {what}",
        )
    if not request.rows:
        images = builder.images_table()
    memberships, counts = builder.memberships()
    facts: dict[str, Any] = {
        "source": source,
        "files": [{"name": path.name, "sha256": sha256_file(path)} for path in files],
        "options": _options(request),
        **to_builtins(Report({**counts, **stated.counts}, problems.found())),
        **stated.facts,
    }
    ontology = read_ontology(getattr(request, "ontology", None))
    if ontology is not None:
        facts["attribute_categories"] = {k: list(v) for k, v in ontology.items()}
    folder = getattr(request, "images", None)
    return make_pool(
        request.name or _name_of(source, files[0]),
        images=images,
        memberships=memberships,
        truths=truths,
        label_space=stated.space if truths else None,
        images_root=None if folder is None else Path(folder),
        citation=SOURCES[source][1],
        facts=facts,
    )


def _class_folders(request: FoldersRequest) -> TestSet:
    """A folder of class folders as a pool, whose ids are the paths below it."""
    (folder,) = request.paths
    name = request.name or slug(folder.resolve().name).lower()
    space = (
        label_space_of_folders(folder, name=name)
        if request.classes is None
        else read_classes(request.classes)
    )
    found = read_folders(folder, name=name, label_space=space)
    problems = Problems()
    for note in found.card.notes:
        problems.add(note, folder.name)
    return make_pool(
        name,
        images=found.images,
        truths=found.truths,
        label_space=space,
        images_root=folder,
        facts={
            "source": request.source,
            "options": _options(request),
            **to_builtins(Report(dict(found.card.counts), problems.found())),
        },
    )


def collect_rows(request: CollectFiles, to: Path, progress: Progress = no_progress) -> Report:
    """Read files of one source into a Parquet file of rows, lists kept, in bounded memory.

    A photo that comes again is not found out, as that would need all ids at once.
    """
    if to.exists() and not request.replace:
        raise ExistsError(f"{to} exists", fix="name another file, or use --replace")
    problems = Problems()
    rows: RowStream = _reader(request.source)(request.paths, problems, request, progress)
    count = write_rows(rows, to)
    return Report({"images": count, **rows.counts}, problems.found())


def _reader(source: str) -> Callable[..., Any]:
    """The reader of a source; it is imported when it is needed."""
    module, _, name = SOURCES[source][0].partition(":")
    reader: Callable[..., Any] = getattr(import_module(f"heldout.data.published.{module}"), name)
    return reader


_PLACES = ("images", "keywords", "classes")


def _options(request: CollectFiles) -> dict[str, Any]:
    """The reader's options that were given, as JSON; a pool does not say where a file lies."""
    known = {field.name for kind in (CollectFiles, CollectSubsets) for field in fields(kind)}
    return {
        name: Path(value).name
        if isinstance(value, Path) or name in _PLACES
        else list(value)
        if isinstance(value, tuple)
        else value
        for name, value in given(request).items()
        if name not in known
    }


def read_metadata(
    source: str, paths: Sequence[Path] | Path, *, progress: Progress = no_progress, **options: Any
) -> TestSet:
    """The pool that files of a source hold; ``options`` are those of its request.

    See :mod:`heldout.data.published.requests`.
    """
    asked = make(CollectRequest, {"source": source, "paths": paths, **options})
    if not isinstance(asked, CollectFiles):
        raise UserError(f"{source} is not read from files", fix="use heldout.verbs.collect")
    return collect(asked, progress)


def report_of(pool: TestSet) -> Report:
    """What was met while a pool was read; a pool that was not collected is refused."""
    if "problems" not in pool.card.facts:
        raise UserError(f"pool {pool.name} was not read by heldout collect", fix="collect it")
    return convert(dict(pool.card.facts), Report, where=Path(pool.name))


def _name_of(source: str, path: Path) -> str:
    stem = path.name.partition(".")[0]
    return slug(f"{source}-{stem}" if not stem.startswith(source) else stem).lower()
