"""From saved records to a report: the workspace adds column types and provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from heldout import __version__
from heldout.core.errors import BadFile
from heldout.core.files import read_json
from heldout.core.workspace import Workspace
from heldout.data.testset import Entry, TestSet, list_testsets, load
from heldout.measure.evaluation import Results
from heldout.measure.mistakes.study import Study
from heldout.measure.score.records import Record, Score, Summary, from_dict
from heldout.measure.score.slice_search import is_discovery
from heldout.models.predictions import PredictionStore, StoredRun
from heldout.show.clip_benchmark import write_clip_benchmark_json
from heldout.show.data import Example, ReportData
from heldout.show.examples import examples
from heldout.show.figures import write_figures
from heldout.show.mistake_cards import gallery
from heldout.show.mistake_gallery import galleries
from heldout.show.page import write_report
from heldout.show.timm_csv import write_timm_csv

_MOST_EXAMPLES = 240


def read_records(path: Path) -> list[Record]:
    """Records from a JSON file that ``--save`` or ``--json`` wrote."""
    value = read_json(path)
    if not isinstance(value, list):
        raise BadFile(path, "is not an array of records", fix="write it with --save or --json")
    try:
        return [from_dict(item) for item in value]
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFile(
            path, f"has something that is no record ({error})", fix="write it with --save or --json"
        ) from None


def assemble(
    paths: Sequence[Path],
    *,
    workspace: Workspace,
    title: str,
    baseline: str | None = None,
    notes: Sequence[str] = (),
    created: datetime | None = None,
) -> ReportData:
    """Everything a report shows, from record files and the workspace they came from."""
    records = [record for path in paths for record in read_records(path)]
    if not records:
        raise BadFile(paths[0], "holds no records", fix="score something first")
    return report_data(
        records, workspace=workspace, title=title, baseline=baseline, notes=notes, created=created
    )


def report_data(
    records: Sequence[Record],
    *,
    workspace: Workspace,
    title: str,
    baseline: str | None = None,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    created: datetime | None = None,
    testsets: Sequence[Entry] = (),
    sets: Mapping[str, TestSet] | None = None,
    studies: Sequence[Study] | None = None,
) -> ReportData:
    """Everything a report shows, from records and the workspace they came from.

    ``testsets`` are not in the workspace, such as a sample of one that is; ``sets`` are loaded
    already, and so need not be found again for their images; ``studies`` likewise hold the mistakes
    behind the tallies.
    """
    scores = [record for record in records if isinstance(record, Score)]
    entries = {entry.card.name: entry for entry in (*list_testsets(workspace), *testsets)}
    used = [entries[name] for name in dict.fromkeys(s.testset for s in scores) if name in entries]
    when = (created or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    return ReportData(
        title=title,
        records=records,
        columns={entry.card.name: entry.card.columns for entry in used},
        provenance=[*map(_testset_row, used), *_prediction_rows(scores, used, workspace)],
        warnings=[
            *warnings,
            *_warnings(scores, entries),
            *_import_notes(scores, used, workspace),
        ],
        notes=list(notes),
        settings={"heldout": __version__, "created": when},
        examples=_examples(records, used, sets or {}),
        mistakes=galleries(records, used, workspace=workspace, sets=sets)
        if studies is None
        else [card for study in studies for card in gallery(study)],
        baseline=baseline,
    )


def report_results(
    results: Results,
    to: Path,
    *,
    workspace: Workspace,
    title: str = "Evaluation",
    baseline: str | None = None,
) -> None:
    """Write the report of an evaluation that has just run."""
    measured = {item.testset.name: item.testset for item in results.measured}
    data = report_data(
        results.records,
        workspace=workspace,
        title=title,
        baseline=baseline,
        warnings=results.notes,
        testsets=[Entry(item.folder or Path(), item.card) for item in measured.values()],
        sets=measured,
        studies=results.studies,
    )
    write_report(data, to)


def _examples(
    records: Sequence[Record], used: Sequence[Entry], sets: Mapping[str, TestSet]
) -> list[Example]:
    """Images along every column that was read as a curve, as many as a page should carry."""
    wanted: dict[str, dict[tuple[str, ...], None]] = {}
    for record in records:
        if isinstance(record, Summary) and not is_discovery(record):
            columns = tuple(sorted(record.columns.split("&")))
            wanted.setdefault(record.testset, {})[columns] = None
    found: list[Example] = []
    for entry in used:
        for columns in wanted.get(entry.card.name, {}):
            if len(found) < _MOST_EXAMPLES:
                testset = sets.get(entry.card.name) or load(entry.folder)
                found += examples(testset, columns)
    return found


def _testset_row(entry: Entry) -> dict[str, Any]:
    card = entry.card
    return {
        "testset": card.name,
        "content_hash": card.content_hash,
        "images_hash": card.images_hash,
        "n": card.counts.get("images", 0),
        "label_space": card.label_space,
        "recipe": card.recipe.get("name", ""),
        "seed": card.recipe.get("seed"),
        "truths": ", ".join(card.truths),
        "parents": ", ".join(str(p.get("name") or p.get("file")) for p in card.parents),
        "citation": card.citation,
    }


def _prediction_rows(
    scores: Sequence[Score], used: Sequence[Entry], workspace: Workspace
) -> list[dict[str, Any]]:
    names = {entry.card.images_hash: entry.card.name for entry in used}
    return [
        {
            "model": run.model,
            "testset": names[run.run["images_hash"]],
            "predictions_hash": run.run["predictions_hash"],
            "source": run.run["identity"].get("imported", ""),
            "keeps": run.run["keeps"],
            "n": run.run["n"],
            "failed": run.run["failed"],
        }
        for run in _runs(scores, used, workspace)
    ]


def _import_notes(
    scores: Sequence[Score], used: Sequence[Entry], workspace: Workspace
) -> list[str]:
    """What was repaired or joined when the predictions behind these scores were imported."""
    return [note for run in _runs(scores, used, workspace) for note in run.run.get("notes", ())]


def _runs(scores: Sequence[Score], used: Sequence[Entry], workspace: Workspace) -> list[StoredRun]:
    """The stored runs behind scores."""
    wanted = {score.predictions_hash for score in scores}
    store = PredictionStore(workspace.predictions)
    return [
        run
        for entry in used
        for run in store.runs(entry.card.images_hash)
        if run.run["predictions_hash"] in wanted
    ]


def _warnings(scores: Sequence[Score], entries: dict[str, Entry]) -> list[str]:
    """Scores whose test set has changed since they were computed."""
    found = []
    for name in dict.fromkeys(score.testset for score in scores):
        hashes = {score.testset_hash for score in scores if score.testset == name}
        entry = entries.get(name)
        if entry is None:
            found.append(
                f"{name} is not in this workspace: its column types and provenance are unknown"
            )
        elif not hashes <= {
            entry.card.content_hash,
            *(h["content_hash"] for h in entry.card.history),
        }:
            found.append(f"{name} has changed since these scores were computed: score it again")
    return found


def write_all(
    data: ReportData,
    to: Path,
    *,
    figures: Path | None = None,
    timm_csv: Path | None = None,
    clip_benchmark: Path | None = None,
) -> list[Path]:
    """Write the report and whatever else was asked for; returns what was written."""
    write_report(data, to)
    written = [to]
    if figures is not None:
        write_figures(data, figures)
        written.append(figures)
    if timm_csv is not None:
        written.append(timm_csv)
        testsets = dict.fromkeys(r.testset for r in data.records if isinstance(r, Score))
        for testset in testsets:
            write_timm_csv(
                data.records,
                timm_csv / f"results-{testset}.csv",
                testset=testset,
                baseline=data.baseline if data.baseline != testset else None,
            )
    if clip_benchmark is not None:
        write_clip_benchmark_json(data.records, clip_benchmark)
        written.append(clip_benchmark)
    return written
