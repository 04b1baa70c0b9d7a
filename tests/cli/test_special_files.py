"""What is not a regular file, in the place of an image or a table: told, never waited for."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.cli.app import invoke
from heldout.core.errors import BadFile, NotFound
from heldout.core.files import read_json, sha256_file
from heldout.core.tables import read_table_file

MODEL = """
from heldout.data.labels.label_space import LabelSpace
from heldout.testing.model import FakeModel

model = FakeModel("mine", label_space=LabelSpace.from_ids("q", ["cat", "dog"]))
"""


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket may have few letters
        made.bind(path.name)
        os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": _socket,
    "a folder": Path.mkdir,
}
COMPOSE = "build compose --backgrounds photos/cat --labels folders"
VERBS = {
    "import testset": (0, 0, "import testset photos --name other --classes folders"),
    "verify": (1, 1, "verify q"),
    "export": (3, 3, "export testset q --out out --copy-images --allow-licence"),
    "eval": (3, 3, "eval -m mine.py:model -t q"),
    "predict": (3, 3, "predict -m mine.py:model -t q"),
    "annotate": (3, 0, "annotate photos -e fake --classes classes.json"),
    "cutout": (2, 0, "cutout masks photos --masks photos/cat --out cut"),
    "cutout photos": (3, 0, "cutout grabcut photos --out cut"),
    "compose": (2, 0, f"{COMPOSE} --foregrounds photos"),
    "backgrounds": (2, 0, f"{COMPOSE} --foregrounds ok"),
}
"""What each verb does with a file that is none, and with a folder called like an image."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test set of six images, its folder, and a model; we are in the workspace."""
    monkeypatch.chdir(tmp_path)
    for label in ("cat", "dog"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(3):
            noise = np.random.default_rng(number).integers(0, 255, (32, 32, 4), np.uint8)
            Image.fromarray(noise).save(tmp_path / "photos" / label / f"{number}.png")
    shutil.copytree("photos", "ok")
    Path("mine.py").write_text(MODEL)
    Path("classes.json").write_text(
        '{"schema_version": 1, "name": "q", "classes": [{"id": "cat", "names": ["cat"]}, '
        '{"id": "dog", "names": ["dog"]}]}'
    )
    assert invoke(["import", "testset", "photos", "--name", "q", "--classes", "folders"]) == 0
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_waits_for_what_is_in_the_place_of_an_image(
    place: Path, kind: str, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = place / "photos" / "cat" / "1.png"
    odd.unlink()
    KINDS[kind](odd)
    code: list[int] = []
    *expected, line = VERBS[verb]
    thread = threading.Thread(target=lambda: code.append(invoke(line.split())), daemon=True)
    thread.start()
    thread.join(60)
    assert code, "it waits"
    said = capsys.readouterr()
    assert code == [expected[kind == "a folder"]], said.err
    assert "Traceback" not in said.err
    if code[0] in (1, 2):
        assert "not a regular file" in said.out + said.err or kind == "a folder"


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_and_a_document_are_regular_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "table.csv"
    KINDS[kind](path)
    with pytest.raises(NotFound, match=r"no file .*table\.csv"):
        read_table_file(path)
    with pytest.raises(NotFound if kind == "a folder" else BadFile, match=r"table\.csv"):
        read_json(path)
    with pytest.raises(IsADirectoryError if kind == "a folder" else BadFile):
        sha256_file(path)
