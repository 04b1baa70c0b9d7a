"""``docs/replicate.md``, "Your own test set in a day": a team of three does what it says.

Twenty classes of its own, half of the candidates in a folder and half behind addresses of a loopback
server; three people answer grids; three sets, a revision, a model, an export.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from tests.cli.conftest import Run, run  # noqa: F401
from tests.curate.collect.image_server import ImageServer, server  # noqa: F401

from heldout.core.workspace import Workspace
from heldout.curate.crowd.local import LocalCrowd
from heldout.curate.crowd.publication import CrowdFolder
from heldout.data.published.imagenetv2_grids import read_grids
from heldout.data.testset import load

PAGE = Path(__file__).parents[2] / "docs" / "replicate.md"
CLASSES, OF_EACH, PER_CLASS = 20, 14, 4
PEOPLE = ("ana", "ben", "cy")


def commands() -> list[str]:
    """The command lines of the section, in order."""
    section = PAGE.read_text().split("## Your own test set in a day\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def picture(label: int, number: int) -> bytes:
    """Circles, boxes, scribbles of one colour and another: no two are alike to a network."""
    random = np.random.default_rng([label, number])
    width, height = 320, 240
    image = Image.new("RGB", (width, height), tuple(random.integers(0, 256, 3).tolist()))
    draw = ImageDraw.Draw(image)
    for _ in range(int(random.integers(1, 14))):
        colour = tuple(random.integers(0, 256, 3).tolist())
        left, top, right, bottom = (random.random(4) * (width, height, 150, 150)).tolist()
        points = [tuple(point) for point in (random.random((5, 2)) * (width, height)).tolist()]
        match (label + number) % 4:
            case 0:
                draw.ellipse((left, top, left + right + 9, top + bottom + 9), fill=colour)
            case 1:
                draw.rectangle((left, top, left + right + 9, top + bottom + 9), fill=colour)
            case 2:
                draw.polygon(points, fill=colour)
            case _:
                draw.line(points, fill=colour, width=int(random.integers(1, 20)))
    handle = io.BytesIO()
    image.save(handle, "JPEG", quality=92)
    return handle.getvalue()


def easiness(image: int) -> float:
    """How often people select an image: half of them nearly always."""
    return 0.97 if image % 2 else float(np.random.default_rng(image).uniform(0.1, 0.9))


def write_inputs(web: ImageServer) -> None:
    """What the team has before the day begins."""
    labels = [f"thing-{n:02d}" for n in range(CLASSES)]
    classes = [
        {"id": label, "names": [f"thing {n}"], "gloss": "a thing of its kind"}
        for n, label in enumerate(labels)
    ]
    Path("classes.json").write_text(
        json.dumps(
            {"schema_version": 1, "kind": "label_space", "name": "things", "classes": classes}
        )
    )
    with Path("candidates.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image_id", "uri", "class_id", "licence", "owner"])
        for n, label in enumerate(labels):
            for number in range(OF_EACH):
                name = f"{label}/{number:02d}.jpg"
                if number % 2:
                    uri, licence = web.serve(f"/{name}", picture(n, number)), "CC-BY-4.0"
                else:
                    path = Path("ours") / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(picture(n, number))
                    uri, licence = path.as_posix(), "CC0-1.0"
                writer.writerow([f"{n:02d}-{number:02d}", uri, label, licence, f"owner {n}"])
    Path("pets.csv").write_text(
        "target,source\n" + "".join(f"{label},{n}\n" for n, label in enumerate(labels))
    )


def answer_all() -> None:
    """Each of three people answers every grid that they are given."""
    folder = CrowdFolder.of(Workspace(Path()), "local")
    crowd = LocalCrowd(folder.path / "crowd.db", folder.secrets)
    grids = {grid.uuid: grid for grid in read_grids(Path("grids.json"))}
    for person, who in enumerate(PEOPLE):
        answered = 0
        while (given := crowd.next(who)) is not None:
            shown = dict(zip(given.tokens, grids[given.grid].images_all, strict=True))
            selected = [
                token
                for token, image in shown.items()
                if np.random.default_rng([person, int(image.replace("-", ""))]).random()
                < easiness(int(image.replace("-", "")))
            ]
            crowd.submit(who, given.grid, selected)
            answered += 1
        assert answered == len(grids)


def test_a_team_of_three_does_it_in_a_day(run: Run, server: ImageServer) -> None:  # noqa: F811
    write_inputs(server)
    lines = commands()
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "fetch":  # addresses of this machine are not asked unless they are named
            words += ["--allow-host", server.host]
        elif words[:2] == ["import", "judgements"]:
            first = load(Path("testsets/pets-top")).image_ids[0].as_py()
            Path("blacklist.json").write_text(json.dumps({first: "a drawing"}))
        elif words[:2] == ["crowd", "answers"]:
            answer_all()
        ran = run(*words)
        assert ran.code == 0, (line, ran.err)
    made = {
        n: load(Path("testsets") / f"pets-{n}") for n in ("threshold", "top", "random", "top-2")
    }
    for name, testset in made.items():
        assert len(testset) == CLASSES * PER_CLASS, name
        assert set(testset.images["licence"].to_pylist()) == {"CC-BY-4.0", "CC0-1.0"}
        assert not set(testset.images["sha256"].to_pylist()) & {None}
    mean = {name: np.mean(each.images["frequency"].to_pylist()) for name, each in made.items()}
    assert mean["top"] >= mean["threshold"] > mean["random"]
    before, after = (set(made[name].image_ids.to_pylist()) for name in ("top", "top-2"))
    assert before - after == {first} and len(after - before) == 1
    for name in ("threshold", "random"):
        assert run("export", "testset", f"pets-{name}", "-o", f"pets-{name}").code == 0
    for name in ("threshold", "random", "top-2"):
        assert len(list(Path(f"pets-{name}").rglob("*.jpg"))) == CLASSES * PER_CLASS
    asked = len(server.asked)
    assert run("fetch", "candidates", "--allow-host", server.host).code == 0
    assert len(server.asked) == asked, "what is there is not fetched again"
