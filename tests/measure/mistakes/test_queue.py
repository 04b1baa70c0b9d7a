"""The queue: what is asked, in which order, and that nothing is asked twice."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import ExistsError, UserError
from heldout.data.importing.judgements import ANSWERED, ASKED, is_queue, read_filled
from heldout.measure.mistakes.categories import Evidence, Proposal
from heldout.measure.mistakes.panel import panel_answers
from heldout.measure.mistakes.review_queue import (
    accuracy_queue,
    hard_queue,
    how_to_answer,
    open_pairs,
    queue_rows,
    write_queue,
)
from heldout.measure.mistakes.verdicts import mistakes_of
from tests.measure.mistakes.review_case import both_verdicts
from tests.measure.mistakes.test_rulings import label, mistake

NOBODY = panel_answers([])


def test_accuracy_asks_what_is_open_in_the_order_of_keys() -> None:
    _, partial = both_verdicts(1)
    pairs = open_pairs(partial, average="classes")
    queue = accuracy_queue(pairs, NOBODY)
    order = np.argsort(pairs.keys, kind="stable").tolist()
    assert [(m.image_id, m.prediction) for m in queue.entries] == [pairs.pairs[i] for i in order]
    assert list(queue.head(5).entries) == list(queue.entries)[:5]
    alone = accuracy_queue(open_pairs(partial.of_models(["m0"]), average="classes"), NOBODY)
    mine = [(m.image_id, m.prediction) for m in alone.entries]
    everyone = [(m.image_id, m.prediction) for m in queue.entries]
    assert mine == [key for key in everyone if key in set(mine)], "one order for all models"


def test_pairs_that_weigh_more_tend_to_come_first() -> None:
    _, partial = both_verdicts(2, n=480)
    firsts, lasts = [], []
    for seed in range(20):
        pairs = open_pairs(partial, average="images", seed=seed)
        sizes = pairs.sizes[np.argsort(pairs.keys)]
        half = len(sizes) // 2
        firsts.append(sizes[:half].mean())
        lasts.append(sizes[half:].mean())
    assert np.mean(firsts) > 1.1 * np.mean(lasts)


def test_nothing_judged_is_asked_again() -> None:
    _, partial = both_verdicts(3)
    pairs = open_pairs(partial, average="images")
    whole = accuracy_queue(pairs, NOBODY)
    asked = list(whole.entries)
    done = asked[:3]
    panel = panel_answers(
        [label("ann", m.image_id, "wrong", prediction=m.prediction) for m in done]
        + [label("bob", done[0].image_id, "wrong", prediction=done[0].prediction)]
    )
    left = accuracy_queue(pairs, panel)
    assert list(left.entries) == asked[3:] and left.judged == 3
    two = accuracy_queue(pairs, panel, people=2)
    assert list(two.entries) == asked[1:] and two.judged == 1


def test_hard_asks_for_verdicts_on_images_that_many_miss() -> None:
    whole, _ = both_verdicts(4)
    queue = hard_queue(whole, NOBODY, wrong=2)
    missed = dict(zip(whole.image_ids, whole.wrong.sum(axis=1).tolist(), strict=True))
    images = [m.image_id for m in queue.entries]
    assert images and all(missed[image] >= 2 for image in images)
    assert [missed[i] for i in images] == sorted((missed[i] for i in images), reverse=True)
    assert {(m.image_id, m.prediction) for m in queue.entries} == {
        (m.image_id, m.prediction) for m in mistakes_of(whole) if missed[m.image_id] >= 2
    }
    blocks = [
        image for place, image in enumerate(images) if place == 0 or images[place - 1] != image
    ]
    assert len(blocks) == len(set(blocks)), "all mistakes of an image stand together"
    first = queue.entries[0]
    only_wrong = panel_answers([label("ann", first.image_id, "wrong", prediction=first.prediction)])
    assert hard_queue(whole, only_wrong, wrong=2).entries[0] == first, "it lacks a severity"
    judged = panel_answers([mistake("ann", first.image_id, "Major", prediction=first.prediction)])
    assert first not in list(hard_queue(whole, judged, wrong=2).entries)
    right = panel_answers([label("ann", first.image_id, "correct", prediction=first.prediction)])
    assert first not in hard_queue(whole, right, wrong=2).entries
    with pytest.raises(UserError, match="4 of 3 models"):
        hard_queue(whole, NOBODY, wrong=4)
    assert all(missed[m.image_id] == 3 for m in hard_queue(whole, NOBODY).entries)


def test_files_have_what_is_known_and_room_for_answers(tmp_path: Path) -> None:
    _, partial = both_verdicts(6)
    queue = accuracy_queue(open_pairs(partial, average="images"), NOBODY).head(4)
    first = queue.entries[0]
    proposal = Proposal(
        image_id=first.image_id,
        prediction=first.prediction,
        category="Fine-grained error",
        evidence=(Evidence("affinity", "they look alike; so", 0.4),),
    )
    rows = queue_rows(queue, [proposal])
    write_queue(tmp_path / "q.csv", rows)
    write_queue(tmp_path / "q.jsonl", rows)
    with (tmp_path / "q.csv").open(newline="") as handle:
        table = list(csv.DictReader(handle))
    lines = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert list(table[0]) == [*ASKED, *ANSWERED]
    assert [r["rank"] for r in table] == ["1", "2", "3", "4"]
    assert table[0]["proposed_category"] == "Fine-grained error"
    assert table[0]["evidence"] == "they look alike; so"
    assert lines[0]["labels"] == list(first.acceptable) and lines[0]["models"] == list(first.models)
    assert all(row[name] == "" for row in table for name in ANSWERED)
    for name in ("q.csv", "q.jsonl"):
        path = tmp_path / name
        assert is_queue(path)
        assert read_filled(path, testset=partial.testset).empty == 4
    write_queue(tmp_path / "again.csv", rows)
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()
    with pytest.raises(UserError, match="not kept in this kind of file"):
        write_queue(tmp_path / "q.xlsx", rows)
    assert "Spurious Correlation" in how_to_answer()


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_answers_are_never_written_over(tmp_path: Path, ending: str) -> None:
    _, partial = both_verdicts(6)
    rows = queue_rows(accuracy_queue(open_pairs(partial, average="images"), NOBODY).head(3))
    path = tmp_path / f"q.{ending}"
    write_queue(path, rows)
    write_queue(path, rows)  # nobody has answered yet
    write_queue(path, [rows[0], {**rows[1], "answer": "wrong", "who": "ann"}, rows[2]])
    before = path.read_bytes()
    with pytest.raises(ExistsError, match=f"q.{ending} holds 1 answers"):
        write_queue(path, rows)
    assert path.read_bytes() == before
