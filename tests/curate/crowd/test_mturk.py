"""MTurk behind its own protocol: a loopback service with paging, throttling, lost answers, duplicates."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import heldout
from heldout.core.context import Result
from heldout.core.errors import UserError
from heldout.core.workspace import Workspace
from heldout.curate.crowd.mturk import cost, fee_share, form_fields
from heldout.data.judgements.workers import counted_votes
from tests.curate.crowd.crowd_examples import CHILD, counts, of_kind, stored_votes, workspace_of
from tests.curate.crowd.mturk_server import Form, Service, serving

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "a secret of nobody"}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return workspace_of(tmp_path, photos=True, candidates=12, originals=6)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with serving(Service(tmp_path / "public", throttled=4)) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_MTURK", running.url)
        yield running


def publish(workspace: Workspace, service: Service, **more: Any) -> dict[str, int]:
    options: dict[str, Any] = {
        "controls": "val",
        "assignments": 3,
        "images_at": f"{service.url}/images",
        "images_to": str(service.images),
    }
    result = heldout.verbs.crowd_publish(
        "mturk",
        workspace.root / "grids.json",
        "pool",
        workspace=workspace,
        **{**options, **more},
    )
    return counts(result)


def fetch(workspace: Workspace, service: Service, **more: Any) -> Result:
    return heldout.verbs.crowd_answers("mturk", workspace=workspace, **more)


def test_a_grid_is_a_hit_whose_page_tells_nothing(workspace: Workspace, service: Service) -> None:
    done = publish(
        workspace,
        service,
        offer={"reward": 0.25, "minutes": 5},
        qualifications={"approved": "95", "country": "US, GB"},
    )
    assert done == {
        "grids": 3, "published_before": 0, "images_put_again": 0, "found_at_the_crowd": 0,
        "created": 3, "images_put": 18,
    }  # fmt: skip
    grids = {g["uuid"]: g for g in json.loads((workspace.root / "grids.json").read_text())}
    for name, hit in service.hits.items():
        grid = grids[hit["RequesterAnnotation"]]
        page = service.page_of(name)
        assert page.action == f"{service.url}/mturk/externalSubmit"
        assert page.hidden == {"assignmentId": "", "grid": grid["uuid"]}
        assert page.images == [f"{service.url}/images/{token}.jpg" for token in page.boxes]
        assert len(set(page.boxes)) == 6 and {len(token) for token in page.boxes} == {32}
        assert page.links == [f"https://pets.example/{grid['wnid']}?a=1&b=2"]
        assert f"<b>{grid['wnid']} or {grid['wnid']} &lt;animal&gt;</b>" in page.text
        assert f"an animal that is a {grid['wnid']}" in page.text
        for image in grid["images_all"]:
            assert image not in page.text
        assert (hit["MaxAssignments"], hit["Reward"]) == (3, "0.25")
        assert hit["AssignmentDurationInSeconds"] == 300
        assert hit["LifetimeInSeconds"] == 604_800
        assert hit["AutoApprovalDelayInSeconds"] == 259_200
        assert [q["Comparator"] for q in hit["QualificationRequirements"]] == [
            "GreaterThanOrEqualTo",
            "In",
        ]
        assert hit["QualificationRequirements"][1]["LocaleValues"] == [
            {"Country": "US"},
            {"Country": "GB"},
        ]
    # One original stands in two grids as a control, under names that have nothing in common.
    assert len(list(service.images.iterdir())) == 18
    for path in service.images.iterdir():
        with Image.open(path) as image:
            image.load()
            assert max(image.size) == 500 and image.format == "JPEG"
            assert not image.getexif() and set(image.info) <= {
                "jfif", "jfif_version", "jfif_unit", "jfif_density",
            }  # fmt: skip
            # 640x400 and 120x200, each stored on its side
            assert image.size in {(312, 500), (500, 300)}
        assert b"secret" not in path.read_bytes() and b"somebody" not in path.read_bytes()


def test_publishing_resumes_and_creates_nothing_twice(
    workspace: Workspace, service: Service
) -> None:
    service.lost = 2  # MTurk has made the HIT, and its answer does not arrive
    assert publish(workspace, service)["created"] == 3
    assert len(service.hits) == 3
    records = workspace.root / "crowd/mturk-sandbox/grids"
    before = {path.name: path.read_bytes() for path in records.iterdir()}
    for path in [*records.iterdir()][:2]:
        path.unlink()
    done = publish(workspace, service)
    assert (done["published_before"], done["found_at_the_crowd"], done["created"]) == (1, 2, 0)
    assert done["images_put"] == 0
    assert {path.name: path.read_bytes() for path in records.iterdir()} == before
    assert len(service.hits) == 3


def answer_all(service: Service, workspace: Workspace) -> dict[tuple[str, str, str], bool]:
    """Three workers answer every HIT; what they selected, by grid, worker and token."""
    said = {}
    for number, hit in enumerate(sorted(service.hits)):
        page: Form = service.page_of(hit)
        for worker in range(3):
            chosen = [box for n, box in enumerate(page.boxes) if (n + number + worker) % 3 == 0]
            fields = {"grid": page.hidden["grid"]}
            if worker:  # one of them selects nothing
                fields["selected"] = "|".join(chosen)
            service.submit(hit, f"AWORKER{worker}", fields)
            for box in page.boxes:
                said[page.hidden["grid"], f"AWORKER{worker}", box] = bool(worker) and box in chosen
    return said


def test_answers_become_votes_and_are_settled(workspace: Workspace, service: Service) -> None:
    publish(workspace, service)
    said = answer_all(service, workspace)
    hit = sorted(service.hits)[0]
    service.assignments.pop(next(iter(service.assignments)))
    garbage = service.submit(hit, "AWORKER9", {"grid": "another", "selected": "x"})
    result = fetch(workspace, service)
    assert counts(result)["assignments"] == 9 and counts(result)["votes_added"] == 8 * 6
    (refused,) = of_kind(result, "refused_assignment")
    assert refused.assignment == garbage
    votes = stored_votes(workspace)
    assert sum(vote.answer == "selected" for vote in votes) == sum(said.values())
    assert {vote.evidence["published"][:4] for vote in votes} == {"2020"}
    stored = b"".join(path.read_bytes() for path in workspace.root.rglob("*") if path.is_file())
    assert b"AWORKER" not in stored and b"a secret of nobody" not in stored
    key = workspace.root / "crowd/key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stored.count(key.read_bytes()) == 1

    bad = str(votes[0].evidence["assignment"])
    result = fetch(workspace, service, approve=True, reject={bad: "at random"})
    statuses = {name: one["AssignmentStatus"] for name, one in service.assignments.items()}
    assert statuses.pop(garbage) == "Submitted" and statuses.pop(bad) == "Rejected"
    assert set(statuses.values()) == {"Approved"}
    assert len(counted_votes(stored_votes(workspace))) == 7 * 6
    fetch(workspace, service, reject={garbage: "was not an answer"})
    calls = len(service.calls)
    assert counts(fetch(workspace, service))["votes_added"] == 0
    asked = [call for call in service.calls[calls:] if call == "ListAssignmentsForHIT"]
    assert len(asked) >= 1  # of the grid with rejections; those that are all approved are done
    assert set(service.calls[calls:]) == {"ListHITs", "ListAssignmentsForHIT"}

    # MTurk forgets HITs after a while: answers stay, and the votes with them.
    service.hits.clear()
    result = fetch(workspace, service)
    assert {one.level for one in of_kind(result, "inconsistent_grid")} == {"warning"}
    assert len(counted_votes(stored_votes(workspace))) == 7 * 6


def test_hits_of_other_projects_are_left_alone(workspace: Workspace, service: Service) -> None:
    publish(workspace, service)
    name = sorted(service.hits)[0]
    service.hits["3OTHER"] = service.hits[name] | {"RequesterAnnotation": "a survey", "HITId": "3O"}
    assert fetch(workspace, service).code == 0
    twin = service.hits[name] | {"HITId": "3TWIN"}
    service.hits["3TWIN"] = twin
    result = fetch(workspace, service)
    (wrong,) = of_kind(result, "inconsistent_grid")
    assert (result.code, wrong.task, wrong.level) == (4, "3TWIN", "error")


def test_an_image_that_nobody_can_see_is_not_asked_about(
    workspace: Workspace, service: Service
) -> None:
    with pytest.raises(UserError, match="make the images public"):
        publish(workspace, service, images_at=f"{service.url}/elsewhere")
    assert service.hits == {}
    (workspace.root / "photos/pool/pool-003.jpg").write_bytes(b"broken")
    for path in service.images.iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"'pool-003' cannot be shown .*blacklist it"):
        publish(workspace, service)
    assert len(service.hits) < 3  # the grid was not created, those before it were


def test_the_cost_comes_first_and_live_is_a_word(
    workspace: Workspace, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = heldout.verbs.crowd_publish(
        "mturk",
        workspace.root / "grids.json",
        "pool",
        controls="val",
        assignments=10,
        plan=True,
        live="LIVE",
        workspace=workspace,
    )
    (said,) = of_kind(result, "crowd_cost")
    assert (said.grids, said.fee, said.total, said.paid) == (3, 0.4, 3 * 10 * 0.14, True)
    for word in ("live", "yes", "LIVE "):
        with pytest.raises(UserError, match="write LIVE"):
            publish(workspace, service, live=word)
    monkeypatch.setenv("AWS_ENDPOINT_URL_MTURK", "https://mturk-requester.us-east-1.amazonaws.com/")
    with pytest.raises(UserError, match="the service that pays people: give --live LIVE"):
        publish(workspace, service)
    with pytest.raises(UserError, match="images_at is missing"):
        publish(workspace, service, images_at=None)
    assert service.calls == []


def test_an_error_of_the_service_is_said_not_taken_for_an_empty_account(
    workspace: Workspace, service: Service
) -> None:
    publish(workspace, service)
    service.refused = "the account is suspended - call us"
    with pytest.raises(UserError, match="MTurk refused list_hits: the account is suspended"):
        fetch(workspace, service)
    service.refused = ""
    service.hits.popitem()
    with pytest.raises(UserError, match=r"MTurk has grid .* already, and does not list it yet"):
        shutil.rmtree(workspace.root / "crowd/mturk-sandbox/grids")
        publish(workspace, service)


def test_killed_and_resumed_creates_every_hit_once(workspace: Workspace, service: Service) -> None:
    line = [
        *("crowd", "publish", "mturk", "grids.json", "pool", "--controls", "val"),
        *("--assignments", "3", "--images-at", f"{service.url}/images"),
        *("--images-to", str(service.images)),
    ]

    def run(kill: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(kill), str(workspace.root), *line],
            capture_output=True, text=True, check=False, cwd=workspace.root,
        )  # fmt: skip
        assert done.returncode == (-signal.SIGKILL if kill else 0), done.stderr
        return int(done.stdout.rpartition("writes ")[2] or 0)

    for kill in (9, 40, 30):
        run(kill)
    run(0)
    assert len(service.hits) == len(service.tokens) == 3
    records = workspace.root / "crowd/mturk-sandbox/grids"
    tasks = {json.loads(path.read_text())["task"] for path in records.iterdir()}
    assert tasks == set(service.hits) and len(list(service.images.iterdir())) == 18


@pytest.mark.browser
def test_a_worker_answers_in_a_browser(
    workspace: Workspace, service: Service, browser: Any
) -> None:
    """From the HIT to the votes, through a real form; without its script the boxes still work."""
    publish(workspace, service)
    hit = sorted(service.hits)[0]
    asked = browser.new_page()
    problems: list[str] = []
    asked.on("console", lambda message: problems.append(message.text))
    asked.goto(f"{service.url}/hit/{hit}?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE")
    assert asked.locator("#send").is_disabled()
    asked.goto(f"{service.url}/hit/{hit}?assignmentId={hit}-AWORKER1")
    sizes = asked.locator(".grid img").evaluate_all("all => all.map(i => i.naturalHeight)")
    assert sorted(set(sizes)) == [300, 500]
    for place in (0, 2, 5, 2):
        asked.locator(".grid label").nth(place).click()
    assert asked.locator("#said").inner_text() == "2 images selected"
    asked.locator("#send").click()
    assert asked.inner_text("body") == "thank you"
    assert [text for text in problems if "favicon" not in text and "404" not in text] == []
    fetch(workspace, service)
    grid = service.hits[hit]["RequesterAnnotation"]
    listed = json.loads((workspace.root / "grids.json").read_text())
    shown = next(each["images_all"] for each in listed if each["uuid"] == grid)
    selected = [v.subject["image_id"] for v in stored_votes(workspace) if v.answer == "selected"]
    assert sorted(selected) == sorted([shown[0], shown[5]])
    assert len(stored_votes(workspace)) == 6


@pytest.mark.parametrize(
    ("assignments", "reward", "fee", "total"),
    [
        (9, 0.10, None, 9 * 0.12),
        (10, 0.10, None, 10 * 0.14),
        (5, 0.01, None, 5 * 0.02),  # at least a cent
        (5, 0.10, 0.5, 5 * 0.15),
        (5, 0.10, 0.0, 5 * 0.10),
    ],
)
def test_fees(assignments: int, reward: float, fee: float | None, total: float) -> None:
    assert cost(1, assignments, reward, fee) == pytest.approx(total)
    assert fee_share(assignments) == (0.2 if assignments < 10 else 0.4)


def test_the_page_can_be_looked_at_first(workspace: Workspace, service: Service) -> None:
    path = workspace.root / "page.html"
    heldout.verbs.crowd_publish(
        "mturk",
        workspace.root / "grids.json",
        "pool",
        controls="val",
        plan=True,
        out=path,
        workspace=workspace,
    )
    page = Form(path.read_text())
    assert len(page.images) == 6 and all(a.startswith("data:image/jpeg") for a in page.images)
    assert service.calls == [] and not (workspace.root / "crowd/mturk-sandbox/grids").exists()


def test_what_is_not_xml_is_kept_as_it_came() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    for text in ("", "<A>", "text", bomb):
        assert form_fields(text) == {"unreadable": text}


def test_without_credentials_it_is_one_line(
    workspace: Workspace, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(workspace.root / "none"))
    with pytest.raises(UserError, match=r"MTurk cannot be asked: .*AWS_ACCESS_KEY_ID"):
        publish(workspace, service)
