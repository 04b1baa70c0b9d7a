"""Labels to doubt as a queue: where all models miss an image, ask about its label and about theirs.

Each image gives two rows: what most models say, and the image's own label. The answers (correct,
unclear or wrong) are judgements of labels like those of any other queue, so that they can revise a
truth.
"""

from __future__ import annotations

import hashlib

from heldout.core.files import canonical_json
from heldout.measure.mistakes.categories import Evidence, Proposal
from heldout.measure.mistakes.consensus import ModelConsensus, Suspect, suspects
from heldout.measure.mistakes.mistake import Mistake
from heldout.measure.mistakes.queue import Queue
from heldout.measure.mistakes.rulings import PanelAnswers


def label_queue(
    found: ModelConsensus,
    panel: PanelAnswers,
    *,
    at_least: int | None = None,
    people: int = 1,
) -> tuple[Queue, tuple[Proposal, ...]]:
    """The queue about images that at least so many models miss, and the evidence for its rows.

    Images on which more models agree on another class come first. A class of an image that
    ``people`` have judged is not asked again.
    """
    verdicts = found.verdicts
    answered: dict[tuple[str, str], int] = {}
    for _, image, prediction in panel.answers:
        answered[image, prediction] = answered.get((image, prediction), 0) + 1
    place = {image: row for row, image in enumerate(verdicts.image_ids)}
    names = {item.id: item.name for item in verdicts.truth.space}
    entries: list[Mistake] = []
    evidence: list[Proposal] = []
    asked = 0
    for suspect in suspects(found, at_least=at_least):
        for class_id in dict.fromkeys((suspect.majority, suspect.original)):
            if class_id is None:
                continue
            asked += 1
            if answered.get((suspect.image_id, class_id), 0) >= people:
                continue
            entries.append(
                Mistake(
                    image_id=suspect.image_id,
                    prediction=class_id,
                    acceptable=suspect.acceptable,
                    original=suspect.original,
                    models=_who_says(found, place[suspect.image_id], class_id),
                    reviewed=False,
                )
            )
            evidence.append(
                Proposal(suspect.image_id, class_id, "", evidence=(_reason(suspect, names),))
            )
    card = verdicts.testset.card
    parts = ["labels 1", card.images_hash, card.tables.get(f"truth/{verdicts.truth.name}", "")]
    name = hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:12]
    queue = Queue(name, "labels", verdicts.testset, tuple(entries), asked - len(entries))
    return queue, tuple(evidence)


def _who_says(found: ModelConsensus, row: int, class_id: str) -> tuple[str, ...]:
    verdicts = found.verdicts
    said = verdicts.guesses[row] == verdicts.truth.space.index(class_id)
    return tuple(model for model, yes in zip(verdicts.models, said.tolist(), strict=True) if yes)


def _reason(suspect: Suspect, names: dict[str, str]) -> Evidence:
    text = f"{suspect.missed_by} of {suspect.models} models miss the image"
    if suspect.majority is not None:
        text += f"; {suspect.votes} of them say {names[suspect.majority]}"
    if suspect.original is not None:
        text += f"; its label is {names[suspect.original]}"
    return Evidence("missed together", text, suspect.votes / suspect.models)
