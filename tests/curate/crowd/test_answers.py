"""Answers of a crowd as votes: nothing doubled, nothing lost, whatever it sends and whenever we ask."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import heldout
from heldout.core.context import Result
from heldout.core.errors import BadFile, UserError
from heldout.core.workspace import Workspace
from heldout.curate.crowd.answers import Answers
from heldout.curate.crowd.publication import CrowdFolder
from heldout.curate.crowd.simulated import Mood, SimulatedCrowd, drawn_people
from heldout.data.judgements.store import JudgementStore
from heldout.data.judgements.workers import counted_votes, selection_frequency
from tests.curate.crowd.crowd_examples import counts, of_kind, stored_votes, workspace_of

PEOPLE = {"crowd_size": 6, "assignments": 3}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = workspace_of(tmp_path)
    publish(made)
    return made


def publish(workspace: Workspace, **more: object) -> dict[str, int]:
    result = heldout.verbs.crowd_publish(
        "simulated",
        workspace.root / "grids.json",
        "pool",
        controls="val",
        workspace=workspace,
        **PEOPLE,
        **more,
    )
    return counts(result)


def fetch(workspace: Workspace, **more: object) -> Result:
    return heldout.verbs.crowd_answers("simulated", workspace=workspace, **more)


def folder_of(workspace: Workspace) -> CrowdFolder:
    return CrowdFolder.of(workspace, "simulated")


def moody(workspace: Workspace, *moods: Mood) -> SimulatedCrowd:
    folder = folder_of(workspace)
    known = SimulatedCrowd.of(folder.path, folder.secrets)
    return SimulatedCrowd(folder.path / "crowd.db", folder.secrets, known.crowd, moods=moods)


def ingest(workspace: Workspace, crowd: SimulatedCrowd) -> Answers:
    """What the verb does, with another crowd."""
    kept = Answers.of(folder_of(workspace))
    kept.fetch(crowd, list(crowd.tasks()))
    kept.weigh()
    kept.write()
    with JudgementStore(workspace.judgements) as store:
        store.add(kept.votes(kept.changed(), source="crowd"))
    kept.ingested()
    return kept


def said(workspace: Workspace) -> dict[tuple[str, str, str], Counter[str]]:
    """What counts: (grid, image, class) -> answers. Of each assignment the votes count once."""
    found: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    seen = set()
    for vote in counted_votes(stored_votes(workspace)):
        key = (str(vote.evidence["grid"]), vote.subject["image_id"], vote.subject["class_id"])
        assert (key, vote.who) not in seen
        seen.add((key, vote.who))
        found[key][str(vote.answer)] += 1
    return dict(found)


def expected(workspace: Workspace, *, without: set[str] = frozenset()) -> object:  # type: ignore[assignment]
    """The oracle: votes counted from what the crowd's file has, by a grid's own list of images."""
    crowd, secrets = moody(workspace), folder_of(workspace).secrets
    found: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for grid in json.loads((workspace.root / "grids.json").read_text()):
        for one in crowd.answers(grid["uuid"]):
            if one.assignment not in without:
                selected = one.answer["selected"].split("|")
                for image in grid["images_all"]:
                    hit = secrets.token(grid["uuid"], image) in selected
                    key = (grid["uuid"], image, grid["wnid"])
                    found[key]["selected" if hit else "not-selected"] += 1
    return dict(found)


def test_votes_are_what_people_selected(workspace: Workspace) -> None:
    result = fetch(workspace)
    assert said(workspace) == expected(workspace)
    grids = json.loads((workspace.root / "grids.json").read_text())
    n = sum(len(grid["images_all"]) for grid in grids) * 3
    assert counts(result)["votes_added"] == n == len(stored_votes(workspace))
    for vote in stored_votes(workspace):
        grid = next(g for g in grids if g["uuid"] == vote.evidence["grid"])
        role = {"candidate": "to_label", "positive": "pos_control", "negative": "neg_control"}[
            str(vote.evidence["role"])
        ]
        assert vote.subject["image_id"] in grid[f"images_{role}"]
        assert vote.testset == ("pool" if role == "to_label" else "val")
        assert not vote.who.startswith("person")


def test_the_same_again_adds_nothing(workspace: Workspace) -> None:
    assert publish(workspace)["published_before"] == 9
    fetch(workspace)
    before = tree(workspace), stored_votes(workspace)
    for more in ({}, {"stored": True}, {"plan": True}, {"approve": False}):
        assert counts(fetch(workspace, **more)).get("votes_added", 0) == 0
    assert publish(workspace)["published_before"] == 9
    after = tree(workspace)
    assert [name for name in after if after[name] != before[0].get(name)] == []
    assert (after, stored_votes(workspace)) == before


def tree(workspace: Workspace) -> dict[str, bytes]:
    root = workspace.root / "crowd"
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {
        p.relative_to(root).as_posix(): p.read_bytes() for p in files if "crowd.db" not in p.name
    }


def test_a_crowd_that_answers_twice_late_and_with_garbage(workspace: Workspace) -> None:
    truth = expected(workspace)
    crowd = moody(workspace, "twice", "late", "garbage")
    kept = ingest(workspace, crowd)
    early = said(workspace)
    assert sum(sum(c.values()) for c in early.values()) < len(truth) * 3  # type: ignore[arg-type]
    refused = kept.weigh()
    assert {r.problem for r in refused} == {
        "is not an answer to this grid",
        "selects what the grid does not show",
        "is of a person who has answered this grid before",
    }
    for _ in range(2):  # the second time what was late is there
        ingest(workspace, crowd)
        assert said(workspace) == truth
    assert len(stored_votes(workspace)) == len(truth) * 3  # type: ignore[arg-type]
    ingest(workspace, moody(workspace))  # what the crowd no longer sends is not lost
    assert said(workspace) == truth


def test_votes_of_a_rejected_assignment_stop_counting(workspace: Workspace) -> None:
    fetch(workspace)
    first = of_kind(fetch(workspace), "answered_grids")
    name = next(iter(stored_votes(workspace))).evidence["assignment"]
    votes = len(stored_votes(workspace))
    result = fetch(workspace, reject={name: "selects everything"}, approve=True)
    found = counts(result)
    assert (found["assignments_rejected"], found["assignments_approved"]) == (1, 26)
    assert said(workspace) == expected(workspace, without={name})
    images = len(stored_votes(workspace)) - votes
    assert images == found["votes_added"] == 6  # added once more, as rejected: 4 + 1 + 1 images
    assert of_kind(result, "answered_grids") != first
    assert counts(fetch(workspace))["votes_added"] == 0
    fetch(workspace, reject={name: "again"})  # is rejected already
    paid = next(v for v in counted_votes(stored_votes(workspace))).evidence["assignment"]
    with pytest.raises(UserError, match="is approved, which is for ever"):
        fetch(workspace, reject={paid: "too late"})
    # The service may take a rejection back; then the votes count again.
    moody(workspace).settle(name, rejected=None)
    fetch(workspace)
    assert said(workspace) == expected(workspace)


def test_all_who_read_votes_leave_rejected_ones_out(workspace: Workspace) -> None:
    fetch(workspace)
    before = {(f.image_id, f.class_id): f.n for f in selection_frequency(stored_votes(workspace))}
    vote = stored_votes(workspace)[0]
    fetch(workspace, reject={vote.evidence["assignment"]: "too fast"})
    after = {(f.image_id, f.class_id): f.n for f in selection_frequency(stored_votes(workspace))}
    lost = [key for key in before if after[key] < before[key]]
    assert len(lost) == 6 and all(before[key] - after[key] == 1 for key in lost)


@pytest.mark.parametrize("what", ["grid", "assignment", "who"])
def test_what_is_ignored_does_not_count_until_it_is_taken_off_the_list(
    workspace: Workspace, what: str
) -> None:
    fetch(workspace)
    vote = stored_votes(workspace)[0]
    name = vote.who if what == "who" else str(vote.evidence[what])
    gone = {
        str(v.evidence["assignment"])
        for v in stored_votes(workspace)
        if name in (v.who, v.evidence["grid"], v.evidence["assignment"])
    }
    result = fetch(workspace, ignore={name: "images were missing"})
    assert counts(result)["assignments_ignored"] == len(gone) > 0
    assert said(workspace) == expected(workspace, without=gone)
    assert counts(fetch(workspace))["votes_added"] == 0
    path = folder_of(workspace).path / "ignored.json"
    path.write_text('{"schema_version": 1, "reasons": {}}')
    fetch(workspace)
    assert said(workspace) == expected(workspace)


def test_a_copy_of_the_folder_is_a_backup(workspace: Workspace, tmp_path: Path) -> None:
    fetch(workspace)
    name = str(stored_votes(workspace)[0].evidence["assignment"])
    fetch(workspace, reject={name: "selects everything"})
    votes = [vote.judgement_id for vote in stored_votes(workspace)]
    other = workspace_of(tmp_path / "other")
    shutil.copytree(workspace.root / "crowd", other.root / "crowd")
    (other.root / "crowd/simulated/crowd.db").unlink()  # the crowd itself is gone
    fetch(other, stored=True)
    assert [vote.judgement_id for vote in stored_votes(other)] == votes
    result = fetch(other)
    assert {one.level for one in of_kind(result, "inconsistent_grid")} == {"warning"}
    assert [vote.judgement_id for vote in stored_votes(other)] == votes


def test_grids_that_only_the_crowd_knows_are_an_error(workspace: Workspace) -> None:
    record = next((folder_of(workspace).path / "grids").iterdir())
    lost = json.loads(record.read_text())
    record.unlink()
    result = fetch(workspace)
    (wrong,) = of_kind(result, "inconsistent_grid")
    assert (result.code, wrong.level, wrong.grid) == (4, "error", record.stem)
    assert record.stem not in {grid for grid, _, _ in said(workspace)}
    done = publish(workspace)
    assert (done["found_at_the_crowd"], done["created"]) == (1, 0)
    assert json.loads(record.read_text()) == lost
    del lost["check"]
    record.write_text(json.dumps({**lost, "task": "another"}))  # as an older one, without a check
    result = fetch(workspace)
    assert result.code == 4 and [r.level for r in of_kind(result, "inconsistent_grid")] == [
        "error",
        "warning",
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"reject": {"nobody": "because"}}, "no assignment 'nobody'"),
        ({"reject": {"a": ""}}, "no reason"),
        ({"plan": True, "approve": True}, "no use"),
        ({"stored": True, "reject": {"a": "b"}}, "no use"),
    ],
)
def test_what_cannot_be_done_is_said(
    workspace: Workspace, given: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        fetch(workspace, **given)
    assert stored_votes(workspace) == []


def test_other_people_are_another_crowd(workspace: Workspace) -> None:
    with pytest.raises(UserError, match="other simulated people"):
        publish(workspace, seed=2)
    with pytest.raises(UserError, match="no grids were published"):
        heldout.verbs.crowd_answers("local", workspace=workspace)


def test_people_select_as_often_as_their_skill_says(tmp_path: Path) -> None:
    """4,000 answers a cell: five standard errors of a share are below 0.04."""
    made = workspace_of(tmp_path, candidates=30)
    frequencies = tmp_path / "frequencies.csv"
    rows = [f"pool-{n:03},{('cat', 'dog', 'owl')[n % 3]},{(n % 5) / 4}" for n in range(30)]
    frequencies.write_text("image_id,class_id,frequency\n" + "\n".join(rows))
    heldout.verbs.crowd_publish(
        "simulated",
        tmp_path / "grids.json",
        "pool",
        controls="val",
        frequencies=frequencies,
        crowd_size=700,
        assignments=700,
        skill={"hits": 0.9, "false-alarms": 0.2},
        workspace=made,
    )
    fetch(made)
    people = drawn_people(700, 0.9, 0.2, 0).people
    hit = sum(p.hit_rate for p in people) / 700
    alarm = sum(p.false_alarms for p in people) / 700
    assert abs(hit - 0.9) < 0.02 and abs(alarm - 0.2) < 0.02
    shares: dict[float, list[bool]] = defaultdict(list)
    for vote in stored_votes(made):
        if vote.evidence["role"] == "candidate":
            true = (int(vote.subject["image_id"][-3:]) % 5) / 4
            shares[true].append(vote.answer == "selected")
    assert sorted(shares) == [0, 0.25, 0.5, 0.75, 1]
    for true, hits in shares.items():
        assert abs(sum(hits) / len(hits) - (true * hit + (1 - true) * alarm)) < 0.04


@pytest.mark.parametrize("kind", ["grids", "answers"])
def test_what_was_altered_is_not_counted(workspace: Workspace, kind: str) -> None:
    """A class's name, or a person's, that changed on disk would make other votes."""
    fetch(workspace)
    path = next((folder_of(workspace).path / kind).glob("*.json"))
    name = re.findall(r'"(?:who|wnid)": "([^"]+)"', path.read_text())[0]
    other = name[:-1] + ("b" if name[-1] == "a" else "a")
    path.write_text(path.read_text().replace(name, other))
    with pytest.raises(BadFile, match="not as it was written"):
        fetch(workspace, stored=True)
