"""From saved records to a report: the workspace adds column types, provenance and images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from heldout import __version__
from heldout.core.context import Context, Result
from heldout.core.errors import BadFile
from heldout.core.files import read_json, unsealed
from heldout.core.workspace import Workspace
from heldout.data.testset import Entry, TestSet, list_testsets, load
from heldout.measure.evaluation.flow import MistakeCollector, Results
from heldout.measure.evaluation.requests import EvaluateRequest
from heldout.measure.evaluation.verbs import report_path
from heldout.measure.mistakes.tally import Study
from heldout.measure.score.records import Record, Score, Summary, Tally, from_dict, is_discovery
from heldout.measure.score.slices import CLASS, class_names, parse_slice
from heldout.models.predictions import PredictionStore, StoredRun
from heldout.show.mistakes import gallery
from heldout.show.page import write_report
from heldout.show.requests import ReportRequest
from heldout.show.thumbnails import Example, examples
from heldout.show.view import ReportData

_MOST_EXAMPLES = 240
_MOST_STUDIED = 6  # models whose outputs are read again for single mistakes


def read_records(path: Path) -> list[Record]:
    """Records from a JSON file that ``--save`` or ``--json`` wrote."""
    value = read_json(path)
    fix = "write it with --save or --json"
    if not isinstance(value, list):
        raise BadFile(path, "is not an array of records", fix=fix)
    try:
        return [from_dict(unsealed(item, path, fix=fix)) for item in value]
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFile(path, f"has something that is not a record ({error})", fix=fix) from None


def report(request: ReportRequest, context: Context) -> Result:
    """Write a report of saved records, and what else was asked for."""
    records = [record for path in request.records for record in read_records(path)]
    if not records:
        raise BadFile(request.records[0], "holds no records", fix="score something first")
    data = report_data(
        records,
        workspace=context.workspace,
        title=request.title,
        baseline=request.baseline,
        notes=request.notes,
    )
    page = request.out or Path("report.html")
    write_report(data, page)
    context.say(f"wrote {page}")
    if request.figures is not None:
        from heldout.show.exports import write_figures

        write_figures(data, request.figures)
        context.say(f"wrote {request.figures}")
    return Result(value=page)


def report_data(
    records: Sequence[Record],
    *,
    workspace: Workspace,
    title: str,
    baseline: str | None = None,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    sets: Mapping[str, TestSet] | None = None,
    studies: Sequence[Study] | None = None,
) -> ReportData:
    """Everything a report shows, from records and the workspace they came from.

    ``sets`` are loaded already, or are not in the workspace, such as a sample of one that is;
    ``studies`` hold the mistakes behind the tallies, else they are looked up again.
    """
    scores = [record for record in records if isinstance(record, Score)]
    loaded = dict(sets or {})
    entries = {entry.card.name: entry for entry in list_testsets(workspace)}
    entries |= {name: Entry(one.folder or Path(), one.card) for name, one in loaded.items()}
    used = {s.testset: entries[s.testset] for s in scores if s.testset in entries}
    store = PredictionStore(workspace.predictions)
    runs = {name: store.runs(entry.card.images_hash) for name, entry in used.items()}
    wanted = {score.predictions_hash for score in scores}
    scored = [
        (name, run)
        for name, found in runs.items()
        for run in found
        if run.run["predictions_hash"] in wanted
    ]

    def testset(name: str) -> TestSet:
        if name not in loaded:
            loaded[name] = load(used[name].folder)
        return loaded[name]

    if studies is None:
        studies = list(_studies(records, runs, testset, store, workspace))
    sliced = {s.testset for s in scores if CLASS in parse_slice(s.slice)} & set(used)
    classes = {name: class_names(space) for name in sliced if (space := testset(name).label_space)}
    imported = [note for _, run in scored for note in run.run.get("notes", ())]
    return ReportData(
        title=title,
        records=records,
        columns={name: entry.card.columns for name, entry in used.items()},
        classes=classes,
        provenance=[*map(_testset_row, used.values()), *(_run_row(*one) for one in scored)],
        warnings=[*warnings, *_warnings(scores, entries), *imported],
        notes=list(notes),
        settings={
            "heldout": __version__,
            "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        examples=_examples(records, used, testset),
        mistakes=[card for study in studies for card in gallery(study)],
        baseline=baseline,
    )


def write_evaluation(request: EvaluateRequest, result: Result, context: Context) -> None:
    """The report of an evaluation that has just run; in Python only where a file is named."""
    if not isinstance(result, Results) or (request.out is None and not context.talk):
        return
    data = report_data(
        result.records,
        workspace=context.workspace,
        title="Evaluation",
        baseline=result.baseline,
        warnings=context.notes,
        sets={item.testset.name: item.testset for item in result.measured},
        studies=result.studies,
    )
    page = report_path(request, context)
    write_report(data, page)
    result.lines = [*result.lines, f"report: {page}"]


def _examples(
    records: Sequence[Record], used: Iterable[str], testset: Callable[[str], TestSet]
) -> list[Example]:
    """Images along every column that was read as a curve, as many as a page should carry."""
    read = dict.fromkeys(
        (record.testset, record.columns)
        for record in records
        if isinstance(record, Summary) and not is_discovery(record) and "&" not in record.columns
    )
    found: list[Example] = []
    for name in used:
        for column in (column for at, column in read if at == name):
            if len(found) < _MOST_EXAMPLES:
                found += examples(testset(name), column)
    return found


def _studies(
    records: Sequence[Record],
    runs: Mapping[str, Sequence[StoredRun]],
    testset: Callable[[str], TestSet],
    store: PredictionStore,
    workspace: Workspace,
) -> Iterator[Study]:
    """The mistakes behind tallies, from the stored predictions with the very hash of the tallies.

    Scores under a label map have none, nor have tallies with other evidence than the hierarchy: records
    hold neither the map nor the evidence itself.
    """
    mapped = {
        s.testset for s in records if isinstance(s, Score) and s.label_map not in ("", "identity")
    }
    for name, stored in runs.items():
        mine = [r for r in records if isinstance(r, Tally) and r.testset == name]
        hashes = dict.fromkeys(r.predictions_hash for r in mine if r.predictions_hash)
        by_hash = {run.run["predictions_hash"]: run for run in stored}
        chosen = [by_hash[key] for key in list(hashes)[:_MOST_STUDIED] if key in by_hash]
        if not chosen or name in mapped:
            continue
        for truth in dict.fromkeys(r.truth for r in mine if r.predictions_hash):
            if truth in testset(name).truths:
                collector = MistakeCollector(testset(name), truth=truth)
                for run in chosen:
                    collector.see(store.read(run, values=False))
                study = collector.study(workspace=workspace)
                if {r.evidence or "" for r in mine if r.truth == truth} == {study.evidence}:
                    yield study


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


def _run_row(testset: str, run: StoredRun) -> dict[str, Any]:
    return {
        "model": run.model,
        "testset": testset,
        "predictions_hash": run.run["predictions_hash"],
        "source": run.run["identity"].get("imported", ""),
        "keeps": run.run["keeps"],
        "n": run.run["n"],
        "failed": run.run["failed"],
    }


def _warnings(scores: Sequence[Score], entries: Mapping[str, Entry]) -> list[str]:
    """Scores whose test set is not there or has changed since they were computed."""
    found = []
    for name in dict.fromkeys(score.testset for score in scores):
        if name not in entries:
            found.append(
                f"{name} is not in this workspace: its column types and provenance are unknown"
            )
            continue
        card = entries[name].card
        known = {card.content_hash, *(past["content_hash"] for past in card.history)}
        if not {score.testset_hash for score in scores if score.testset == name} <= known:
            found.append(f"{name} has changed since these scores were computed: score it again")
    return found
