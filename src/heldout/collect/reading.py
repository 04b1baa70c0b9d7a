"""Reading metadata by the name of its source: one call, one pool, one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from heldout.collect.documents import Progress, no_progress
from heldout.collect.gathering import Gathering
from heldout.collect.options import ReaderOptions, check_known, read_ontology, read_words
from heldout.collect.report import Problems, Report
from heldout.errors import BadFile, UserError
from heldout.files import sha256_file
from heldout.testset.pool import Pool, make_pool
from heldout.workspace import slug

Reader = Callable[[Sequence[Path], Gathering, ReaderOptions, Progress], Any]


@dataclass(frozen=True)
class Source:
    """A kind of metadata: ``reader`` is ``module:function``, ``options`` those it knows."""

    name: str
    what: str
    reader: str
    options: tuple[str, ...]
    citation: str = ""


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
_GRAPHS = ("min_box_area", "ontology", "places", "relations")

SOURCES = {
    source.name: source
    for source in (
        Source("gqa", "GQA scene graphs", "gqa:read_gqa", _GRAPHS, _GQA),
        Source(
            "visual-genome",
            "Visual Genome objects, attributes, relationships, image_data",
            "visual_genome:read_visual_genome",
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
            "captions:read_captions",
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
            "table:read_tags",
            ("id_column", "tags", "flags", "words", "separator", "vocabulary", "fold_plurals"),
        ),
    )
}
"""The sources by name."""


@dataclass(frozen=True, eq=False)
class Collected:
    """A pool and what was met while it was read."""

    pool: Pool
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
    kind = SOURCES.get(source)
    if kind is None:
        raise UserError(f"no source {source!r}", fix=f"use one of {', '.join(SOURCES)}")
    if not paths:
        raise UserError("no file is given", fix=f"name the files of {kind.what}")
    chosen = options or ReaderOptions()
    check_known(source, chosen, kind.options)
    module, function = kind.reader.split(":")
    reader: Reader = getattr(import_module(f"heldout.collect.{module}"), function)
    files = _distinct(paths)
    problems = Problems()
    gathering = Gathering(problems)
    found = reader(files, gathering, chosen, progress) or {}
    if not len(gathering):
        raise BadFile(
            files[0],
            "holds no images" + "".join(f"; {problem.line}" for problem in problems.found()),
            fix=f"{source} reads {kind.what}",
        )
    images = gathering.images_table()
    memberships, counts = gathering.memberships()
    both = sorted(set(images.column_names) & set(gathering.columns))
    if both:
        raise UserError(
            f"{both[0]!r} is both a column and a membership", fix="name tags COLUMN=OTHER-NAME"
        )
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
        citation=kind.citation,
        facts=facts,
    )
    return Collected(pool, report)


def read_metadata(
    source: str,
    paths: Sequence[Path] | Path,
    *,
    name: str | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Pool:
    """The pool that files of a source hold; ``options`` are those of :class:`ReaderOptions`.

    ``ontology``, ``places`` and ``vocabulary`` may be files.
    """
    listed = [paths] if isinstance(paths, Path) else list(paths)
    for key, read in (
        ("ontology", read_ontology),
        ("places", read_words),
        ("vocabulary", read_words),
    ):
        if isinstance(options.get(key), Path):
            options[key] = read(options[key])
    made = ReaderOptions(**options)
    return collect(source, listed, name=name, options=made, progress=progress).pool


def report_of(pool: Pool) -> Report:
    """What was met while a pool was read; a pool that was not collected is refused."""
    if "problems" not in pool.facts:
        raise UserError(f"pool {pool.name} was not read by heldout collect", fix="collect it")
    return Report.from_dict(pool.facts)


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
