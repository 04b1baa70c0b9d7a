"""Single mistakes for a report that is made from records alone: looked up again in the workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heldout.core.workspace import Workspace
from heldout.data.testset import Entry, TestSet, load
from heldout.measure.evaluation.studying import Watching
from heldout.measure.score.records import Record, Score, Tally
from heldout.models.predictions import PredictionStore
from heldout.show.mistake_cards import MistakeCard, gallery

MOST_MODELS = 6
"""Models whose outputs are read again for a gallery: the first ones of the records."""


def galleries(
    records: Sequence[Record],
    used: Sequence[Entry],
    *,
    workspace: Workspace,
    sets: Mapping[str, TestSet] | None = None,
) -> list[MistakeCard]:
    """Mistakes to look at of every test set that has tallies, from the predictions behind them.

    Only predictions with the very hash of the tallies are read. Scores under a label map have no
    gallery: records do not hold the map itself.
    """
    tallies = [r for r in records if isinstance(r, Tally) and r.predictions_hash]
    mapped = {
        s.testset for s in records if isinstance(s, Score) and s.label_map not in ("", "identity")
    }
    store = PredictionStore(workspace.predictions)
    found: list[MistakeCard] = []
    for entry in used:
        name = entry.card.name
        mine = [r for r in tallies if r.testset == name]
        hashes = list(dict.fromkeys(r.predictions_hash for r in mine))[:MOST_MODELS]
        runs = {run.run["predictions_hash"]: run for run in store.runs(entry.card.images_hash)}
        chosen = [runs[value] for value in hashes if value in runs]
        if not chosen or name in mapped:
            continue
        testset = (sets or {}).get(name) or load(entry.folder)
        for truth in dict.fromkeys(r.truth for r in mine):
            if truth not in testset.truths:
                continue
            watching = Watching(testset, truth=truth)
            for run in chosen:
                watching.see(store.read(run))
            found += gallery(watching.study(workspace=workspace))
    return found
