"""Publishing: what is shown, what is refused, and what is left when it is killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import heldout
from heldout.core.errors import UserError
from heldout.core.files import sweep
from heldout.core.workspace import Workspace
from heldout.curate.crowd.local import LocalCrowd
from heldout.curate.crowd.publication import CrowdFolder, ImagePlace, small_copy
from heldout.data.images import BadImage
from tests.curate.crowd.crowd_examples import CHILD, counts, photo, stored_votes, workspace_of


def publish(workspace: Workspace, **more: Any) -> dict[str, int]:
    given: dict[str, Any] = {"controls": "val", "assignments": 2, **more}
    grids = given.pop("grids", workspace.root / "grids.json")
    return counts(heldout.verbs.crowd_publish("local", grids, "pool", workspace=workspace, **given))


def test_people_of_ones_own_answer(tmp_path: Path) -> None:
    """From the grids to the votes as a page of the workbench will drive it."""
    workspace = workspace_of(tmp_path, photos=True, candidates=12, originals=6)
    planned = publish(workspace, plan=True)
    assert planned == {"grids": 3, "published_before": 0}
    assert not (tmp_path / "crowd/local/grids").exists()
    assert publish(workspace)["images_put"] == 18
    folder = CrowdFolder.of(workspace, "local")
    for path in [*(folder.path / "images").iterdir()][:2]:
        path.unlink()
    again = publish(workspace)
    assert (again["published_before"], again["images_put_again"], again["images_put"]) == (3, 2, 0)
    crowd = LocalCrowd(folder.path / "crowd.db", folder.secrets)
    for person in ("ann", "bob", "cem"):
        while (given := crowd.next(person)) is not None:
            assert given.asked.gloss and len(given.tokens) == 6
            for token in given.tokens:
                assert (folder.path / "images" / f"{token}.jpg").is_file()
            crowd.submit(person, given.grid, given.tokens[:2])
    result = heldout.verbs.crowd_answers("local", workspace=workspace)
    assert counts(result)["votes_added"] == 3 * 2 * 6
    grids = {g["uuid"]: g for g in json.loads((tmp_path / "grids.json").read_text())}
    for vote in stored_votes(workspace):
        place = grids[vote.evidence["grid"]]["images_all"].index(vote.subject["image_id"])
        assert (vote.answer == "selected") == (place < 2)
    # Everybody has two answers per image now, so nothing is left to ask.
    left = heldout.verbs.crowd_grids("pool", controls="none", votes=2, workspace=workspace)
    assert left == []


@pytest.mark.parametrize(
    ("size", "expected"),
    [((640, 400), (312, 500)), ((40, 10), (125, 500)), ((3000, 2), (1, 500))],
)
def test_small_copies(tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]) -> None:
    from PIL import Image

    photo(tmp_path / "a.jpg", 1, size)
    made = small_copy((tmp_path / "a.jpg").read_bytes())
    assert isinstance(made, bytes) and made == small_copy((tmp_path / "a.jpg").read_bytes())
    (tmp_path / "b.jpg").write_bytes(made)
    with Image.open(tmp_path / "b.jpg") as image:
        assert image.size == expected and "comment" not in image.info and not image.getexif()
    assert isinstance(small_copy(b"text"), BadImage)


def test_an_object_store_is_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore is an extra: this stands for it, with the names that are used."""
    kept: dict[str, dict[str, bytes]] = {}

    class Store:
        def __init__(self, url: str) -> None:
            self.objects = kept.setdefault(url, {})

        def list(self) -> list[list[dict[str, Any]]]:
            return [[{"path": name, "size": len(data)}] for name, data in self.objects.items()]

        def put(self, name: str, data: bytes) -> None:
            if "closed" in name:
                raise errors.BaseError("not allowed\nand more")  # type: ignore[attr-defined]
            self.objects[name] = data

    errors = types.ModuleType("obstore.exceptions")
    errors.BaseError = type("BaseError", (Exception,), {})  # type: ignore[attr-defined]
    for name in ("UnauthenticatedError", "PermissionDeniedError"):
        setattr(errors, name, type(name, (errors.BaseError,), {}))
    store = types.ModuleType("obstore.store")
    store.from_url = Store  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "obstore", types.ModuleType("obstore"))
    monkeypatch.setitem(sys.modules, "obstore.store", store)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", errors)
    place = ImagePlace("s3://bucket/crowd")
    assert "a.jpg" not in place
    place.put("a.jpg", b"1")
    assert "a.jpg" in place and "a.jpg" in ImagePlace("s3://bucket/crowd")
    with pytest.raises(UserError, match="s3://bucket/crowd: not allowed"):
        place.put("closed.jpg", b"1")
    assert kept == {"s3://bucket/crowd": {"a.jpg": b"1"}}


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, candidates=12, originals=6)
    listed = json.loads((tmp_path / "grids.json").read_text())

    def changed(**more: Any) -> Path:
        path = tmp_path / "changed.json"
        path.write_text(json.dumps([{**listed[0], **more}, *listed[1:]]))
        return path

    first = listed[0]
    twice = [first["images_to_label"][0]] * 2 + first["images_to_label"][2:]
    shown = [*twice, *first["images_pos_control"], *first["images_neg_control"]]
    for change, message in (
        ({"wnid": "cow"}, "'cow' of grid .* is not a class"),
        ({"uuid": listed[1]["uuid"]}, "is listed twice"),
        ({"images_to_label": twice, "images_all": shown}, "shows an image twice"),
    ):
        with pytest.raises(UserError, match=message):
            publish(workspace, grids=changed(**change))
    with pytest.raises(UserError, match=r"name the set .* with --controls"):
        publish(workspace, controls=None)
    with pytest.raises(UserError, match="no folder of images"):
        publish(workspace)
    assert not (tmp_path / "crowd/local/grids").exists()


@pytest.mark.parametrize("crowd", ["local", "simulated"])
def test_killed_and_resumed_gives_the_same_bytes(tmp_path: Path, crowd: str) -> None:
    """Three places each here; ``benchmarks/kills.py --only "crowd publish"`` draws more."""
    made = workspace_of(tmp_path / "world", photos=True, candidates=12, originals=6)
    CrowdFolder.of(made, crowd).secrets  # noqa: B018  the key is drawn once

    def run(line: str, place: Path, kill: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(kill), str(place), *line.split()],
            capture_output=True, text=True, check=False, cwd=place,
        )  # fmt: skip
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        assert kill == 0 or done.returncode < 0
        return int(done.stdout.rpartition("writes ")[2] or 0)

    def state(place: Path) -> dict[str, Any]:
        files = [p for p in sorted((place / "crowd").rglob("*")) if p.is_file()]
        kept = {p.relative_to(place).as_posix(): p.read_bytes() for p in files if p.suffix != ".db"}
        folder = CrowdFolder.of(Workspace(place), crowd)
        tasks = LocalCrowd(folder.path / "crowd.db", folder.secrets).tasks()
        kept["tasks"] = b" ".join(sorted(one.grid.encode() for one in tasks))
        return kept | {"votes": [v.judgement_id for v in stored_votes(Workspace(place))]}

    lines = [f"crowd publish {crowd} grids.json pool --controls val --assignments 3"]
    if crowd == "simulated":
        lines = [f"{lines[0]} --crowd-size 5", "crowd answers simulated"]
    whole = tmp_path / "whole"
    shutil.copytree(made.root, whole)
    writes = [run(line, whole, 0) for line in lines]
    wanted = state(whole)
    assert len(wanted["votes"]) == (54 if crowd == "simulated" else 0)
    for number, (line, count) in enumerate(zip(lines, writes, strict=True)):
        for part in (2, 3, 5):
            place = tmp_path / f"killed-{number}-{part}"
            shutil.copytree(made.root, place)
            for before in lines[:number]:
                run(before, place, 0)
            run(line, place, max(1, count * part // 6))
            for again in lines[number:]:
                run(again, place, 0)
            assert state(place) == wanted
            for left in list(place.rglob(".tmp-*")):
                sweep(left.parent)  # as the next writer there does, and heldout prune
            assert list(place.rglob(".tmp-*")) == []
