"""Reading metadata by the name of its source: one call, one pool, one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, ExistsError, UserError
from heldout.core.files import sha256_file
from heldout.core.schema import convert
from heldout.core.workspace import slug
from heldout.data.published.countries import read_countries
from heldout.data.published.json_stream import Progress, no_progress
from heldout.data.published.options import ReaderOptions, check_known, read_ontology, read_words
from heldout.data.published.pool_builder import (
    Found,
    PoolBuilder,
    Problems,
    Report,
    RowStream,
    gather_rows,
    write_rows,
)
from heldout.data.published.tag_tables import read_keywords
from heldout.data.testset.testset import TestSet, make_pool


@dataclass(frozen=True)
class Source:
    """A kind of metadata: ``reader`` is ``module:function``, ``options`` those it knows.

    A reader gathers images and memberships; or, with ``rows``, gives tables of rows.
    """

    name: str
    what: str
    reader: str
    options: tuple[str, ...]
    citation: str = ""
    rows: bool = False


_GQA = (
    "Drew A. Hudson, Christopher D. Manning: GQA: A New Dataset for Real-World Visual Reasoning "
    "and Compositional Question Answering. CVPR 2019."
)
_VG = (
    "Ranjay Krishna et al.: Visual Genome: Connecting Language and Vision Using Crowdsourced Dense "
    "Image Annotations. International Journal of Computer Vision 123, 2017."
)
_COCO = "Tsung-Yi Lin et al.: Microsoft COCO: Common Objects in Context. ECCV 2014."
_CAPTIONS = (
    "Xinlei Chen et al.: Microsoft COCO Captions: Data Collection and Evaluation Server. 2015."
)
_METASHIFT = (
    "Weixin Liang, James Zou: MetaShift: A Dataset of Datasets for Evaluating Contextual "
    "Distribution Shifts and Training Conflicts. ICLR 2022."
)
_YFCC = (
    "Bart Thomee et al.: YFCC100M: The New Data in Multimedia Research. "
    "Communications of the ACM 59(2), 2016."
)
_GEOYFCC = (
    "Abhimanyu Dubey, Vignesh Ramanathan, Alex Pentland, Dhruv Mahajan: Adaptive Methods for "
    "Real-World Domain Generalization. CVPR 2021."
)
_DOMAINNET = "Xingchao Peng et al.: Moment Matching for Multi-Source Domain Adaptation. ICCV 2019."
_GRAPHS = ("min_box_area", "ontology", "places", "relations")

SOURCES = {
    source.name: source
    for source in (
        Source("gqa", "GQA scene graphs", "scene_graphs:read_gqa", _GRAPHS, _GQA),
        Source(
            "visual-genome",
            "Visual Genome objects, attributes, relationships, image_data",
            "scene_graphs:read_visual_genome",
            _GRAPHS,
            _VG,
        ),
        Source(
            "coco",
            "COCO instances, or detections with a file of their images and categories",
            "coco:read_coco",
            ("min_box_area", "min_score", "places"),
            _COCO,
        ),
        Source(
            "coco-captions",
            "COCO captions",
            "coco:read_captions",
            ("vocabulary", "fold_plurals"),
            _CAPTIONS,
        ),
        Source(
            "metashift",
            "MetaShift's candidate subsets, flat or structured",
            "metashift:read_metashift",
            ("contexts", "ontology"),
            _METASHIFT,
        ),
        Source(
            "table",
            "CSV, TSV, JSON lines or Parquet with an id column and tags",
            "tag_tables:read_tags",
            ("id_column", "tags", "flags", "words", "separator", "vocabulary", "fold_plurals"),
        ),
        Source(
            "yfcc",
            "YFCC100M metadata of 23 or 25 columns, with places and autotags beside it",
            "yfcc:read_yfcc",
            ("keywords", "countries", "coordinates", "min_score", "quarantine", "images"),
            _YFCC,
            rows=True,
        ),
        Source(
            "geoyfcc",
            "the data frame of GeoYFCC or CLIP-GeoYFCC, Parquet or pickle",
            "geoyfcc:read_geoyfcc",
            ("countries", "pickle", "images"),
            _GEOYFCC,
            rows=True,
        ),
        Source(
            "domainnet",
            "lists of paths and class numbers, one a domain and split, such as DomainNet's",
            "tag_tables:read_domainnet",
            ("images",),
            _DOMAINNET,
            rows=True,
        ),
    )
}
"""The sources by name."""


@dataclass(frozen=True, eq=False)
class Collected:
    """A pool and what was met while it was read."""

    pool: TestSet
    report: Report


def collect(
    source: str,
    paths: Sequence[Path],
    *,
    name: str | None = None,
    options: ReaderOptions | None = None,
    progress: Progress = no_progress,
) -> Collected:
    """Read files of one source into a pool.

    ``name``  of the pool; from the source and the first file by default

    What the pool was read from (files by hash, options, counts, problems) is kept in its
    ``facts``. Files that cannot be read are errors; what is odd inside them is counted.
    """
    kind = _source(source)
    chosen = options or ReaderOptions()
    files, reader = _ready(kind, paths, chosen)
    problems = Problems()
    builder = PoolBuilder(problems)
    found: dict[str, Any] = {}
    stated = Found()
    truths: dict[str, Any] = {}
    if kind.rows:
        rows: RowStream = reader(files, problems, chosen, progress)
        table, truths = gather_rows(rows, builder)
        stated = rows.found
        found = dict(stated.facts)
    else:
        found = reader(files, builder, chosen, progress) or {}
    if not len(builder):
        raise BadFile(
            files[0],
            "holds no images" + "".join(f"; {problem.line}" for problem in problems.found()),
            fix=f"{source} reads {kind.what}",
        )
    images = table if kind.rows else builder.images_table()
    memberships, counts = builder.memberships()
    counts |= stated.counts
    report = Report(counts, problems.found())
    facts: dict[str, Any] = {
        "source": source,
        "files": [{"name": path.name, "sha256": sha256_file(path)} for path in files],
        "options": chosen.to_dict(),
        **report.to_dict(),
        **found,
    }
    if chosen.ontology is not None:
        facts["attribute_categories"] = {k: list(v) for k, v in chosen.ontology.items()}
    pool = make_pool(
        name or _name_of(source, files[0]),
        images=images,
        memberships=memberships,
        truths=truths,
        label_space=stated.space if truths else None,
        images_root=stated.images_root,
        citation=kind.citation,
        facts=facts,
    )
    return Collected(pool, report)


def collect_table(
    source: str,
    paths: Sequence[Path],
    to: Path,
    *,
    options: ReaderOptions | None = None,
    progress: Progress = no_progress,
    replace: bool = False,
) -> Report:
    """Read files of one source into a Parquet file of rows, lists kept, in bounded memory.

    Only sources that give rows can: see :class:`Source`. A photo that comes again is not found
    out, as that would need all ids at once.
    """
    kind = _source(source)
    if not kind.rows:
        able = ", ".join(one.name for one in SOURCES.values() if one.rows)
        raise UserError(
            f"{source} is read into a pool, not into a Parquet file",
            fix=f"name a folder; Parquet files are for {able}",
        )
    if to.exists() and not replace:
        raise ExistsError(f"{to} exists", fix="name another file, or use --replace")
    chosen = options or ReaderOptions()
    files, reader = _ready(kind, paths, chosen)
    problems = Problems()
    rows: RowStream = reader(files, problems, chosen, progress)
    count = write_rows(rows, to)
    return Report({"images": count, **rows.found.counts}, problems.found())


def _source(name: str) -> Source:
    kind = SOURCES.get(name)
    if kind is None:
        raise UserError(f"no source {name!r}", fix=f"use one of {', '.join(SOURCES)}")
    return kind


def _ready(
    kind: Source, paths: Sequence[Path], options: ReaderOptions
) -> tuple[list[Path], Callable[..., Any]]:
    """The files, each once, and the reader; options that it does not know are refused."""
    if not paths:
        raise UserError("no file is given", fix=f"name the files of {kind.what}")
    check_known(kind.name, options, kind.options)
    module, function = kind.reader.split(":")
    reader: Callable[..., Any] = getattr(
        import_module(f"heldout.data.published.{module}"), function
    )
    return _distinct(paths), reader


def read_metadata(
    source: str,
    paths: Sequence[Path] | Path,
    *,
    name: str | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> TestSet:
    """The pool that files of a source hold; ``options`` are those of :class:`ReaderOptions`.

    ``ontology``, ``places``, ``vocabulary`` and ``countries`` may be files, ``keywords`` a label space
    or a file.
    """
    listed = [paths] if isinstance(paths, Path) else list(paths)
    files: tuple[tuple[str, Callable[[Path], Any]], ...] = (
        ("ontology", read_ontology),
        ("places", read_words),
        ("vocabulary", read_words),
        ("countries", read_countries),
    )
    for key, read in files:
        if isinstance(options.get(key), Path):
            options[key] = read(options[key])
    if isinstance(options.get("keywords"), str | Path):
        options["keywords"] = read_keywords(str(options["keywords"]))
    made = ReaderOptions(**options)
    return collect(source, listed, name=name, options=made, progress=progress).pool


def report_of(pool: TestSet) -> Report:
    """What was met while a pool was read; a pool that was not collected is refused."""
    if "problems" not in pool.card.facts:
        raise UserError(f"pool {pool.name} was not read by heldout collect", fix="collect it")
    return convert(dict(pool.card.facts), Report, where=Path(pool.name))


def _distinct(paths: Sequence[Path]) -> list[Path]:
    known: dict[Path, Path] = {}
    for path in map(Path, paths):
        if path.resolve() in known:
            raise UserError(f"{path} is given twice", fix="name each file once")
        known[path.resolve()] = path
    return list(known.values())


def _name_of(source: str, path: Path) -> str:
    stem = path.name.partition(".")[0]
    return slug(f"{source}-{stem}" if not stem.startswith(source) else stem).lower()
